"""Where each section, equation, table and figure of the paper is in this repository, and corrections to the paper."""

import re
from collections.abc import Mapping, Sequence
from csv import DictReader
from pathlib import Path
from typing import NamedTuple

from experiments.data import UCI
from experiments.markdown import markdown_table
from experiments.paper.study import STUDIES, find_study


class Place(NamedTuple):
    """A place in the paper, and what belongs to it here: a line of paper_map.csv."""

    section: str
    place: str
    """Equations, a table or a figure by number; otherwise what the section is about, or a point of it."""
    subject: str
    heading: str
    """In docs/mathematics.md."""
    code: tuple[str, ...]
    tests: tuple[str, ...]
    """A file in `tests` and the name of the test in words."""
    command: str
    """What follows `python -m experiments paper`."""
    figure: str
    """The figure of the study, if it has another name."""


class Correction(NamedTuple):
    """A slip in the paper."""

    place: str
    printed: str
    correct: str


_INTRODUCTION = """# From the paper to the code

This page is written by `python -m experiments paper report`. It lists the sections, equations, tables and figures of
the paper (Ketenci, Perotte, Elhadad and Urteaga, 2025), and for each the section (§) of
[the mathematics](../../docs/mathematics.md), the code, the test and the command that belong to it. The numbers follow
from the paper's source: the appendix continues the numbers of the main text.

- *Tests* are in the folder `tests`. Many compare the code with `tests/reference.py`, where the formulas of the paper
  are written out plainly. The name of a test is its sentence: `test_a_weight_of_two_is_the_point_twice`.
- *Commands* follow `python -m experiments paper`. Add `--preset paper` (the authors' protocol) or `--preset fair`, and
  `--figures FOLDER` to draw. The links lead to the results that are stored, by preset.
- The claims of the paper, with a verdict on each, are on [their page](../../docs/paper.md#verdicts)."""

TITLES = {
    "1": "Section 1: introduction",
    "2": "Section 2: background",
    "3": "Section 3: the method",
    "4": "Section 4: experiments",
    "5": "Section 5: conclusion",
    "A": "Appendix A: derivations",
    "B": "Appendix B: setup of the experiments",
    "C": "Appendix C: more experiments",
    "D": "Appendix D: qualitative study",
}
"""By the first character of a section's number."""

HEADER = ("section", "place", "subject", "§", "code", "tests", "command and results")


def _read_places() -> tuple[Place, ...]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row | {n: tuple(filter(None, row[n].split("; "))) for n in ("code", "tests")} for row in DictReader(file)
        ]
    return tuple(Place(**row) for row in rows)


PLACES = _read_places()


def _section_link(heading: str) -> str:
    return f"[§{heading.split()[0].rstrip('.')}](../../docs/mathematics.md#{slug(heading)})"


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


_BEFORE_CORRECTIONS = """## Corrections

A few slips in the paper, with the corrections. None of them affects the algorithm."""

CORRECTIONS = (
    Correction(
        "Section 3.3, Equation 160",
        r"$\mathbf{y}_M = \sigma^{-2} \mathbf{\Sigma}^\star \mathbf{y}$: a matrix of size M times a vector of length N",
        r"$\mathbf{y}_M = \sigma^{-2} \mathbf{\Sigma}^\star \mathbf{K}_{MM}^{-1} \mathbf{K}_{MN} \mathbf{y}$, which is "
        "Equation 161",
    ),
    Correction(
        "Sections 3.2, 3.3, 4.2, 4.3",
        "CVGP and SparseGP have the same optimum",
        "with a diagonal Σ, CVGP's bound is at most SparseGP's, as the text below Equation 174 says. They are equal "
        f"only if Σ* is diagonal ({_section_link('6.1 Sites with a full covariance')}); `optimum` measures by how much",
    ),
    Correction(
        "Tables 1 and 2",
        "SparseGP needs memory of order N M²",
        "N M, as Section 2.3 says: the largest matrix is N x M. One chunk of rows at a time, as in "
        "`cvgp.objectives.TitsiasObjective`, it is M² beside the data and the chunk",
    ),
    Correction(
        "Appendix B.1",
        "skillcraft has 12 features",
        f"the file has {UCI['skillcraft'].inputs}; its {UCI['skillcraft'].rows} rows agree",
    ),
    Correction("Appendix B.1", "wine has 1600 rows", f"the file has {UCI['wine'].rows}"),
    Correction(
        "Equation 63",
        r"$\mathbf{K}_{MM} - \mathbf{\Sigma}$ in two inverses",
        r"$\mathbf{K}_{MM} + \mathbf{\Sigma}$; then the line holds at Σ*. Equation 64 holds for every Σ",
    ),
    Correction(
        "Equation 173",
        r"$\mathbf{I}_M + \sigma^{-2} \mathbf{K}_{NM} \cdots$",
        r"$\mathbf{I}_N - \sigma^{-2} \mathbf{K}_{NM} \cdots$, from which Equation 174 follows",
    ),
)


def page(stored: Mapping[str, Sequence[str]], images: str) -> str:
    """The page, with links to the results of each study: `stored` has its presets, `images` is the folder."""
    parts = [_INTRODUCTION]
    for first, title in TITLES.items():
        rows = [_cells(place, stored, images) for place in PLACES if place.section[0] == first]
        used = [i for i in range(len(HEADER)) if any(row[i] for row in rows)]
        table = markdown_table([HEADER[i] for i in used], [[row[i] for i in used] for row in rows], num_text=len(used))
        parts += [f"## {title}", table]
    parts += [_BEFORE_CORRECTIONS, markdown_table(["place", "printed", "correct"], CORRECTIONS, num_text=3)]
    return "\n\n".join(parts) + "\n"


def _cells(place: Place, stored: Mapping[str, Sequence[str]], images: str) -> list[str]:
    tests = (test.split(": ") for test in place.tests)
    return [
        place.section,
        place.place,
        place.subject,
        _section_link(place.heading) if place.heading else "",
        "<br>".join(f"`{name}`" for name in place.code),
        "<br>".join(f"`{file}`: {sentence}" for file, sentence in tests),
        _results(place, stored, images) if place.command else "",
    ]


def _results(place: Place, stored: Mapping[str, Sequence[str]], images: str) -> str:
    study = place.command.split()[0]
    if study not in STUDIES:
        return f"`{place.command}`"
    if study not in stored:
        return f"`{place.command}`: not run yet"
    table = f"[table](paper_tables.md#{slug(f'{study}: {find_study(study).about}')})"
    drawn = (f"[{preset}]({images}/{place.figure or study}_{preset}.png)" for preset in stored[study])
    return f"`{place.command}`: {table}; figure: {', '.join(drawn)}"
