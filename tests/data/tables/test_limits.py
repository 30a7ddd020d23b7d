import pytest

from cvgp.data.tables.limits import check_fits, memory_left
from cvgp.errors import InvalidInputError


def test_some_memory_is_left() -> None:
    assert 10_000_000 < memory_left() < 2**50


def test_what_fits_is_let_through() -> None:
    check_fits("a.csv", 1000)


def test_what_does_not_fit_is_refused_with_its_size() -> None:
    with pytest.raises(InvalidInputError, match=r"a\.csv holds at least 1000000.0 GB when it is unpacked"):
        check_fits("a.csv", 10**15)
