"""The map from the paper to the code is complete, and everything in it exists."""

import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.linalg import inv, slogdet
from typer.main import get_command

from experiments.__main__ import app
from experiments.data import check_name
from experiments.paper import report
from experiments.paper.paper_map import PLACES, TITLES, Place, slug
from experiments.paper.study import STUDIES
from experiments.store import RESULTS
from tests import reference as ref

ROOT = Path(__file__).parents[2]
SECTIONS = """1 2.1 2.2 2.3 2.4 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 5
A.1 A.2 A.3 A.4 B.1 B.2 B.3 C.1 C.2 C.3 C.4 D.1 D.2 D.3"""
COUNTS = {"Equation": 190, "Table": 2, "Figure": 16}
NOT_STUDIES = ("datasets", "report")

each_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.section} {place.place}")


def numbers(kind: str) -> list[int]:
    found = []
    for place in PLACES:
        for first, last in re.findall(rf"{kind}s? (\d+)(?: to (\d+))?", place.place):
            found += range(int(first), int(last or first) + 1)
    return found


@pytest.mark.parametrize("kind", COUNTS)
def test_every_number_of_the_paper_is_there_once_and_in_order(kind: str) -> None:
    assert numbers(kind) == list(range(1, COUNTS[kind] + 1))


def test_every_section_is_there_in_order() -> None:
    assert list(dict.fromkeys(place.section for place in PLACES)) == SECTIONS.split()
    assert {place.section[0] for place in PLACES} == set(TITLES)


def test_every_study_belongs_to_a_place() -> None:
    assert {place.command.split()[0] for place in PLACES if place.command} == {*STUDIES, *NOT_STUDIES}


@each_place
def test_the_code_of_a_place_can_be_imported(place: Place) -> None:
    assert place.code
    for name in place.code:
        pkgutil.resolve_name(name)


@each_place
def test_the_tests_of_a_place_exist(place: Place) -> None:
    assert place.tests
    for test in place.tests:
        file, sentence = test.split(": ")
        assert f"def test_{sentence.replace(' ', '_')}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", sorted({place.command for place in PLACES if place.command}))
def test_a_command_can_be_called(command: str) -> None:
    paper = get_command(app).commands["paper"]  # type: ignore[attr-defined]
    parameters = paper.make_context("paper", command.split()).params
    assert parameters["name"] in (*STUDIES, *NOT_STUDIES)
    for dataset in (parameters["datasets"] or "").split(","):
        assert not dataset or check_name(dataset)


def test_the_headings_are_those_of_the_mathematics() -> None:
    text = (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    assert {place.heading for place in PLACES} - {""} <= set(headings)
    assert len({slug(heading) for heading in headings}) == len(headings)


def test_the_page_is_what_the_command_writes() -> None:
    text = (ROOT / report.MAP).read_text(encoding="utf-8")
    assert text == report.map_page(RESULTS / "paper")


def test_links_to_results_lead_somewhere() -> None:
    text = (ROOT / report.MAP).read_text(encoding="utf-8")
    anchors = {slug(h) for h in re.findall(r"^##+ (.+)$", (ROOT / report.APPENDIX).read_text(encoding="utf-8"), re.M)}
    assert set(re.findall(r"\(paper_tables\.md#([^)]+)\)", text)) <= anchors
    assert all((ROOT / report.MAP).parent.joinpath(file).exists() for file in re.findall(r"\((\.\./[^)#]+)", text))


def test_the_corrected_equations_hold_and_the_printed_ones_do_not() -> None:
    rng, noise = np.random.default_rng(0), 0.3
    X_c, X, y = rng.normal(size=(4, 2)), rng.normal(size=(9, 2)), rng.normal(size=9)
    K, K_cx, K_xx = (ref.rbf(a, b, 1.0, 1.0) for a, b in ((X_c, X_c), (X_c, X), (X, X)))
    Sigma = noise * K @ inv(K_cx @ K_cx.T) @ K
    np.testing.assert_allclose(Sigma @ inv(K) @ K_cx @ y / noise, K @ inv(K_cx @ K_cx.T) @ K_cx @ y)  # 160 and 161

    def equation_63(sign: float) -> np.ndarray:
        return inv(K) @ inv(inv(K) - inv(K + sign * Sigma)) @ inv(K)

    in_equation_62 = inv(K) + inv(K) @ K_cx @ K_cx.T @ inv(K) / noise
    np.testing.assert_allclose(equation_63(1.0), in_equation_62)
    assert not np.allclose(equation_63(-1.0), in_equation_62)

    def equation_173(sign: float) -> float:
        S_inv = inv(K + K_cx @ K_cx.T / noise)
        quadratic = y @ (np.eye(9) + sign * K_cx.T @ S_inv @ K_cx / noise) @ y / noise
        trace = np.trace(K_xx - K_cx.T @ inv(K) @ K_cx) / noise
        return -0.5 * (9 * np.log(2 * np.pi * noise) + quadratic + trace - slogdet(S_inv @ K).logabsdet)

    expected = ref.titsias_bound(K, K_cx, K_xx, y, noise)
    assert equation_173(-1.0) == pytest.approx(expected)
    assert equation_173(1.0) != pytest.approx(expected)
