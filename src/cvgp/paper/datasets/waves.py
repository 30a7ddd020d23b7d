"""Waves of any size: a smooth function of half of the inputs, with noise."""

import re

import numpy as np

from cvgp.paper.datasets.synthetic import Sample

NUM_WAVES = 64
NAME = re.compile(r"waves-(\d+)x(\d+)")


def waves_size(name: str) -> tuple[int, int] | None:
    """Rows and inputs of ``waves-ROWSxINPUTS``; None where that is not the name."""
    found = NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def waves(num_rows: int, num_dims: int) -> Sample:
    """A sum of random cosines of half of the inputs, with noise: much like a draw from an RBF process."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, num_dims))
    relevant = np.arange(num_dims) < (num_dims + 1) // 2
    y = 0.1 * rng.standard_normal(num_rows)
    for _ in range(NUM_WAVES):  # one wave at a time, so that memory stays flat in their number
        direction = relevant * rng.standard_normal(num_dims) / np.sqrt(relevant.sum())
        y += np.sqrt(2.0 / NUM_WAVES) * np.cos(x @ direction + rng.uniform(0.0, 2.0 * np.pi))
    return Sample(x, y)
