"""Numbers and names in the user guide are those of the code."""

import inspect
import re
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from cvgp import CVGPRegressor
from cvgp.data.level_effects import MANY_ROWS
from cvgp.data.tables.arrow_cells import MAX_INDICATORS
from cvgp.estimators import units as scaled
from cvgp.finite import FloatArray
from cvgp.training import plan, size, size_choice
from cvgp.training.start import DEFAULT_KERNEL

DOCS = Path(__file__).parent.parent / "docs"
REGRESSOR = (DOCS / "regressor.md").read_text(encoding="utf-8")
COMMANDS = (DOCS / "cli.md").read_text(encoding="utf-8")
TABLES = (DOCS / "tables.md").read_text(encoding="utf-8")
CONTRIBUTING = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_MODULES_ON_THE_WAY = 25


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


def most_exact_rows(num_dims: int, points: int, *, has_neighbours: bool) -> int:
    """Up to how many hundred rows `auto` takes the exact GP."""
    worth = partial(size.exact_is_worth_it, num_dims=num_dims, size=points, max_time=None)
    return round(max(n for n in range(50, 4000, 10) if worth(n, has_neighbours=has_neighbours)), -2)


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (REGRESSOR, f"`None` is `{DEFAULT_KERNEL}`"),
        (REGRESSOR, f"`auto` takes it up to {plan.LBFGS_ROWS} rows"),
        (REGRESSOR, f"up to some {most_exact_rows(1, 20, has_neighbours=True)} rows of one column that 20 points"),
        (REGRESSOR, f"up to some {most_exact_rows(8, 400, has_neighbours=True)} rows, and with `neighbors=0`"),
        (REGRESSOR, f"with `neighbors=0` up to some {most_exact_rows(8, 400, has_neighbours=False)}."),
        (REGRESSOR, f"they leave unexplained is {100 * size.UNEXPLAINED_SHARE:g} % of the noise"),
        (REGRESSOR, f"at least {size.SMALLEST} and at most {size.LARGEST_BY_DEFAULT}, or what `max_time` affords"),
        (REGRESSOR, f"within {size_choice.MARGIN:g} nats per row of the best"),
        (REGRESSOR, f"up to {size.largest_untrained(3000, None)} on a few thousand rows"),
        (REGRESSOR, f"better by {size_choice.TRAINING_GAIN:g} nats per row"),
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


def test_the_rooms_of_the_architecture_are_those_of_the_import_contract_in_its_order() -> None:
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    rooms = [room for layer in contract["layers"] for room in re.findall(r"\w+", layer)]
    table = CONTRIBUTING.split("| room |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == rooms


def section(title: str) -> list[str]:
    """The parts of a section: its steps, lists and paragraphs."""
    return CONTRIBUTING.split(f"\n### {title}\n")[1].split("\n#")[0].strip().split("\n\n")


def modules_in(text: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", text))


def modules_run_by(call: Callable[[], object]) -> set[str]:
    """The modules of cvgp whose functions are called."""
    names = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        # Bodies of modules and classes are not optimised: they run when something is imported late.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            names.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return {name.removeprefix("cvgp.") for name in names if name.startswith("cvgp.")}


def example(**settings: object) -> tuple[CVGPRegressor, FloatArray, FloatArray]:
    """An estimator and data with so much noise that a few points stand for all rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (200, 1))
    return CVGPRegressor(random_state=0, **settings), X, np.sin(X[:, 0]) + rng.normal(0, 0.3, 200)


def way_through_a_fit() -> tuple[set[str], set[str], str]:
    """The modules of the steps, those of small jobs, and the closing paragraph."""
    _, steps, _, jobs, rest = section("The data's way through a fit")
    return modules_in(steps), modules_in(jobs), " ".join(rest.split())


def test_a_default_fit_runs_the_modules_that_the_page_lists() -> None:
    model, X, y = example()
    way, jobs, _ = way_through_a_fit()
    assert way | jobs == modules_run_by(lambda: model.fit(X, y))


def test_the_way_through_a_fit_is_short_and_names_each_module_in_one_list() -> None:
    way, jobs, rest = way_through_a_fit()
    assert len(way) <= MOST_MODULES_ON_THE_WAY
    assert not way & jobs
    assert f"The way has {len(way)} modules, and {len(jobs)} more do the small jobs." in rest


def test_the_modules_for_more_rows_are_those_that_the_page_names() -> None:
    model, X, y = example(solver="adam", max_iter=3)
    way, jobs, rest = way_through_a_fit()
    more = set(re.findall(r"`(\w+\.\w+)`", rest)) - way - jobs
    assert more <= modules_run_by(lambda: model.fit(X, y))
    assert f"Beyond {plan.LBFGS_ROWS} rows `" in rest


def test_a_predict_runs_the_modules_that_the_page_lists() -> None:
    model, X, y = example(max_iter=3)
    model.fit(X, y)
    steps = section("The data's way through a predict")[0]
    assert modules_in(steps) == modules_run_by(lambda: model.predict(X, return_std=True))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./]*)`", CONTRIBUTING))))
def test_a_file_that_contributing_names_exists(path: str) -> None:
    assert (DOCS.parent / path).exists()
