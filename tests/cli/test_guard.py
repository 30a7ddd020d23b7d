import errno

import pytest
import typer
from typer.testing import CliRunner, Result

from cvgp.cli.console import GuardedGroup, Terminated
from cvgp.errors import FileFormatError, InvalidInputError, MissingFileError


def run_command_that_raises(error: BaseException) -> Result:
    app = typer.Typer(cls=GuardedGroup)

    @app.callback()
    def nothing() -> None: ...

    @app.command()
    def work() -> None:
        raise error

    return CliRunner().invoke(app, ["work"])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InvalidInputError("Bad table."), 1, "Error: Bad table.\n"),
        (FileFormatError("Bad file."), 1, "Error: Bad file.\n"),
        (MissingFileError("No file."), 2, "Error: No file.\n"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (KeyboardInterrupt("Go on."), 130, "Interrupted. Go on.\n"),
        (Terminated("Go on."), 143, "Terminated. Go on.\n"),
    ],
)
def test_an_error_is_its_message_and_a_code(error: BaseException, code: int, message: str) -> None:
    result = run_command_that_raises(error)
    assert (result.exit_code, result.stderr, result.stdout) == (code, message, "")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free space"),
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
            "not enough memory",
        ),
    ],
)
def test_what_the_system_refuses_comes_with_advice(error: Exception, advice: str) -> None:
    result = run_command_that_raises(error)
    assert (result.exit_code, advice in result.stderr) == (1, True)


def test_a_programming_error_keeps_its_traceback() -> None:
    error = RuntimeError("a bug")
    assert run_command_that_raises(error).exception is error
