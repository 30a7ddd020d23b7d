"""A small model of a table with hostile names, and the page about it."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from cvgp import CVGPClassifier, CVGPRegressor
from cvgp.report import Report
from tests.flat_options import make_regressor

SCRIPT = "</script><script>alert('name')</script>"
IMAGE = "<img src=x onerror=alert(1)>"
TARGET = '<b title="$\\alpha$">price'


class Case(NamedTuple):
    """A model, rows that it has not seen, and the page."""

    model: CVGPRegressor
    train: pd.DataFrame
    test: pd.DataFrame
    report: Report


def hostile_table(num_rows: int, seed: int) -> pd.DataFrame:
    """Numbers, text and a target, with names and values that would do harm if they were not escaped."""
    rng = np.random.default_rng(seed)
    color = rng.choice([IMAGE, "=cmd()", 'plain, "quoted"', "中文 \u202e"], num_rows)
    size = rng.normal(size=num_rows)
    price = 3.0 * size + (color == IMAGE) + 0.2 * rng.normal(size=num_rows)
    return pd.DataFrame({SCRIPT: size, "color": color, "n" * 500: rng.normal(size=num_rows), TARGET: price})


@pytest.fixture(scope="session")
def case() -> Case:
    train, test = hostile_table(90, 0), hostile_table(60, 1)
    model = make_regressor(12, max_iter=15, n_neighbors=0, noise="constant", input_warp="identity", random_state=0)
    model.fit(train, TARGET)
    return Case(model, train, test, model.report(test, TARGET, train=(train, TARGET)))


class ClassCase(NamedTuple):
    """A classifier, rows that it has not seen, and the page."""

    model: CVGPClassifier
    train: pd.DataFrame
    test: pd.DataFrame
    report: Report


@pytest.fixture(scope="session")
def class_case() -> ClassCase:
    """The labels of the three classes, and a column, have hostile names."""
    labels = np.array([IMAGE, SCRIPT, "中文 \u202e"])
    train, test = (
        hostile_table(rows, seed)
        .assign(kind=lambda f: labels[np.digitize(f[SCRIPT], [-0.5, 0.5])])
        .drop(columns=TARGET)
        for rows, seed in ((150, 0), (80, 1))
    )
    model = CVGPClassifier(12, input_warp="identity", random_state=0).fit(train, "kind")
    return ClassCase(model, train, test, model.report(test, "kind", train=(train, "kind")))
