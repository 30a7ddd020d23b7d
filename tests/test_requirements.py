"""Versions are written once, or a test keeps their copies equal."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> set[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def required(extras: list[str]) -> set[str]:
    found = set(PROJECT["dependencies"])
    for extra in extras:
        found |= {r for r in PROJECT["optional-dependencies"][extra] if not r.startswith("cvgp[")}
    return found


def test_the_minimum_versions_are_the_lower_bounds() -> None:
    bounds = required(["tables", "plot", "cli"])
    assert pins("constraints-minimum.txt") == {bound.replace(">=", "==") for bound in bounds}


@pytest.mark.parametrize("requirement", sorted(required(list(PROJECT["optional-dependencies"]))))
def test_every_requirement_has_a_pinned_version(requirement: str) -> None:
    name = requirement.partition(">=")[0].partition("[")[0]
    names = {pin.partition("==")[0].lower().replace("_", "-") for pin in pins("constraints.txt")}
    assert name.lower() in names
