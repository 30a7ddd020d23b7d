"""What is left of rows when others predict them."""

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


def test_a_row_of_weight_w_leaves_what_one_of_w_copies_leaves_of_a_coreset_that_cannot_pin_it() -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 4)  # too few points to follow a single row, however often it counts
    times = torch.ones(60, dtype=torch.int64).index_fill_(0, torch.arange(5), 7)
    weighted = source.data._replace(sample_weight=times.double())
    of = torch.repeat_interleave(torch.arange(60), times)
    repeated = source.data.take(of)
    found = residuals_of(model, statistics(model, [weighted]), weighted)
    expected = residuals_of(model, statistics(model, [repeated]), repeated)
    torch.testing.assert_close(found.square[of], expected.square)
    torch.testing.assert_close(found.f_var[of], expected.f_var)


def _all_points(source: MemorySource) -> Coreset:
    return Coreset(source.data.x, source.data.y, torch.ones(source.num_rows))
