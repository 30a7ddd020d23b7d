"""Files on disk: atomic writes, state (JSON values and arrays) in safetensors, and limits on what a file may claim.

Nothing in a file is executed or imported, so a file from a stranger can be opened: :class:`Fields` checks each value. A
checksum detects damage that leaves the structure intact. It does not prove who wrote a file.
"""

import hashlib
import json
import math
import os
import reprlib  # what comes from a file may be too long or too deep for repr
import stat
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cvgp.errors import (
    CVGPError,
    CVGPWarning,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)

Array = NDArray[Any]
Shape = tuple[int | None, ...]
State = dict[str, Any]  # JSON values, arrays, and dictionaries of these; torch tensors count as arrays
Value = TypeVar("Value")

FLOATS = ("float64", "float32")
MAX_INTEGER = 2**53  # above this a count is not exactly a floating-point number
MAX_TEXT = 1000
MAX_NESTED = 500_000  # lists and objects in the JSON; each takes two bytes in a file and 250 in memory
SQUARABLE = (1e-150, 1e150)  # magnitudes whose squares neither overflow nor vanish
TINY = float(np.finfo(np.float64).tiny)
METADATA_KEY, CHECKSUM = "cvgp", "sha256"  # the names of the JSON text in the header and of the array with the checksum


def checked_path(path: object) -> Path:
    """The path, if a file system can have it."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InvalidTypeError(f"A path must be text or a pathlib.Path; got {type(path).__name__}.")
    try:
        if b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError:
        pass
    raise InvalidInputError(f"{os.fspath(path)!r} is not a path: it has a character that file names cannot have.")


def check_readable(path: Path) -> None:
    """Raise unless there is a regular file; links are followed, since folders of data are often made of links."""
    mode = _mode(path, follow=True)
    if mode is None:
        raise MissingFileError(f"There is no file {path}. Check the path.")
    if not stat.S_ISREG(mode):
        raise FileAccessError(f"{path} is not a regular file but a folder, pipe or device. Give the file itself.")


def is_own_file(path: Path) -> bool:
    """Whether there is a file that cvgp may overwrite; raise for a link or anything else that is not a regular file."""
    mode = _mode(path, follow=False)
    if mode is not None and not stat.S_ISREG(mode):
        raise FileAccessError(
            f"{path} is a {'symbolic link' if stat.S_ISLNK(mode) else 'folder, pipe or device'}, not a regular file, "
            "and cvgp does not write to it. Choose another name (of a link, the file that it points to), or remove it."
        )
    return mode is not None


def _mode(path: Path, *, follow: bool) -> int | None:
    with access_errors(f"access {path}"), suppress(FileNotFoundError, NotADirectoryError):
        return path.stat(follow_symlinks=follow).st_mode
    return None


@contextmanager
def access_errors(task: str) -> Iterator[None]:
    """Turn an error of the system into a `FileAccessError` that names the task."""
    try:
        yield
    except CVGPError:
        raise
    except OSError as error:
        raise FileAccessError(
            f"Could not {task} ({error.strerror or error}); check its name, the free space and the permissions of its "
            "folder, or choose another place."
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder and its parents, unless they exist."""
    with access_errors(f"make the folder {path}"):
        checked_path(path).mkdir(parents=True, exist_ok=True)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which replaces it, permissions kept, when the block ends without an error.

    Otherwise the old file stays; only a killed process leaves `.cvgp-RANDOM.tmp` behind.
    """
    given = checked_path(path)
    with access_errors(f"write {given}"):
        target = Path(os.path.realpath(given.parent)) / given.name  # the folder may be a link, the file may not
        if not target.parent.is_dir():
            raise MissingFileError(f"Cannot write {target}, since its folder does not exist; create the folder first.")
        is_own_file(target)
        temporary = target.with_name(f".cvgp-{token_hex(8)}.tmp")
        # Unlike tempfile's, this file has the permissions that the user's umask asks for.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            yield temporary
            if is_own_file(target):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    with suppress(OSError):  # so that the new name survives a power cut; some systems cannot sync folders
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to one safetensors file, completely or not at all."""
    content = state_bytes(*split_state(state))
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def read_state(path: str | os.PathLike[str]) -> State:
    """The state that :func:`write_state` wrote; anything else is a :class:`~cvgp.errors.FileFormatError`."""
    from safetensors import SafetensorError, safe_open

    path = checked_path(path)
    check_readable(path)
    try:
        with access_errors(f"read {path}"):
            found = path.stat()
            if getattr(found, "st_blocks", math.inf) * 512 < found.st_size // 100:
                raise FileFormatError(f"{path} consists of holes, so cvgp did not write it.")
            with safe_open(path, framework="numpy") as file:
                text = (file.metadata() or {}).get(METADATA_KEY)
                if text is None:
                    raise FileFormatError(f"{path} has no cvgp metadata, so cvgp did not write it.")
                arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a dict
    except CVGPError:
        raise
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, MemoryError, OverflowError) as error:
        raise FileFormatError(
            f"{path} is not a cvgp file, or it is damaged ({error}). Save the model again, or restore a copy."
        ) from error
    stored = arrays.pop(CHECKSUM, np.empty(0))
    if not np.array_equal(stored, _checksum(arrays, text)):
        raise FileFormatError(f"{path} is damaged: its content has changed since it was written. Restore a copy.")
    try:
        return join_state(arrays, text)
    except FileFormatError as error:
        raise FileFormatError(f"The metadata of {path} cannot be read: {error}") from error


def state_bytes(arrays: Mapping[str, Array], text: str) -> bytes:
    """The content of a file with these arrays and this JSON text."""
    from safetensors.numpy import save

    return bytes(save({**arrays, CHECKSUM: _checksum(arrays, text)}, {METADATA_KEY: text}))


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, Array], str]:
    """Arrays, named by their path with dots between, and everything else as JSON text."""
    arrays: dict[str, Array] = {}

    def without_arrays(values: Mapping[str, Any], prefix: str) -> State:
        rest = {}
        for name, value in values.items():
            place = f"{prefix}{name}"
            if isinstance(value, Mapping):
                rest[name] = without_arrays(value, f"{place}.")
            elif hasattr(value, "detach"):
                arrays[place] = value.detach().cpu().numpy()
            elif isinstance(value, np.ndarray):
                arrays[place] = value
            else:
                rest[name] = value
        return rest

    values = without_arrays(state, "")
    try:
        text = json.dumps(values)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTypeError(f"A file can hold JSON values and arrays: {error}.") from error
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}, text


def join_state(arrays: Mapping[str, Array], text: str) -> State:
    """The state of arrays and a JSON text, as :func:`split_state` gives them."""
    if text.count("[") + text.count("{") > MAX_NESTED:
        raise FileFormatError(f"there are more than {MAX_NESTED} lists and objects.")
    try:
        metadata = json.loads(text)
        json.dumps(metadata, ensure_ascii=False).encode()  # raises for half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"it is not JSON ({reprlib.repr(str(error))}).") from error
    state = Fields(metadata, "metadata").values
    for name, array in arrays.items():
        *folders, last = name.split(".")
        place: Any = state
        for folder in folders:
            place = place.setdefault(folder, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict) or last in place:
            raise FileFormatError(f"the array {reprlib.repr(name)} is stored twice.")
        place[last] = array
    return state


def _checksum(arrays: Mapping[str, Array], text: str) -> NDArray[np.uint8]:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


class Fields:
    """The fields of a stored state: each is checked when it is taken, and :meth:`close` raises if any remain."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, dict):
            raise FileFormatError(f"{where} must be a JSON object; got {reprlib.repr(values)}.")
        self.where = where
        self.values: State = dict(values)

    def take(self, name: str) -> Any:
        """A value of any kind."""
        if name not in self.values:
            raise FileFormatError(f"{self.where}.{name} is missing.")
        return self.values.pop(name)

    def text(self, name: str, choices: Collection[str] | None = None) -> str:
        """A string: one of the choices, or a short one."""
        expected = f"text of at most {MAX_TEXT} characters" if choices is None else f"one of {', '.join(choices)}"
        return self._take(name, str, expected, lambda x: len(x) <= MAX_TEXT if choices is None else x in choices)

    def integer(self, name: str, least: int = 0) -> int:
        """A whole number."""
        return self._take(name, int, f"a whole number of at least {least}", lambda x: least <= x <= MAX_INTEGER)

    def number(self, name: str, low: float = -math.inf, high: float = math.inf, *, finite: bool = True) -> float:
        """A floating-point number within limits, finite unless told otherwise."""
        expected = f"a {'finite ' if finite else ''}floating-point number from {low:g} to {high:g}"
        return self._take(name, float, expected, lambda x: not finite or (math.isfinite(x) and low <= x <= high))

    def flag(self, name: str) -> bool:
        """True or false."""
        return self._take(name, bool, "true or false")

    def items(self, name: str) -> list[Any]:
        """A list."""
        return self._take(name, list, "a list")

    def array(
        self,
        name: str,
        *shapes: Shape,
        dtypes: Collection[str] = ("float64",),
        limits: tuple[float, float] = (-math.inf, math.inf),
        finite: bool = True,
    ) -> Array:
        """An array of one of the shapes, in which None is any size of at least one, with values within limits."""
        array = self._take(name, np.ndarray, "an array")
        where = f"{self.where}.{name}"
        if array.dtype.name not in dtypes:
            raise FileFormatError(f"{where} must be an array of {' or '.join(dtypes)}; got {array.dtype}.")
        if shapes and not any(_fits(array.shape, shape) for shape in shapes):
            expected = " or ".join(str(["any" if size is None else size for size in shape]) for shape in shapes)
            raise FileFormatError(f"{where} must be an array of shape {expected}; got {list(array.shape)}.")
        if finite and not np.isfinite(array).all():
            raise FileFormatError(f"{where} has values that are NaN or infinite.")
        if limits != (-math.inf, math.inf) and not ((array >= limits[0]) & (array <= limits[1])).all():
            raise FileFormatError(f"The values of {where} must be from {limits[0]:g} to {limits[1]:g}.")
        return array

    def part(self, name: str, read: Callable[..., Value], *arguments: Any) -> Value:
        """What `read` makes of the fields of a part, all of which it must take."""
        fields = Fields(self.take(name), f"{self.where}.{name}")
        value = read(fields, *arguments)
        fields.close()
        return value

    def optional(self, name: str, take: Callable[..., Value], *arguments: Any, **options: Any) -> Value | None:
        """What one of the methods above takes, or None if that is stored."""
        if self.values.get(name, 0) is None:
            return self.take(name)  # type: ignore[no-any-return]
        return take(name, *arguments, **options)

    def close(self) -> None:
        """Raise if fields remain that nobody took."""
        if self.values:
            raise FileFormatError(f"{self.where} has unknown fields {reprlib.repr(sorted(self.values))}.")

    def _take(
        self, name: str, kind: type[Value], expected: str, fits: Callable[[Value], bool] = lambda _: True
    ) -> Value:
        value = self.take(name)
        # In Python true and false are whole numbers too.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or not fits(value):
            raise FileFormatError(f"{self.where}.{name} must be {expected}; got {reprlib.repr(value)}.")
        return value


def _fits(found: tuple[int, ...], expected: Shape) -> bool:
    return len(found) == len(expected) and all(
        size >= 1 if wanted is None else size == wanted for size, wanted in zip(found, expected, strict=True)
    )


# A small file can claim, or unpack to, more than a machine holds. Tables are checked before they are read.

MOST_COLUMNS, MANY_COLUMNS = 20_000, 5000  # columns of a table that raise, and that warn, if exceeded
MOST_PACKING, MOST_UNPACKED = 100, 16_000_000  # bytes in memory per byte of a file, and of any file
MOST_METADATA = 8_000_000  # bytes of the header of a Parquet file, unless the file is a hundred times as large
TRUST = "If you trust the file, set the environment variable CVGP_TRUST_FILES=1."


def _refuse(reason: str) -> None:
    """Raise unless the user has switched these limits off."""
    if os.environ.get("CVGP_TRUST_FILES", "0") in ("", "0"):
        raise InvalidInputError(f"{reason} {TRUST}")


def check_unpacked(file: object, packed: int, unpacked: int, what: str = "unpacks") -> None:
    """Raise for a file, or a part of one, that stands for far more than its size."""
    if unpacked > max(MOST_UNPACKED, MOST_PACKING * packed):
        _refuse(
            f"{file} has {packed} bytes and {what} to at least {unpacked / 1e6:.0f} MB, more than {MOST_PACKING} "
            "times as much, which no real table does."
        )


def check_stored(file: object, size: int, blocks: int | None) -> None:
    """Raise for a file that consists of holes: the system says how many blocks of 512 bytes it takes on the disk."""
    if blocks is not None:
        check_unpacked(file, 512 * blocks, size, "reads (the rest is holes)")


def check_columns(file: object, count: int) -> None:
    """Raise for more columns than can be looked at in reasonable time, and warn if there are many."""
    if count > MOST_COLUMNS:
        _refuse(f"{file} has {count} columns, and a table may have {MOST_COLUMNS}; leave out those that tell nothing.")
    if count > MANY_COLUMNS:
        warnings.warn(
            f"{file} has {count} columns, and looking at each takes a while; Ctrl-C ends it. Choose those that matter "
            "(--features, --drop) to be faster.",
            CVGPWarning,
            stacklevel=2,
        )


def check_metadata(file: object, size: int, of_file: int) -> None:
    """Raise for a header that takes too much memory."""
    most = max(MOST_METADATA, of_file // 100)
    if size > most:
        _refuse(f"{file} has a header of {size / 1e6:.1f} MB, and it may have {most / 1e6:.1f} MB.")
