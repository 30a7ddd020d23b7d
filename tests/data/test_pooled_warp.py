"""Scalings of parts with different warps, as one."""

import numpy as np

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, learn_warped_scaling, pool_warped_scalings
from cvgp.data.transforms import NO_WARP, InputWarp, mixed_path, normal_scores, warp_of

RNG = np.random.default_rng(0)
X = np.exp(RNG.normal(size=(600, 2)))
Y = RNG.normal(size=(600, 1))
ROWS = np.array([300.0, 300.0])


def warp(x: Array, share: float) -> InputWarp:
    scores = normal_scores(x[:, 0])
    assert scores is not None
    return warp_of("mixed", np.array([share, 0.0]), {0: mixed_path(scores, share, x[:, 0].mean(), x[:, 0].std())})


def scaling(part: slice, share: float | None) -> Scaling:
    chosen = NO_WARP if share is None else warp(X[part], share)
    return learn_warped_scaling(chosen, Rows(X[part], Y[part]))


def test_the_pooled_warp_is_the_mean_of_the_scaled_inputs() -> None:
    parts = [scaling(slice(300), 0.9), scaling(slice(300, None), None)]
    pooled, alike = pool_warped_scalings(parts, ROWS)
    x = np.quantile(X, np.linspace(0.02, 0.98, 30), axis=0)
    expected = 0.5 * (parts[0].scale_x(x) + parts[1].scale_x(x))[:, 0]
    np.testing.assert_allclose(pooled.scale_x(x)[:, 0], expected, atol=1e-9)
    assert [own.x_scale[0] for own in alike] == [1.0, 1.0]
    np.testing.assert_allclose(pooled.unscale_x(pooled.scale_x(x)), x, rtol=1e-9)


def test_a_column_that_is_constant_in_a_part_takes_the_warp_of_the_others() -> None:
    constant = Scaling(np.array([2.0, 0.0]), np.array([0.0, 1.0]), np.zeros(1), np.ones(1))
    pooled, alike = pool_warped_scalings([scaling(slice(300), 0.9), constant], ROWS)
    assert alike[1].x_scale[0] == 0.0
    assert pooled.varies.all()
    x = X[:20]
    np.testing.assert_allclose(pooled.unscale_x(pooled.scale_x(x)), x, rtol=1e-9)
