"""Effects of levels by empirical Bayes."""

import numpy as np
import pytest

from cvgp.tables.levels import (
    MANY_ROWS,
    NUM_FOLDS,
    embed_levels,
    fold_effects,
    learn_prior,
    level_sums,
    row_folds,
)


def drawn(
    num_levels: int, num_rows: int, *, effect: float = 1.0, slope: float = 0.0, noise: float = 0.5, seed: int = 0
) -> tuple[np.ndarray, ...]:
    """Levels, folds, residuals and one feature, with the true intercept and slope of each level."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(num_levels, size=num_rows)
    a, b = effect * rng.normal(size=num_levels), slope * rng.normal(size=num_levels)
    z = rng.normal(size=(num_rows, 1))
    r = 3.0 + a[codes] + b[codes] * z[:, 0] + noise * rng.normal(size=num_rows)
    return codes, row_folds(np.arange(num_rows)), r, z, a, b


def sums_of(num_levels: int, num_rows: int, **options: float) -> np.ndarray:
    codes, folds, r, z, *_ = drawn(num_levels, num_rows, **options)
    return level_sums(codes, folds, r, z, None, num_levels)


def test_a_weight_of_two_counts_as_two_rows() -> None:
    codes, folds, r, z, *_ = drawn(5, 40)
    twice = level_sums(*(np.concatenate([part, part]) for part in (codes, folds, r, z)), None, 5)
    np.testing.assert_allclose(level_sums(codes, folds, r, z, np.full(40, 2.0), 5), twice)


@pytest.mark.parametrize(("effect", "noise"), [(1.0, 0.5), (0.3, 1.0), (0.0, 1.0)])
def test_variances_between_and_within_levels_are_found(effect: float, noise: float) -> None:
    prior = learn_prior(sums_of(400, 8000, effect=effect, noise=noise).sum(axis=0))
    assert prior.noise == pytest.approx(noise**2, rel=0.1)
    assert prior.variance[0] == pytest.approx(effect**2, rel=0.2, abs=0.01)
    assert prior.mean[0] == pytest.approx(3.0, abs=0.15)


@pytest.mark.parametrize(("slope", "which"), [(0.0, ()), (0.7, (0,))])
def test_a_slope_is_a_dimension_where_it_differs_among_levels(slope: float, which: tuple[int, ...]) -> None:
    prior = learn_prior(sums_of(100, 4000, slope=slope).sum(axis=0))
    assert prior.which == which
    if which:
        assert prior.variance[1] == pytest.approx(slope**2, rel=0.3)


def test_effects_are_posterior_means_of_a_random_effect() -> None:
    """Against the formula n / (n + noise / variance) (mean of the level - mean)."""
    total = sums_of(50, 400).sum(axis=0)
    prior = learn_prior(total)
    n, mean = total[:, 0], total[:, 1] / total[:, 0]
    found = embed_levels(total, prior)
    share = n / (n + prior.noise / prior.variance[0])
    np.testing.assert_allclose(found.effects[:, 0], share * (mean - prior.mean[0]))
    np.testing.assert_allclose(found.variance[:, 0], 1.0 / (1.0 / prior.variance[0] + n / prior.noise))


def test_the_y_of_a_row_is_in_no_effect_of_its_own_fold_where_its_level_is_rare() -> None:
    codes, folds, r, z, *_ = drawn(100, 600)
    prior = learn_prior(level_sums(codes, folds, r, z, None, 100).sum(axis=0))
    moved = r.copy()
    moved[0] += 100.0
    before, after = (fold_effects(level_sums(codes, folds, v, z, None, 100), prior) for v in (r, moved))
    own, other = (folds[0], codes[0]), ((folds[0] + 1) % NUM_FOLDS, codes[0])
    assert before[own] == pytest.approx(after[own], abs=1e-9)
    assert before[other] != pytest.approx(after[other], abs=1.0)


def test_a_level_of_many_rows_has_one_effect_in_all_folds() -> None:
    sums = sums_of(5, 5 * int(4 * MANY_ROWS))
    effects = fold_effects(sums, learn_prior(sums.sum(axis=0)))
    np.testing.assert_array_equal(effects, np.broadcast_to(effects[0], effects.shape))


def test_rows_without_any_spread_have_no_effects() -> None:
    codes = np.arange(30) % 3
    total = level_sums(codes, row_folds(np.arange(30)), np.full(30, 2.0), np.zeros((30, 0)), None, 3).sum(axis=0)
    np.testing.assert_allclose(embed_levels(total, learn_prior(total)).effects, 0.0, atol=1e-9)
