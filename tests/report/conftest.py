"""A small model of a table, and the page about it."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from cvgp import CVGPRegressor
from cvgp.report import Report

SCRIPT = "</script><script>alert('name')</script>"
IMAGE = "<img src=x onerror=alert(1)>"
FORMULA = "=cmd()"


class Case(NamedTuple):
    """A model, rows that it has not seen, and the page."""

    model: CVGPRegressor
    train: pd.DataFrame
    test: pd.DataFrame
    report: Report


def hostile_table(num_rows: int, seed: int) -> pd.DataFrame:
    """Numbers, text and a target, with names and values that would do harm if they were not text."""
    rng = np.random.default_rng(seed)
    colour = rng.choice([IMAGE, FORMULA, 'plain, "quoted"'], num_rows)
    size = rng.normal(size=num_rows)
    return pd.DataFrame(
        {
            SCRIPT: size,
            "colour": colour,
            "n" * 500: rng.normal(size=num_rows),
            "<b>price": 3.0 * size + (colour == FORMULA) + 0.2 * rng.normal(size=num_rows),
        }
    )


@pytest.fixture(scope="session")
def case() -> Case:
    train, test = hostile_table(90, 0), hostile_table(60, 1)
    model = CVGPRegressor(12, max_iter=15, neighbors=0, noise="constant", inputs="identity", random_state=0)
    model.fit(train, "<b>price")
    return Case(model, train, test, model.report(test, "<b>price", train=(train, "<b>price")))
