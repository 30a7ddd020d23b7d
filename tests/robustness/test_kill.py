"""SIGKILL at random moments of a fit, a save and a prediction: nothing is lost, nothing is half written."""

from pathlib import Path

import pytest

from tests.robustness.kills import kill_fits, kill_predictions, kill_saves

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_fit_killed_at_ten_random_moments_ends_where_an_uninterrupted_one_does(solver: str, tmp_path: Path) -> None:
    assert kill_fits(solver, 10, tmp_path) > 0  # of progress that was stored


def test_a_save_killed_at_twenty_random_moments_leaves_one_whole_model(tmp_path: Path) -> None:
    kill_saves(20, tmp_path)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_predictions_killed_at_twenty_random_moments_are_the_old_ones_or_the_new_ones(
    ending: str, tmp_path: Path
) -> None:
    kill_predictions(ending, 20, tmp_path)
