"""Numbers and names in the user guide are those of the code."""

import inspect
import re
from pathlib import Path

import pytest

from cvgp import CVGPRegressor
from cvgp.data.columns import MAX_CATEGORIES
from cvgp.estimators import units as scaled
from cvgp.training import plan
from cvgp.training.start import DEFAULT_KERNEL

DOCS = Path(__file__).parent.parent / "docs"
REGRESSOR = (DOCS / "regressor.md").read_text(encoding="utf-8")
COMMANDS = (DOCS / "cli.md").read_text(encoding="utf-8")


def table_of_defaults() -> dict[str, str]:
    rows = re.findall(r"^\| (`.*?) \| (`.*?) \|", REGRESSOR, flags=re.MULTILINE)
    names = [name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)]
    defaults = []
    for cell, default in rows:
        values = re.findall(r"`(.*?)`", default)
        defaults += values * (cell.count("`") // 2 // len(values))
    return dict(zip(names, defaults, strict=True))


def test_every_parameter_is_listed_with_its_default() -> None:
    parameters = list(inspect.signature(CVGPRegressor.__init__).parameters.values())[1:]
    expected = {p.name: f'"{p.default}"' if isinstance(p.default, str) else str(p.default) for p in parameters}
    listed = table_of_defaults()
    assert {name: default.replace("1e-4", "0.0001") for name, default in listed.items()} == expected


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (REGRESSOR, f"`None` is `{DEFAULT_KERNEL}`"),
        (REGRESSOR, f"`auto` takes it up to {plan.LBFGS_ROWS} rows"),
        (REGRESSOR, f"they leave unexplained is {100 * plan.UNEXPLAINED_SHARE:g} % of the noise"),
        (REGRESSOR, f"with at least {plan.SMALLEST} and at most {plan.LARGEST_BY_DEFAULT} of them"),
        (REGRESSOR, f"Predictions are made {scaled.CHUNK_ROWS} rows at a time"),
        (COMMANDS, f"at most {MAX_CATEGORIES} categories"),
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
