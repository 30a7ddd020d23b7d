"""Points are moved away from rows, and only where they have to be."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp.fitting.monitor import Run
from cvgp.fitting.privacy import FEWEST, NEAR, SAME, apart

rng = np.random.default_rng(5)


def blocks(x: Tensor, size: int = 64) -> Callable[[], Iterable[Tensor]]:
    return lambda: x.split(size)


def is_too_near(points: Tensor, x: Tensor, spread: Tensor) -> Tensor:
    """The rule in the words of the page, with all distances at once."""
    varies = spread > 0
    apart_by = ((points[:, None, varies] - x[None, :, varies]) / spread[varies]).abs().amax(-1).sort(1).values
    return apart_by[:, 0] <= (NEAR * apart_by[:, min(FEWEST, len(x)) - 1]).clamp_min(SAME)


ROWS = {
    "a line": torch.as_tensor(rng.normal(size=(3000, 1))),
    "a plane": torch.as_tensor(rng.normal(size=(300, 2))),
    "integers": torch.as_tensor(rng.integers(0, 4, (500, 2)).astype(np.float64)),
    "one far row": torch.cat([torch.as_tensor(rng.normal(size=(200, 3))), torch.full((1, 3), 50.0)]),
    "fewer rows than are counted": torch.as_tensor(np.unique(rng.integers(0, 2, (40, 2)), axis=0).astype(np.float64)),
}


@pytest.mark.parametrize("x", ROWS.values(), ids=ROWS.keys())
def test_points_that_are_rows_become_points_that_are_not(x: Tensor) -> None:
    spread = torch.as_tensor(x.numpy().std(0))
    points = torch.cat([x[:: max(len(x) // 20, 1)], x[-1:]])
    found = apart(points, spread, blocks(x), Run.alone())
    assert not is_too_near(found, x, spread).any()


def test_points_that_are_far_from_all_rows_stay() -> None:
    x = ROWS["a plane"]
    points = torch.cat([torch.tensor([[20.0, 0.0], [0.0, -30.0]], dtype=torch.float64), x[:1]])
    found = apart(points, torch.ones(2, dtype=torch.float64), blocks(x), Run.alone())
    assert torch.equal(found[:2], points[:2])
    assert not torch.equal(found[2], points[2])


def test_a_move_is_short() -> None:
    x = ROWS["a plane"]
    found = apart(x[:50], torch.ones(2, dtype=torch.float64), blocks(x), Run.alone())
    tenth = torch.cdist(x[:50], x, p=torch.inf).sort(1).values[:, FEWEST - 1]
    assert bool(((found - x[:50]).abs().amax(1) <= tenth).all())


def test_a_constant_column_tells_no_rows_apart() -> None:
    x = torch.cat([ROWS["a plane"], torch.zeros(300, 1, dtype=torch.float64)], 1)
    points = x[:5].clone()
    points[:, 2] = 7.0
    found = apart(points, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64), blocks(x), Run.alone())
    assert not is_too_near(found[:, :2], x[:, :2], torch.ones(2)).any()


def test_the_size_of_blocks_does_not_matter() -> None:
    x = ROWS["integers"]
    found = [apart(x[:20], torch.ones(2, dtype=torch.float64), blocks(x, size), Run.alone()) for size in (3, 500)]
    assert torch.equal(*found)
