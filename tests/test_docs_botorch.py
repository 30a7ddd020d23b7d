"""The code on the page about BoTorch runs from top to bottom."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = (Path(__file__).parent.parent / "docs" / "botorch.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:Optimization failed")
def test_the_code_of_the_page_runs() -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "botorch.md", "exec"), names)
    assert names["candidate"].shape == (1, 2)
    regressor, model, X = names["regressor"], names["regressor"].to_botorch(), names["X"]
    torch.testing.assert_close(
        model.posterior(X).mean[:, 0], torch.tensor(regressor.predict(X.numpy())), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("picture", re.findall(r"images/(\w+)\.png", PAGE))
def test_a_picture_of_the_page_is_drawn_by_an_example(picture: str) -> None:
    root = Path(__file__).parent.parent
    assert (root / "docs" / "images" / f"{picture}.png").exists()
    assert (root / "examples" / f"{picture}.py").exists()
