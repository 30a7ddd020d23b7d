"""Options that take several values: `--sizes 50 100 200`, as well as `--sizes 50,100,200`."""

from collections.abc import Callable, Sequence
from typing import Any

from typer.core import TyperCommand


def join_values(args: Sequence[str], options: Sequence[str], is_value: Callable[[str], bool]) -> list[str]:
    """`--sizes 50 100` as `--sizes 50,100`, up to the next word that is an option or no value."""
    joined: list[str] = []
    collecting = False
    for word in args:
        is_option = word.startswith("-")
        if collecting and not is_option and is_value(word) and joined[-1] not in options:
            joined[-1] = f"{joined[-1]},{word}"
            continue
        collecting = word in options or (collecting and not is_option and joined[-1] in options)
        joined.append(word)
    return joined


def several_values(*options: str, is_value: Callable[[str], bool] = lambda word: True) -> type[TyperCommand]:
    """A kind of command whose options of these names take several values."""

    class SeveralValues(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Join the values of each option into one word before click sees them."""
            return super().parse_args(ctx, join_values(args, options, is_value))

    return SeveralValues


def is_number(word: str) -> bool:
    """Whether a word is a number, or several with commas between them."""
    try:
        [float(part) for part in word.split(",")]
    except ValueError:
        return False
    return True
