"""Parameters and files that the pages name exist."""

import inspect
import re
from pathlib import Path

import pytest

from cvgp import CVGPRegressor, TrainingOptions

DOCS = Path(__file__).parent.parent / "docs"
REGRESSOR = (DOCS / "regressor.md").read_text(encoding="utf-8")
CONTRIBUTING = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def table_of_defaults() -> dict[str, str]:
    rows = re.findall(r"^\| (`.*?) \| (`.*?) \|", REGRESSOR, flags=re.MULTILINE)
    names = [name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)]
    defaults = []
    for cell, default in rows:
        values = re.findall(r"`(.*?)`", default)
        defaults += values * (cell.count("`") // 2 // len(values))
    return dict(zip(names, defaults, strict=True))


def test_every_parameter_is_listed_with_its_default() -> None:
    parameters = [p for c in (CVGPRegressor, TrainingOptions) for p in inspect.signature(c).parameters.values()]
    expected = {p.name: f'"{p.default}"' if isinstance(p.default, str) else str(p.default) for p in parameters}
    listed = table_of_defaults()
    assert {name: default.replace("1e-4", "0.0001") for name, default in listed.items()} == expected


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|docs|experiments)/[\w./]*)`", CONTRIBUTING))))
def test_a_file_that_contributing_names_exists(path: str) -> None:
    assert (DOCS.parent / path).exists()
