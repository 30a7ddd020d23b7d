"""Text of strangers: what a terminal would obey is shown by its escapes, and nothing else is changed."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from cvgp.errors import (
    EXTRAS,
    CVGPError,
    CVGPWarning,
    MissingDependencyError,
    MissingFileError,
    optional_packages,
    printable,
    printable_json,
    printable_lines,
)

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


WITHOUT_EXTRAS = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
FITTED = """
import numpy as np, cvgp
X = np.random.default_rng(0).standard_normal((60, 2))
model = cvgp.CVGPRegressor(8, random_state=0, training=cvgp.TrainingOptions(max_iter=2)).fit(X, X[:, 0])
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_arrays_need_no_extra(tmp_path: Path) -> None:
    path = str(tmp_path / "model.cvgp")
    done = run(
        f"{FITTED}\nmodel.save({path!r})\nloaded = cvgp.load({path!r})\nloaded.predict(X, return_std=True)\n"
        "cvgp.merge([model, cvgp.CVGPRegressor(8).fit(X[1:], X[1:, 0])])\nmodel.prune()\nimport cvgp.plots"
    )
    assert (done.returncode, "Error" in done.stderr) == (0, False)


@pytest.mark.parametrize(
    ("use", "extra"),
    [
        ("model.coreset_.to_frame()", "tables"),
        ("cvgp.CVGPRegressor().fit('table.csv', 'y')", "tables"),
        ("import cvgp.plots; cvgp.plots.plot_training(model)", "plot"),
        ("model.report(X, X[:, 0])", "plot"),
        ("model.to_botorch()", "botorch"),
        ("import cvgp.adapters.botorch", "botorch"),
    ],
)
@pytest.mark.slow
def test_what_needs_an_extra_says_how_to_get_it(use: str, extra: str) -> None:
    last_line = run(f"{FITTED}\n{use}").stderr.splitlines()[-1]
    assert last_line.startswith("cvgp.errors.MissingDependencyError")
    assert last_line.endswith(f"pip install 'cvgp[{extra}]'")


def test_the_command_says_in_one_line_how_to_get_it() -> None:
    done = run("from cvgp.__main__ import main\nmain()")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.partition("install it with: ")[2]) == (1, "pip install 'cvgp[cli]'")


def test_another_missing_module_is_no_matter_of_extras() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, optional_packages():
        import no_such_module  # noqa: F401
    assert not isinstance(caught.value, MissingDependencyError)
