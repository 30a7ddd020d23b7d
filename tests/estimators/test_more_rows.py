"""More rows never make a default fit worse."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from cvgp import CVGPRegressor

Array = NDArray[np.float64]
FEW, MANY, NEW = 1000, 6000, 2000


def prices() -> pd.DataFrame:
    """Stones whose price grows like a power of their weight, with text columns and noise in proportion."""
    rng = np.random.default_rng(0)
    n = MANY + NEW
    carat = np.exp(rng.normal(-0.4, 0.6, n))
    grades = {"cut": list("ABCDE"), "color": list("DEFGHIJ"), "clarity": ["if", "vs", "si", "i"]}
    table = pd.DataFrame({"carat": carat, "depth": rng.normal(61.7, 1.4, n), "table": rng.normal(57.5, 2.2, n)})
    effect = np.zeros(n)
    for name, levels in grades.items():
        codes = rng.integers(len(levels), size=n)
        table[name] = np.array(levels)[codes]
        effect += 0.4 * codes / len(levels)
    table["y"] = 3000.0 * carat**1.7 * np.exp(effect + 0.12 * rng.normal(size=n))
    return table


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Left out")
@pytest.mark.parametrize("name", ["prices", "protein", "elevators"])
def test_more_rows_never_make_a_fit_worse(name: str, uci: Callable[[str], tuple[Array, Array]]) -> None:
    if name == "prices":
        table = prices()
    else:
        x, y = uci(name)
        rows = np.random.default_rng(0).permutation(len(x))[: MANY + NEW]
        table = pd.DataFrame(x[rows], columns=[f"x{d}" for d in range(x.shape[1])]).assign(y=y[rows])
    new = table[MANY:].reset_index(drop=True)
    scores = []
    for count in (FEW, MANY):
        model = CVGPRegressor(random_state=0).fit(table[:count].reset_index(drop=True), "y")
        error = model.predict(new) - new["y"].to_numpy()
        density = model.log_predictive_density(new.drop(columns="y"), new["y"].to_numpy())
        scores.append((float(np.sqrt(np.mean(error**2))), float(density.mean())))
    (few_error, few_density), (many_error, many_density) = scores
    assert many_error < 1.01 * few_error
    assert many_density > few_density - 0.01
