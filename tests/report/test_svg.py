import numpy as np
import pytest

from cvgp.report.markup import number, text
from cvgp.report.svg import Axis, Chart


def chart(x: Axis, y: Axis) -> Chart:
    return Chart("key", "title", "description", x, y)


def test_values_are_placed_between_the_ends_of_their_axes() -> None:
    drawn = chart(Axis("a", 0.0, 10.0), Axis("b", -1.0, 1.0))
    left, middle, right = drawn.px(np.array([0.0, 5.0, 10.0]))
    assert middle == pytest.approx(0.5 * (left + right))
    low, high = drawn.py(np.array([-1.0, 1.0]))
    assert low > high  # the page counts downwards


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors() -> None:
    drawn = chart(Axis("a", 1.0, 100.0, is_log=True), Axis("b", 0.0, 1.0))
    places = drawn.px(np.array([1.0, 10.0, 100.0]))
    assert places[1] - places[0] == pytest.approx(places[2] - places[1])


@pytest.mark.parametrize("values", [[3.0], [0.0], [1e300, -1e300], [1e-300, 2e-300], [np.nan, 1.0], [np.nan]])
def test_any_values_have_an_axis_with_ticks(values: list[float]) -> None:
    axis = Axis.around("a", np.array(values))
    assert axis.low < axis.high
    assert axis.ticks()


def test_many_dots_are_one_path() -> None:
    drawn = chart(Axis("a", 0.0, 1.0), Axis("b", 0.0, 1.0))
    drawn.dots(np.linspace(0, 1, 50), np.linspace(0, 1, 50), "blue")
    assert drawn.svg().count("class='dots") == 1
    assert drawn.svg().count("h0") == 50


def test_labels_are_text() -> None:
    svg = chart(Axis.of_names("<a>", ["<b>"]), Axis("&", 0.0, 1.0)).svg()
    assert "<a>" not in svg
    assert "<b>" not in svg
    assert "&amp;" in svg


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, "0.5"), (-2.0, "\N{MINUS SIGN}2"), (1e-5, "1e-05"), (123456.0, "1.235e5")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


def test_characters_that_a_page_cannot_hold_are_shown_by_their_escapes() -> None:
    assert text("a\x00\u202e\ud800b'") == r"a\x00\u202e\ud800b&#x27;"
