"""The page about faults names the test of each line, and each of these tests is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def named_tests(text: str) -> list[tuple[str, str]]:
    """Files and names of tests; `::name` is in the file that was named last."""
    found, file = [], ""
    for given, name in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", text):
        file = given or file
        found.append((file, name))
    return [pair for pair in found if pair[0]]


@pytest.mark.parametrize(("file", "name"), sorted(set(named_tests(PAGE))))
def test_a_test_that_the_page_names_exists(file: str, name: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    assert not name or f"def {name}(" in source


def test_every_line_of_a_table_of_attacks_names_a_test() -> None:
    table = PAGE.split("| attack |")[1].split("\n\n")[0]
    rows = [row for row in table.splitlines()[2:] if row.startswith("|")]
    assert rows
    assert [row for row in rows if not named_tests(row)] == []
