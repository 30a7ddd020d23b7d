"""The code on the page about time series runs, and its intervals are what the page says."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgp import CVGPRegressor

PAGE = (Path(__file__).parent.parent / "docs" / "time_series.md").read_text(encoding="utf-8")


def test_the_example_finds_the_season_and_covers_the_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "time_series.md", "exec"), names)
    model = names["model"]
    period = model.model_.kernel.kernels[2].base_kernel.period_length.item() * model._gp.scaling.x_scale[0]
    assert period == pytest.approx(1.0, rel=0.01)
    assert 78 <= int(capsys.readouterr().out.split("%")[0]) <= 100
    months, y, known = names["years"][:, None], names["y"], names["known"]
    season_alone = CVGPRegressor(kernel="periodic", random_state=0).fit(months[known], y[known])
    gaps = ~known & (np.arange(240) < 192)
    rmse = [np.sqrt(np.mean((each.predict(months[gaps]) - y[gaps]) ** 2)) for each in (model, season_alone)]
    assert rmse[0] < 0.5 * rmse[1]
