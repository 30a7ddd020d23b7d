"""The exceptions and warnings of cvgp: one tree, so that a caller can catch everything with one name.

Each error is also the built-in exception that readers of Python and scikit-learn's checks expect. Messages name columns
and files, which may be a stranger's: what a terminal would obey is shown by its escapes (:mod:`cvgp.printable`).
"""

from cvgp.printable import printable_lines

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
        """The message, as a terminal may show it."""
        return printable_lines(super().__str__())


class InvalidInputError(CVGPError, ValueError):
    """A value, shape or name that cannot be used; the message says what was expected and what to do.

    Examples
    --------
    >>> import cvgp
    >>> cvgp.Coreset(X=[[0.0]], y=[1.0, 2.0], beta=[1.0])
    Traceback (most recent call last):
    ...
    cvgp.errors.InvalidInputError: ...
    """


class InvalidTypeError(CVGPError, TypeError):
    """An object of the wrong kind: text where numbers belong, a likelihood that is not Gaussian.

    Examples
    --------
    >>> import cvgp
    >>> cvgp.load(3)
    Traceback (most recent call last):
    ...
    cvgp.errors.InvalidTypeError: A path must be text or a pathlib.Path; got int.
    """


class SeveralArraysError(CVGPError, AttributeError):
    """Several predicted arrays where one was expected, as in scikit-learn's `TransformedTargetRegressor`.

    Examples
    --------
    >>> from cvgp.errors import SeveralArraysError
    >>> issubclass(SeveralArraysError, AttributeError)
    True
    """


class FactorisationError(CVGPError, ArithmeticError):
    """A matrix stayed indefinite after the whole jitter ladder, or held values that are not finite.

    Examples
    --------
    >>> from cvgp.errors import FactorisationError
    >>> issubclass(FactorisationError, ArithmeticError)
    True
    """


class DivergenceError(CVGPError, FloatingPointError):
    """An objective became NaN or infinite, and shorter steps from the last good point did not help.

    Examples
    --------
    >>> from cvgp.errors import DivergenceError
    >>> issubclass(DivergenceError, FloatingPointError)
    True
    """


class FileAccessError(CVGPError, OSError):
    """A file that cannot be read or written: no permission, a full disk, a folder of the same name.

    Examples
    --------
    >>> import cvgp
    >>> cvgp.load(".")
    Traceback (most recent call last):
    ...
    cvgp.errors.FileAccessError: . is a folder, and not a regular file. Give the file itself.
    """


class MissingFileError(FileAccessError, FileNotFoundError):
    """A file or folder that does not exist.

    Examples
    --------
    >>> import cvgp
    >>> cvgp.load("missing.cvgp")
    Traceback (most recent call last):
    ...
    cvgp.errors.MissingFileError: There is no file missing.cvgp. Check the path.
    """


class FileFormatError(CVGPError, ValueError):
    """A file that is damaged, of an unknown format, or from a version that this one cannot read.

    Examples
    --------
    >>> import cvgp, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "model.cvgp"
    ...     _ = file.write_text("no model")
    ...     cvgp.load(file)
    Traceback (most recent call last):
    ...
    cvgp.errors.FileFormatError: ... is not a cvgp file, or it is damaged ...
    """


class MissingDependencyError(CVGPError, ImportError):
    """An optional package that is not installed; the message has the command that installs it.

    Examples
    --------
    >>> from cvgp.errors import MissingDependencyError
    >>> issubclass(MissingDependencyError, ImportError)
    True
    """


class MissingPartError(CVGPError, ModuleNotFoundError):
    """A model without a part that a call needs, such as its mean or its kernel under the usual name.

    Examples
    --------
    >>> from cvgp.errors import MissingPartError
    >>> issubclass(MissingPartError, ModuleNotFoundError)
    True
    """


class NotSupportedError(CVGPError, NotImplementedError):
    """Something that a model cannot do, such as conditioning in closed form where the likelihood is not Gaussian.

    Examples
    --------
    >>> from cvgp.errors import NotSupportedError
    >>> issubclass(NotSupportedError, NotImplementedError)
    True
    """


class WorkerError(CVGPError, RuntimeError):
    """Another process of the fit ended or stopped answering, or the processes hold different values.

    Examples
    --------
    >>> from cvgp.errors import WorkerError
    >>> issubclass(WorkerError, RuntimeError)
    True
    """


class CVGPWarning(UserWarning):
    """Base class of every warning that cvgp gives.

    Examples
    --------
    >>> import warnings, cvgp
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", cvgp.CVGPWarning)  # or "error"
    ...     model = cvgp.CVGPRegressor(random_state=0).fit([[1.0], [1.0], [1.0]], [1.0, 2.0, 3.0])
    """

    def __str__(self) -> str:
        """The message, as a terminal may show it."""
        return printable_lines(super().__str__())


class JitterWarning(CVGPWarning):
    """A Cholesky factorisation succeeded only after the diagonal was raised; the message says by how much.

    Examples
    --------
    >>> from cvgp.errors import CVGPWarning, JitterWarning
    >>> issubclass(JitterWarning, CVGPWarning)
    True
    """
