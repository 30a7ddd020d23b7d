import numpy as np
import pytest
import torch

from cvgp.data.arrays import MemorySource
from cvgp.optim.adam import AdamState
from cvgp.training.plan import Settings
from cvgp.training.validation import BestByValidation
from tests.training.problems import make_model, make_source


def score(source: MemorySource) -> float:
    model = make_model(make_source())
    return BestByValidation(model, source, Settings(), AdamState(list(model.parameters()), 0.1)).check()


def test_held_out_rows_count_by_their_weights() -> None:
    rows = make_source(30, seed=1).data
    counts = torch.as_tensor(np.random.default_rng(0).integers(1, 5, size=30))
    weighted = MemorySource(rows.x, rows.y, counts.to(torch.float64))
    repeated = MemorySource(rows.x.repeat_interleave(counts, 0), rows.y.repeat_interleave(counts))
    assert score(weighted) == pytest.approx(score(repeated), rel=1e-12)
    assert score(weighted) != pytest.approx(score(MemorySource(rows.x, rows.y)), rel=1e-6)
