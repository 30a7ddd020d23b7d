"""The code in README.md runs and prints what README.md says, to the few digits that machines agree on."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", README, flags=re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def outputs() -> tuple[str, str]:
    """What the blocks of code print, one after the other in one namespace, and what the README says they print."""
    printed, namespace = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for kind, text in BLOCKS:
            if kind == "python":
                exec(compile(text, "README.md", "exec"), namespace)
    return printed.getvalue(), "".join(text for kind, text in BLOCKS if kind == "text")


def test_the_words_are_those_of_the_output(outputs: tuple[str, str]) -> None:
    printed, promised = outputs
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", promised)


def test_the_numbers_are_those_of_the_output(outputs: tuple[str, str]) -> None:
    printed, promised = ([float(number) for number in NUMBER.findall(text)] for text in outputs)
    assert printed == pytest.approx(promised, rel=0.1, abs=0.03)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_what_is_linked_exists(target: str) -> None:
    assert (ROOT / target).is_file()
