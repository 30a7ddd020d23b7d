"""The public interface: every name exists, has a page under docs/api, and says what it takes and returns."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cvgp

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "cvgp",
    "cvgp.adapters.botorch",
    "cvgp.adapters.gpytorch",
    "cvgp.adapters.optuna",
    "cvgp.adapters.ray",
    "cvgp.coreset",
    "cvgp.errors",
    "cvgp.gp.kernels",
    "cvgp.gp.process",
    "cvgp.metrics",
    "cvgp.parallel.group",
    "cvgp.plots",
    "cvgp.report",
    "cvgp.fitting.monitor",
]
"""Modules with public names, which their `__all__` lists."""
MODULES = {name: list(import_module(name).__all__) for name in PUBLIC}
NAMES = [f"{module}.{name}" for module, names in MODULES.items() for name in names if name != "__version__"]


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def documented() -> Iterator[str]:
    """The names that the pages of the interface show; of a module, all that it exports."""
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
            yield name
            if inspect.ismodule(value := found(name)):
                yield from (f"{name}.{exported}" for exported in value.__all__)


DOCUMENTED = [found(name) for name in documented()]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_on_a_page_of_the_interface(name: str) -> None:
    assert any(found(name) is value for value in DOCUMENTED), f"add ::: {name} to a page in docs/api"


def functions() -> dict[str, Any]:
    """Public functions, and public methods of public classes but of models, whose methods are those of their hosts."""
    values = [(name.rpartition(".")[2], found(name)) for name in NAMES]
    own = {name: value for name, value in values if inspect.isfunction(value)}
    for name, value in values:
        if not inspect.isclass(value) or value is cvgp.CVGP or value.__module__.startswith("cvgp.adapters"):
            continue
        if not issubclass(value, (BaseException, tuple)):
            members = inspect.getmembers(value, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
            own |= {
                f"{name}.{member}": method
                for member, method in members
                if not member.startswith("_") and method.__module__.startswith("cvgp.")
            }
    return own


FUNCTIONS = functions()


@pytest.mark.parametrize("name", [name for name, own in FUNCTIONS.items() if own.__module__[:10] != "cvgp.plots"])
def test_a_docstring_says_what_goes_in_and_comes_out(name: str) -> None:
    """But of plots, which take and return the same: the docstring of their package says it once."""
    function = FUNCTIONS[name]
    signature = inspect.signature(function)
    expected = {"Examples"}
    if set(signature.parameters) - {"self", "cls"}:
        expected.add("Parameters")
    if signature.return_annotation not in (None, "None"):
        expected.add("Returns")
    sections = set(re.findall(r"^(\w+)\n-+$", inspect.getdoc(function) or "", flags=re.MULTILINE))
    assert expected - {"Returns" if section == "Yields" else section for section in sections} == set()


def has_example(name: str) -> bool:
    """Whether a class needs an example: a subclass of an error or of a warning does not."""
    return inspect.isclass(found(name)) and not issubclass(found(name), BaseException)


@pytest.mark.parametrize("name", list(filter(has_example, NAMES)))
def test_a_class_has_an_example_that_can_run(name: str) -> None:
    assert ">>> " in (inspect.getdoc(found(name)) or "")


def test_nothing_private_is_imported_from_scikit_learn() -> None:
    private = re.compile(r"from sklearn\.[\w.]* import .*\b_\w|from sklearn[\w.]*\._")
    modules = (ROOT / "src").rglob("*.py")
    assert [module.name for module in modules if private.search(module.read_text(encoding="utf-8"))] == []
