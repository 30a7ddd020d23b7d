"""The exceptions and warnings of cvgp, text that is safe to print, and optional packages.

Messages contain names of columns and files, which may come from a stranger: in :func:`printable` text, characters that
a terminal would obey, or that change the order of a text, are replaced by their Python escapes.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "CVGPError",
    "CVGPWarning",
    "DivergenceError",
    "FactorizationError",
    "FileAccessError",
    "FileFormatError",
    "InvalidInputError",
    "InvalidTypeError",
    "JitterWarning",
    "MissingDependencyError",
    "MissingFileError",
    "MissingPartError",
    "NotSupportedError",
    "WorkerError",
]

_ACTING = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: what terminals obey
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of the direction of writing
    "\u2028\u2029"  # separators of lines and of paragraphs
    "\ud800-\udfff"  # halves of pairs, such as bytes of a path that are not UTF-8: they cannot be encoded
)
_ANY = re.compile(f"[{_ACTING}]")
_ANY_BUT_NEW_LINES = re.compile(f"(?!\n)[{_ACTING}]")


def printable(text: str) -> str:
    """Escape a name or value, which becomes one line."""
    return _ANY.sub(lambda found: ascii(found.group())[1:-1], text)


def printable_lines(text: str) -> str:
    """Escape a message, and keep its lines."""
    return _ANY_BUT_NEW_LINES.sub(lambda found: ascii(found.group())[1:-1], text)


def printable_json(text: str) -> str:
    """Escape a JSON document, and keep its value."""
    return _ANY_BUT_NEW_LINES.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


class CVGPError(Exception):
    """Base class of every error that cvgp raises on purpose.

    Examples
    --------
    >>> import cvgp
    >>> try:
    ...     cvgp.load("missing.cvgp")
    ... except cvgp.CVGPError as error:
    ...     print(error)
    There is no file missing.cvgp. Check the path.
    """

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class InvalidInputError(CVGPError, ValueError):
    """A value, shape or name that cannot be used; the message says what was expected and what to do."""


class InvalidTypeError(CVGPError, TypeError):
    """An object of the wrong kind: text where numbers belong, a likelihood that is not Gaussian."""


class FactorizationError(CVGPError, ArithmeticError):
    """A matrix stayed indefinite after the whole jitter ladder, or held values that are not finite."""


class DivergenceError(CVGPError, FloatingPointError):
    """An objective became NaN or infinite, and shorter steps from the last good point did not help."""


class FileAccessError(CVGPError, OSError):
    """A file that cannot be read or written: no permission, a full disk, a folder of the same name."""


class MissingFileError(FileAccessError, FileNotFoundError):
    """A file or folder that does not exist."""


class FileFormatError(CVGPError, ValueError):
    """A file that is damaged, of an unknown format, or from a version that this one cannot read."""


class MissingDependencyError(CVGPError, ImportError):
    """An optional package that is not installed; the message has the command that installs it."""


class MissingPartError(CVGPError, ModuleNotFoundError):
    """A model without a part that a call needs, such as its mean or its kernel under the usual name."""


class NotSupportedError(CVGPError, NotImplementedError):
    """Something that a model cannot do, such as conditioning in closed form where the likelihood is not Gaussian."""


class WorkerError(CVGPError, RuntimeError):
    """Another process of the fit ended or stopped answering, or the processes hold different values."""


class CVGPWarning(UserWarning):
    """Base class of every warning that cvgp gives.

    Examples
    --------
    >>> import warnings, cvgp
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", cvgp.CVGPWarning)  # or "error"
    ...     model = cvgp.CVGPRegressor(random_state=0).fit([[1.0], [2.0], [3.0]], [1.0, 1.0, 1.0])
    """

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class JitterWarning(CVGPWarning):
    """A Cholesky factorization succeeded only after the diagonal was raised; the message says by how much."""


EXTRAS = {
    "pandas": "tables",
    "pyarrow": "tables",
    "matplotlib": "plot",
    "jinja2": "plot",
    "openpyxl": "excel",
    "typer": "cli",
    "rich": "cli",
    "botorch": "botorch",
    "ray": "ray",
    "onnx": "onnx",
    "optuna": "optuna",
}


@contextmanager
def optional_packages() -> Iterator[None]:
    """Turn the failed import of a package of :data:`EXTRAS` into an error with the command that installs it."""
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
