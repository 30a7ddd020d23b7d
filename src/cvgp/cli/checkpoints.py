"""The folder in which an interrupted fit can go on, as the command line sees it."""

import os
import shlex
import sys
from pathlib import Path

import typer

from cvgp.cli.model_files import check_can_write
from cvgp.files.atomic import make_folder
from cvgp.parallel.launcher import launched


def check_folder(folder: Path | None, resume: bool) -> None:
    """Refuse, before any work, a folder that does not go with what was asked."""
    if folder is None:
        if resume:
            raise typer.BadParameter(
                "there is nothing to go on with unless --checkpoint-dir names the folder of the stored run.",
                param_hint="'--resume'",
            )
        return
    check_stored(folder, resume, stored=_holds_a_run(folder))
    make_folder(folder)
    check_can_write(folder / _file_names()[0])


def check_stored(folder: Path, resume: bool, *, stored: bool) -> None:
    """Refuse to go on without a stored run, or to begin where one is stored."""
    if resume and not stored:
        raise typer.BadParameter(
            f"there is no stored run in {folder}; check --checkpoint-dir, or leave out --resume to start one.",
            param_hint="'--resume'",
        )
    if stored and not resume:
        raise typer.BadParameter(
            f"{folder} holds an earlier run; add --resume to go on with it, or name another folder (or remove this "
            "one) to start afresh.",
            param_hint="'--checkpoint-dir'",
        )


def how_to_go_on(folder: str | os.PathLike[str] | None) -> str:
    """What to tell a user whose fit ended before its model was stored."""
    if folder is None:
        return "Progress was not kept; --checkpoint-dir FOLDER keeps it the next time."
    if not _holds_a_run(folder):
        return f"Nothing was stored in {folder} yet, so start again with the same command."
    arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
    return f"Progress is kept in {folder}. Go on with:\n  {shlex.join([*_program(), *arguments, '--resume'])}"


def _program() -> list[str]:
    """What stands before the arguments, as the user wrote it."""
    launch = launched()
    if launch.world == 1:
        return ["cvgp"]
    machines = [] if launch.world == launch.local_world else ["--nnodes", str(launch.world // launch.local_world)]
    return ["torchrun", *machines, "--nproc-per-node", str(launch.local_world), "-m", "cvgp"]


def _holds_a_run(folder: str | os.PathLike[str]) -> bool:
    # A link that leads nowhere is something too; the fit will refuse it.
    return any(os.path.lexists(Path(folder) / name) for name in _file_names())


def _file_names() -> tuple[str, ...]:
    from cvgp.training.checkpoint import JOURNAL_FILE, START_FILE, STATE_FILE

    return STATE_FILE, JOURNAL_FILE, START_FILE
