"""The exceptions and warnings of cvgp: one tree, so that a caller can catch everything with one name.

Each error is also the built-in exception that readers of Python and scikit-learn's checks expect.
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
    "MissingPartError",
    "NotSupportedError",
    "SeveralArraysError",
    "WorkerError",
]


class CVGPError(Exception):
    """Base class of every error that cvgp raises on purpose."""


class InvalidInputError(CVGPError, ValueError):
    """A value, shape or name that cannot be used; the message says what was expected and what to do."""


class InvalidTypeError(CVGPError, TypeError):
    """An object of the wrong kind: text where numbers belong, a likelihood that is not Gaussian."""


class SeveralArraysError(CVGPError, AttributeError):
    """Several predicted arrays where one was expected, as in scikit-learn's `TransformedTargetRegressor`."""


class FactorisationError(CVGPError, ArithmeticError):
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
    """Base class of every warning that cvgp gives."""


class JitterWarning(CVGPWarning):
    """A Cholesky factorisation succeeded only after the diagonal was raised; the message says by how much."""
