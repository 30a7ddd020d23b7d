"""A file that a source distribution carries: ``checkpoint.py PACKAGE==VERSION PATH FILE``. Nothing of it is run."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def extract(requirement: str, path: str, file: Path) -> None:
    """Download the distribution, and copy the file at a path below its top folder."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, requirement], check=True)
        (packed,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(packed) as members:
            found = members.extractfile(f"{packed.name.removesuffix('.tar.gz')}/{path}")
            assert found is not None, f"{requirement} has no file {path}"
            file.write_bytes(found.read())


if __name__ == "__main__":
    extract(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
