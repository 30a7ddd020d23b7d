"""What is left of rows when others predict them."""

import pytest
import torch

from cvgp.coreset import Coreset
from cvgp.data.arrays import MemorySource
from cvgp.objectives.full_batch import statistics
from cvgp.training.residuals import residuals_left_out, residuals_of, residuals_of_new
from tests.training.problems import make_model, make_source


def test_rows_as_points_leave_what_the_exact_gp_leaves() -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 8).with_coreset(_all_points(source))
    expected = residuals_of(model, statistics(model, [source.data]), source.data)
    found = residuals_left_out(model, source.data)
    torch.testing.assert_close(found.square, expected.square, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found.f_var, expected.f_var, rtol=1e-3, atol=1e-6)


def test_new_rows_leave_what_the_exact_gp_of_the_seen_ones_leaves() -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 8).with_coreset(_all_points(source))
    seen, new = source.data.take(slice(40)), source.data.take(slice(40, None))
    expected = residuals_of(model, statistics(model, [seen]), new, are_new=True)
    found = residuals_of_new(model, seen, new)
    torch.testing.assert_close(found.square, expected.square, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found.f_var, expected.f_var, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("size", [4, 60], ids=["a coreset", "all rows"])
def test_a_row_is_left_out_with_all_its_copies(size: int) -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 4) if size == 4 else make_model(source, 4).with_coreset(_all_points(source))
    weighted = source.data._replace(
        sample_weight=torch.ones(60, dtype=torch.float64).index_fill_(0, torch.tensor(7), 50.0)
    )
    others = source.data.take(torch.arange(60) != 7)
    expected = residuals_of(model, statistics(model, [others]), source.data.take(slice(7, 8)), are_new=True)
    found = residuals_of(model, statistics(model, [weighted]), weighted).take(torch.tensor([7]))
    torch.testing.assert_close(found, expected)


def test_weights_below_one_make_rows_count_less_and_weights_beyond_it_do_not_make_them_count_more() -> None:
    source = make_source(4, dims=2)
    weighted = source.data._replace(sample_weight=torch.tensor([0.0, 0.25, 1.0, 9.0], dtype=torch.float64))
    model = make_model(source, 2)
    left = residuals_of(model, statistics(model, [weighted]), weighted)
    torch.testing.assert_close(left.weight, torch.tensor([0.0, 0.25, 1.0, 1.0], dtype=torch.float64))


def _all_points(source: MemorySource) -> Coreset:
    return Coreset(source.data.x, source.data.y, torch.ones(source.num_rows))
