"""The table, the model and the runner of the command line's own tests."""

from tests.cli.conftest import model, run, table

__all__ = ["model", "run", "table"]
