"""The exceptions and warnings of cvgp: one tree, so that a caller can catch everything with one name.

Each error is also the built-in that a reader of Python (and scikit-learn's checks) expects in its place.
"""

__all__ = [
    "CVGPError",
    "CVGPWarning",
    "DivergenceError",
    "FactorisationError",
    "FileAccessError",
    "FileFormatError",
    "InvalidInputError",
    "InvalidTypeError",
    "JitterWarning",
    "MissingDependencyError",
    "MissingFileError",
    "WorkerError",
]


class CVGPError(Exception):
    """Base class of every error that cvgp raises on purpose."""


class InvalidInputError(CVGPError, ValueError):
    """A value, shape or name that cannot be used; the message says what was expected and what to do."""


class InvalidTypeError(CVGPError, TypeError):
    """An object of the wrong kind: text where numbers belong, a likelihood that is not Gaussian."""


class FactorisationError(CVGPError, ArithmeticError):
    """A matrix stayed indefinite after the whole jitter ladder, or held values that are not finite."""


class DivergenceError(CVGPError, FloatingPointError):
    """An objective that became NaN or infinite, although the optimiser went back and took shorter steps."""


class FileAccessError(CVGPError, OSError):
    """A file that the system will not read or write: no permission, a full disk, a folder in its place."""


class MissingFileError(FileAccessError, FileNotFoundError):
    """A file or folder that does not exist."""


class FileFormatError(CVGPError, ValueError):
    """A file whose content is damaged, of an unknown format, or not what this version can read."""


class MissingDependencyError(CVGPError, ImportError):
    """An optional package that is not installed; the message has the command that installs it."""


class WorkerError(CVGPError, RuntimeError):
    """One of several processes that work on a fit ended, stopped answering, or holds something else than the others."""


class CVGPWarning(UserWarning):
    """Base class of every warning that cvgp gives."""


class JitterWarning(CVGPWarning):
    """A Cholesky factorisation succeeded only after the diagonal was raised; the message says by how much."""
