"""An environment of its own for each peer: made on first use from ``peers/NAME.txt``, then kept."""

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["ROOT", "WORK_FOLDER", "PeerError", "interpreter"]

ROOT = Path(__file__).resolve().parents[2]
WORK_FOLDER = Path(os.environ.get("CVGP_BENCH", ROOT / ".bench")).resolve()
"""What the measurements write besides results; not under version control. Several clones can share one, named by
CVGP_BENCH."""

PINS = Path(__file__).resolve().parent
LINES_OF_PIP = 3
COMPLETE = "# --no-deps"
"""A list that begins so names every package, and is installed without asking them for more."""

_unavailable: dict[str, str] = {}


class PeerError(RuntimeError):
    """A peer that cannot be installed, or that failed at its task."""


def interpreter(name: str) -> Path:
    """The Python that has the packages of ``peers/NAME.txt``: this one, if it does, or that of a virtual environment.

    An installation that failed is not tried again by this process.
    """
    if name in _unavailable:
        raise PeerError(_unavailable[name])
    pins = (PINS / f"{name}.txt").read_text(encoding="utf-8")
    if _are_here(pins):
        return Path(sys.executable)
    folder = WORK_FOLDER / "envs" / name
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    installed = folder / "installed.txt"
    if not (installed.exists() and installed.read_text(encoding="utf-8") == pins):
        try:
            _install(folder, python, PINS / f"{name}.txt", complete=pins.startswith(COMPLETE))
        except PeerError as error:
            _unavailable[name] = str(error)
            raise
        installed.write_text(pins, encoding="utf-8")
    return python


def _are_here(pins: str) -> bool:
    for name, wanted in re.findall(r"^([\w.-]+)==(\S+)", pins, flags=re.MULTILINE):
        try:
            found = version(name).partition("+")[0]  # 2.13.0+cpu is a build of 2.13.0
        except PackageNotFoundError:
            return False
        if found != wanted:
            return False
    return True


def _install(folder: Path, python: Path, pins: Path, *, complete: bool) -> None:
    print(f"installing {pins.name} into {folder}", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(pins)]
    done = subprocess.run([*command, *(["--no-deps"] if complete else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise PeerError(f"{pins.name} cannot be installed: {' '.join(lines[-LINES_OF_PIP:])}")
