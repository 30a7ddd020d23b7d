"""Numbers and names in the user guide are those of the code."""

import inspect
import re
from pathlib import Path

import pytest

from cvgp import CVGPRegressor, TrainingOptions
from cvgp.estimators import fitted as scaled
from cvgp.tables.columns import MAX_INDICATORS
from cvgp.tables.levels import MANY_ROWS

DOCS = Path(__file__).parent.parent / "docs"
REGRESSOR = (DOCS / "regressor.md").read_text(encoding="utf-8")
COMMANDS = (DOCS / "cli.md").read_text(encoding="utf-8")
TABLES = (DOCS / "tables.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (REGRESSOR, f"Predictions are made {scaled.CHUNK_ROWS} rows at a time"),
        (COMMANDS, f"Text of at most {MAX_INDICATORS} categories becomes one indicator each"),
        (TABLES, f"text or categories, at most {MAX_INDICATORS} different ones"),
        (TABLES, f"unless its level has at least {MANY_ROWS:.0f} rows"),
    ],
)
def test_a_number_in_the_guide_is_that_of_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join(page.split())


def named_tests() -> list[tuple[str, str]]:
    page = (DOCS / "faults.md").read_text(encoding="utf-8")
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)


@pytest.mark.parametrize(("path", "name"), named_tests())
def test_a_test_that_the_page_of_faults_names_exists(path: str, name: str) -> None:
    code = (DOCS.parent / path).read_text(encoding="utf-8")
    assert f"def {name}" in code


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|docs|experiments)/[\w./]*)`", CONTRIBUTING))))
def test_a_file_that_contributing_names_exists(path: str) -> None:
    assert (DOCS.parent / path).exists()
