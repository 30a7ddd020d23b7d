import gzip
import tracemalloc
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from cvgp.data.tables.sniffing import SAMPLE_BYTES, find_encoding, find_separator, first_bytes, sniff
from cvgp.errors import FileFormatError, InvalidInputError


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("café".encode(), "utf-8"),
        ("café".encode("utf-8-sig"), "utf-8"),
        ("café".encode("utf-16"), "utf-16"),
        (b"\xfe\xff" + "café".encode("utf-16-be"), "utf-16"),
        ("café".encode("utf-32"), "utf-32"),
        ("café".encode("latin-1"), "cp1252"),
        ("5 €".encode("cp1252"), "cp1252"),
        (b"caf\xe9 \x81", "latin-1"),
        (b"plain", "utf-8"),
        (b"", "utf-8"),
    ],
)
def test_an_encoding_is_recognised(content: bytes, expected: str) -> None:
    assert find_encoding("a.csv", content, True, None) == expected


def test_a_character_that_the_sample_cuts_is_no_misfit() -> None:
    assert find_encoding("a.csv", "café".encode()[:-1], False, None) == "utf-8"


def test_a_character_that_the_file_cuts_is_a_misfit() -> None:
    assert find_encoding("a.csv", "café".encode()[:-1], True, None) == "cp1252"


@pytest.mark.parametrize("given", ["utf-8", "ascii"])
def test_an_encoding_that_does_not_fit_is_refused_with_line_and_remedy(given: str) -> None:
    with pytest.raises(FileFormatError, match=r"a\.csv is no text in .*line 2 .*0xe9.*--encoding cp1252"):
        find_encoding("a.csv", b"name\ncaf\xe9\n", True, given)


def test_a_mark_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FileFormatError, match="no text in the encoding utf-16"):
        find_encoding("a.csv", b"\xff\xfea\0b", True, None)


def test_zero_bytes_are_no_text() -> None:
    with pytest.raises(ValueError, match="zero bytes"):
        find_encoding("a.csv", b"a\0b", True, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2,5\n", ";"),
        ("a\tb c\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("a;b;c,d\n1;2;3,4\n", ";"),
        ('a,"b;c"\n1,"2;3"\n', ","),
        ('"a;b",c\n1,2\n', ","),
        ("only\n1\n2\n", ","),
        ("only\n1;2\n", ","),
        ("", ","),
        ("a;b\n1;2;3\n4;5\n", ";"),
    ],
)
def test_a_separator_is_recognised(text: str, expected: str) -> None:
    assert find_separator(text, ",") == expected


def test_of_separators_that_do_as_well_the_usual_one_is_taken() -> None:
    assert [find_separator("a,b;c\n1,2;3\n", usual) for usual in ",;"] == [",", ";"]


def test_a_first_line_without_end_is_refused() -> None:
    with pytest.raises(FileFormatError, match=r"first line of a\.csv is longer than 1000 bytes"):
        sniff("a.csv", b"x" * 1000, False, {}, ",")


def test_a_cell_too_long_to_look_at_leaves_the_usual_separator() -> None:
    assert sniff("a.csv", b"a;b\n" + b"x" * 200_000 + b";1\n", True, {}, ",").sep == ","


def test_names_that_are_repeated_are_refused_with_their_places() -> None:
    with pytest.raises(InvalidInputError, match=r"'a', 'b' more than once \(columns 1, 2, 3, 4\)"):
        sniff("a.csv", b"a,b,a,b,c\n1,2,3,4,5\n", True, {}, ",")


def test_a_damaged_file_gives_its_memory_back(tmp_path: Path) -> None:
    file = tmp_path / "damaged.csv.gz"
    whole = gzip.compress(bytes(range(256)) * 100)
    file.write_bytes(whole[:30] + b"\0" * 40 + whole[70:])
    tracemalloc.start()
    try:
        for _ in range(20):
            with pytest.raises(OSError, match="zlib"):
                first_bytes(pafs.LocalFileSystem(), str(file))
        assert tracemalloc.get_traced_memory()[0] < SAMPLE_BYTES  # of twenty reads of as much
    finally:
        tracemalloc.stop()
