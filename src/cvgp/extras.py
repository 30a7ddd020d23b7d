"""Packages that the base install leaves out: what each belongs to, and what to say where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from cvgp.errors import MissingDependencyError

EXTRAS = {
    "pandas": "tables",
    "pyarrow": "tables",
    "matplotlib": "plot",
    "openpyxl": "excel",
    "duckdb": "duckdb",
    "typer": "cli",
    "rich": "cli",
    "botorch": "botorch",
}
"""The extra of ``pip install 'cvgp[...]'`` by the name of the package that it brings."""


@contextmanager
def optional_packages() -> Iterator[None]:
    """Turn an import that fails for want of an optional package into one line with the command that installs it.

    Raises
    ------
    MissingDependencyError
        A package of :data:`EXTRAS` is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingDependencyError(
            f"This needs the package {package}, which is not installed; install it with: "
            f"pip install 'cvgp[{EXTRAS[package]}]'"
        ) from error
