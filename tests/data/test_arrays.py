import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.source import MemorySource

N = 20
ROWS = torch.arange(N, dtype=torch.float64)
WEIGHT = torch.linspace(0.2, 4.0, N, dtype=torch.float64)


def source(weight: torch.Tensor | None = None, noise: torch.Tensor | None = None) -> MemorySource:
    """Row i holds x = (i, 2 i) and y = -i."""
    return MemorySource(torch.stack([ROWS, 2.0 * ROWS], 1), -ROWS, weight, noise)


def rows_of_epoch(data: MemorySource, epoch: int, size: int, seed: int = 0) -> list[float]:
    per_epoch = N // size
    batches = [data.minibatch(epoch * per_epoch + i, size, seed) for i in range(per_epoch)]
    return torch.cat([batch.x[:, 0] for batch in batches]).tolist()


def test_chunks_keep_weights_and_noise_with_their_rows() -> None:
    for chunk in source(WEIGHT, 10.0 * ROWS).chunks(6):
        assert chunk.sample_weight.equal(WEIGHT[chunk.x[:, 0].long()])
        assert chunk.noise_variance.equal(10.0 * chunk.x[:, 0])


@pytest.mark.parametrize(
    "other",
    [source(), source(2.0 * WEIGHT), source(noise=WEIGHT), source(WEIGHT, WEIGHT), source(WEIGHT).to(torch.float32)],
)
def test_identity_tells_other_data_apart(other: MemorySource) -> None:
    assert other.identity() != source(WEIGHT).identity() == source(WEIGHT.clone()).identity()


def test_harmonic_noise_counts_the_rows_own_noise() -> None:
    expected = N / (1.0 / (0.3 + WEIGHT)).sum().item()
    assert source(noise=WEIGHT).harmonic_noise(0.3) == pytest.approx(expected)


@given(size=st.sampled_from([1, 2, 4, 5, 10, 20]), epoch=st.integers(0, 50), seed=st.integers(0, 2**31))
def test_epoch_covers_every_row_once(size: int, epoch: int, seed: int) -> None:
    assert sorted(rows_of_epoch(source(), epoch, size, seed)) == ROWS.tolist()


def test_batch_depends_only_on_seed_and_step() -> None:
    fresh, used = source(), source()
    for step in (0, 9, 3, 17):
        used.minibatch(step, 5, 1)
    assert used.minibatch(6, 5, 1).x.equal(fresh.minibatch(6, 5, 1).x)


def test_weighted_rows_are_drawn_in_proportion_to_their_weight() -> None:
    data = source(WEIGHT)
    epochs = 400
    counts = torch.zeros(N, dtype=torch.float64)
    for epoch in range(epochs):
        counts += torch.bincount(torch.tensor(rows_of_epoch(data, epoch, 5)).long(), minlength=N)
    # A systematic sample gives each row its share to within one, in every epoch.
    torch.testing.assert_close(counts / epochs, WEIGHT * N / WEIGHT.sum(), rtol=0.0, atol=0.1)
