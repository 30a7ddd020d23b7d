r"""Text from data and paths as a terminal may show it: nothing in it acts, moves the cursor or reverses its order.

A column's name can hold the escape sequences that a terminal obeys, or marks that show a text in another order than it
has. Such characters are shown by their Python escapes instead: the name ``"\x1b[2J"`` clears no screen, it is shown
as ``\x1b[2J``.
"""

import re

_ACTING = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: what terminals obey
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of the direction of writing
    "\u2028\u2029"  # separators of lines and of paragraphs
    "\ud800-\udfff"  # halves of pairs, such as bytes of a path that are no UTF-8: they cannot be encoded
)
_ANY = re.compile(f"[{_ACTING}]")
_ANY_BUT_NEW_LINES = re.compile(f"(?!\n)[{_ACTING}]")


def printable(text: str) -> str:
    r"""One name or value, in one line.

    Examples
    --------
    >>> print(printable("red\x1b[31m\nname"))
    red\x1b[31m\nname
    """
    return _ANY.sub(lambda found: ascii(found.group())[1:-1], text)


def printable_lines(text: str) -> str:
    r"""A message, whose lines stay.

    Examples
    --------
    >>> print(printable_lines("first\nsecond\r"))
    first
    second\r
    """
    return _ANY_BUT_NEW_LINES.sub(lambda found: ascii(found.group())[1:-1], text)


def printable_json(text: str) -> str:
    r"""A JSON document of the same value.

    Examples
    --------
    >>> print(printable_json('{"a\u202eb": 1}'))
    {"a\u202eb": 1}
    """
    return _ANY_BUT_NEW_LINES.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
