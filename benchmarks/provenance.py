"""Where a number comes from: versions, processor, commit, date."""

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import cvgp

__all__ = ["now", "provenance"]

PACKAGES = ("cvgp", "torch", "gpytorch", "scikit-learn", "numpy", "scipy")


def provenance() -> dict[str, str]:
    """What should be known about this run besides its settings."""
    found = {
        "date": now(),
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


def _source() -> str:
    """A fingerprint of the code of cvgp that is imported, committed or not."""
    folder = Path(cvgp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:10]


def _commit() -> str:
    """The commit, with a mark where files differ from it."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    if not commit:
        return "unknown"
    # What a run writes itself is no change to the code that is measured.
    changed = _git("status", "--porcelain", "--", "src", "benchmarks/*.py", "benchmarks/peers/*.py")
    return f"{commit}+changes" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    folder = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
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
