"""The layout of the package: each name has one job, and no module holds two ideas."""

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "cvgp"
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
COMMANDS = PACKAGE / "cli"
"""Its modules carry the names of commands."""

MOST_LINES = 300
LONG = {"estimators/regressor.py"}
"""The docstring of the estimator is long."""
STILL_LONG = {"gp/model.py", "gp/stationary.py"}
"""To be shortened."""
STILL_SHARED = {"columns"}
"""Names that two modules still have, of `data` and of `plots`."""


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_no_two_modules_share_a_name() -> None:
    counts = Counter(path.stem for path in MODULES if path.parent != COMMANDS)
    assert {stem for stem, count in counts.items() if count > 1} <= STILL_SHARED


def test_at_most_eleven_modules_stand_beside_the_folders() -> None:
    assert len([path for path in MODULES if path.parent == PACKAGE]) <= 11


def test_no_module_is_longer_than_300_lines() -> None:
    long = {name(path) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES}
    assert long <= LONG | STILL_LONG


def test_the_import_contract_has_no_exemption() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert not [contract["name"] for contract in settings["contracts"] if "ignore_imports" in contract]
    assert "ignore_imports" not in settings
