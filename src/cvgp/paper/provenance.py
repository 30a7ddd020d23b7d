"""Where a number comes from: versions, processor, commit, date."""

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

import cvgp

PACKAGES = ("torch", "gpytorch", "scikit-learn", "numpy", "scipy")


@cache
def provenance() -> dict[str, str]:
    """What should be known about a run besides its settings and its date."""
    found = {
        "cvgp": cvgp.__version__,
        "commit": _commit(),
        "source": _source(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
    }
    return found | {name: version(name) for name in PACKAGES}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _folder() -> Path:
    return Path(cvgp.__file__).resolve().parent


def _source() -> str:
    """A fingerprint of the code of cvgp that is imported, committed or not."""
    digest = hashlib.sha256()
    for path in sorted(_folder().rglob("*.py")):
        digest.update(path.relative_to(_folder()).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:10]


def _commit() -> str:
    """The commit of the clone that cvgp is imported from, with a mark where its code differs."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    if not commit or not _git("ls-files", "--", "."):  # an installed copy inside some other repository
        return "unknown"
    return f"{commit}+changes" if _git("status", "--porcelain", "--", ".") else commit


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, cwd=_folder(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a clone: the results are still results
        return ""
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
