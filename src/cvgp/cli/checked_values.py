"""Values of flags that click cannot check by itself."""

from typing import Literal

import typer

from cvgp.errors import InvalidInputError
from cvgp.gp.kernel_names import parse_kernel_name


def positive(value: float | None) -> float | None:
    """Refuse numbers that are not above zero, which click's ranges cannot say."""
    if value is not None and not value > 0:
        raise typer.BadParameter(f"{value} is not above 0.")
    return value


def share(value: float) -> float:
    """Refuse numbers that are not above zero and at most one."""
    if not 0.0 < value <= 1.0:
        raise typer.BadParameter(f"{value} is not above 0 and at most 1.")
    return value


def not_zero(value: int | None) -> int | None:
    """Refuse no threads at all."""
    if value == 0:
        raise typer.BadParameter("0 threads cannot fit anything; -1 is all of them.")
    return value


def known_kernel(name: str | None) -> str | None:
    """Refuse a kernel that has no name, before the table is read."""
    if name not in (None, "auto"):
        try:
            parse_kernel_name(name)
        except InvalidInputError as error:
            raise typer.BadParameter(str(error)) from error
    return name


def count_or_auto(option: str, text: str, least: int) -> int | Literal["auto"]:
    """A whole number of at least `least`, or 'auto'."""
    if text == "auto":
        return "auto"
    if not (text.isdecimal() and int(text) >= least):
        raise typer.BadParameter(
            f"{text!r} is neither 'auto' nor a whole number of at least {least}.", param_hint=f"'{option}'"
        )
    return int(text)
