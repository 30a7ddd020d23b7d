import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.scaling import moments_of, no_moments

RNG = np.random.default_rng(0)
UNITS = np.array([1.0, 1e200, 1e-200])
VALUES = RNG.normal(size=(200, 3)) * UNITS + [1e6, 0.0, 3e-200]
WEIGHT = RNG.uniform(0.1, 3.0, 200)


@given(cuts=st.lists(st.integers(0, 200), max_size=5), weighted=st.booleans())
def test_parts_add_up_to_the_moments_of_all_rows(cuts: list[int], weighted: bool) -> None:
    weight = WEIGHT if weighted else None
    moments = no_moments(3)
    for rows in np.split(np.arange(200), sorted(cuts)):
        moments = moments.merge(moments_of(VALUES[rows], None if weight is None else weight[rows]))
    mean = np.average(VALUES / UNITS, axis=0, weights=weight)
    variance = np.average((VALUES / UNITS - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(moments.means, mean * UNITS, rtol=1e-12)
    np.testing.assert_allclose(moments.scales, np.sqrt(variance) * UNITS, rtol=1e-9)


@pytest.mark.parametrize("value", [0.0, 7.0, -1e300])
def test_a_constant_column_has_no_scale(value: float) -> None:
    moments = moments_of(np.full((5, 1), value)).merge(moments_of(np.full((3, 1), value)))
    assert (moments.means[0], moments.scales[0]) == (pytest.approx(value), 0.0)


def test_missing_values_do_not_count() -> None:
    values = VALUES[:, :1].copy()
    values[::3] = np.nan
    moments, present = moments_of(values), values[~np.isnan(values)]
    assert moments.weight[0] == len(present)
    assert moments.means[0] == pytest.approx(present.mean())
    assert moments.scales[0] == pytest.approx(present.std())
