"""Text of strangers: what a terminal would obey is shown by its escapes, and nothing else is changed."""

import json
import unicodedata
import warnings

import pytest

from cvgp.errors import CVGPError, CVGPWarning, MissingFileError
from cvgp.printable import printable, printable_json, printable_lines

OBEYED = [chr(i) for i in (*range(0x20), 0x7F, *range(0x80, 0xA0))]
BIDIRECTIONAL = [chr(i) for i in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
SEPARATORS = ["\u2028", "\u2029"]
HALVES = ["\ud800", "\udbff", "\udc80", "\udfff"]
ALL = [*OBEYED, *BIDIRECTIONAL, *SEPARATORS, *HALVES]


@pytest.mark.parametrize("character", ALL, ids=ascii)
def test_a_character_that_acts_is_escaped(character: str) -> None:
    shown = printable(f"a{character}b")
    assert shown.isascii()
    assert shown.isprintable()
    assert shown == f"a{ascii(character)[1:-1]}b"


@pytest.mark.parametrize("text", ["Größe", "日本語", "العمر", "price ($)", "[red]", "a\\b", "👩\u200d🔬", "é", "±"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == printable_lines(text) == printable_json(text) == text


def test_every_control_of_unicode_is_escaped() -> None:
    controls = [chr(i) for i in range(0x110000) if unicodedata.category(chr(i)) in ("Cc", "Cs", "Zl", "Zp")]
    assert [c for c in controls if printable(c) == c] == []


def test_lines_of_a_message_stay() -> None:
    assert printable_lines("a\nb\rc") == "a\nb\\rc"


@pytest.mark.parametrize("character", ALL, ids=ascii)
def test_json_keeps_its_value(character: str) -> None:
    value = {f"a{character}": [character]}
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(shown) == value
    assert not {c for c in ALL if c != "\n"} & set(shown)


@pytest.mark.parametrize("kind", [CVGPError, MissingFileError])
def test_the_text_of_an_error_is_printable(kind: type[CVGPError]) -> None:
    assert str(kind("There is no \x1b[2J.\nCheck it.")) == "There is no \\x1b[2J.\nCheck it."


def test_the_text_of_a_warning_is_printable() -> None:
    with pytest.warns(CVGPWarning) as caught:
        warnings.warn("column \x9b2J", CVGPWarning, stacklevel=1)
    assert str(caught[0].message) == "column \\x9b2J"
