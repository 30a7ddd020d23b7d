"""The code in README.md runs and prints what README.md says: it rounds to the digits that all machines agree on."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def outputs() -> tuple[str, str]:
    """What the blocks of code print, one after the other in one namespace, and what the README says they print."""
    printed, namespace = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for kind, text in BLOCKS:
            if kind == "python":
                exec(compile(text, "README.md", "exec"), namespace)
    return printed.getvalue(), "".join(text for kind, text in BLOCKS if kind == "text")


def test_the_output_is_what_the_page_says(outputs: tuple[str, str]) -> None:
    printed, promised = outputs
    assert printed == promised


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_what_is_linked_exists(target: str) -> None:
    assert (ROOT / target).is_file()
