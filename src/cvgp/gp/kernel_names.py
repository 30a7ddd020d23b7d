"""Names of kernels: read from text such as ``rbf+matern32*periodic``, and written again from a kernel."""

from typing import Any

from cvgp.errors import InvalidInputError

KERNEL_NAMES = ("rbf", "matern12", "matern32", "matern52", "rq", "linear", "periodic")
"""Names that `kernel` may have, in `cvgp.CVGPRegressor`, `cvgp.CVGP` and `make_kernel`; ``+`` and ``*`` join them."""


def parse_kernel_name(text: str) -> list[list[str]]:
    """The names in a sum of products: terms, each a list of factors.

    Parameters
    ----------
    text : str
        One of `KERNEL_NAMES`, or several joined by ``+`` and ``*``, of which ``*`` binds more closely.

    Raises
    ------
    InvalidInputError
        If a name is not known, or missing beside a ``+`` or ``*``.

    Examples
    --------
    >>> from cvgp.gp.kernel_names import parse_kernel_name
    >>> parse_kernel_name("rbf + matern32*periodic")
    [['rbf'], ['matern32', 'periodic']]
    """
    terms = [[name.strip() for name in term.split("*")] for term in text.split("+")]
    unknown = [name for term in terms for name in term if name not in KERNEL_NAMES]
    if unknown:
        where = "" if unknown[0] == text else f" in {text!r}"
        raise InvalidInputError(
            f"Unknown kernel {unknown[0]!r}{where}. Choose one of {', '.join(KERNEL_NAMES)}, join several by + and *, "
            "as in 'rbf+linear', or pass a GPyTorch kernel."
        )
    return terms


def name_of_kernel(kernel: Any) -> str:
    """The text from which the library makes such a kernel; for one that it cannot make, names of GPyTorch's classes."""
    kind = type(kernel).__name__.removesuffix("Kernel")
    if kind == "Scale":
        return name_of_kernel(kernel.base_kernel)
    if kind == "Additive":
        return "+".join(map(name_of_kernel, kernel.kernels))
    if kind == "Product":
        names = map(name_of_kernel, kernel.kernels)
        return "*".join(f"({name})" if "+" in name else name for name in names)
    return f"matern{2 * kernel.nu:.0f}2" if kind == "Matern" else kind.lower()
