"""Data that are spread over a group."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource, MemorySource, SharedSource, split
from cvgp.errors import InvalidInputError
from tests.parallel.groups import ThreadGroup, run_in_threads

SHARDS = ([0, 7], [7, 7], [7, 10])
"""Where the rows of each process begin and end: an empty part among uneven ones."""


def make_source(num_rows: int = 10, *, weighted: bool = False, noisy: bool = False) -> MemorySource:
    x = torch.arange(2 * num_rows, dtype=torch.float64).reshape(num_rows, 2)
    numbers = torch.arange(1, num_rows + 1, dtype=torch.float64)
    return MemorySource(x, 10.0 * numbers, numbers if weighted else None, 0.1 * numbers if noisy else None)


def shared(group: ThreadGroup, whole: MemorySource) -> SharedSource:
    return SharedSource(MemorySource(*whole.data.take(slice(*SHARDS[group.rank]))), group)


def parted(group: ThreadGroup, whole: MemorySource) -> MemorySource:
    return MemorySource(*whole.data, group=group)


both = pytest.mark.parametrize("spread", [shared, parted])
Spread = Callable[[ThreadGroup, MemorySource], DataSource]


@both
def test_numbers_are_those_of_all_rows(spread: Spread) -> None:
    whole = make_source(weighted=True, noisy=True)

    def facts(group: ThreadGroup) -> tuple[object, ...]:
        source = spread(group, whole)
        return source.num_rows, source.total_weight, source.has_known_noise, round(source.harmonic_noise(0.5), 12)

    expected = (10, 55.0, True, round(whole.harmonic_noise(0.5), 12))
    assert run_in_threads(3, facts) == [expected] * 3


@pytest.mark.parametrize(("spread", "world"), [(shared, 3), (parted, 1), (parted, 3), (parted, 13)])
def test_chunks_of_all_processes_are_all_rows_once(spread: Spread, world: int) -> None:
    whole = make_source()
    parts = run_in_threads(world, lambda group: [b.x for b in spread(group, whole).chunks(4)])
    assert torch.equal(torch.cat([x for part in parts for x in part]), whole.data.x)


@both
def test_more_noise_is_that_of_all_rows(spread: Spread) -> None:
    whole = make_source(noisy=True)
    noisy = run_in_threads(
        3, lambda group: spread(group, whole).with_noise(lambda x: 1.0 + x[:, 0]).harmonic_noise(0.5)
    )
    assert noisy == pytest.approx([whole.with_noise(lambda x: 1.0 + x[:, 0]).harmonic_noise(0.5)] * 3)


def test_split_minibatches_are_those_of_one_process() -> None:
    parts = run_in_threads(3, lambda group: parted(group, make_source(20)).minibatch(5, 8, seed=3))
    expected = make_source(20).minibatch(5, 8, seed=3)
    assert torch.equal(torch.cat([p.x for p in parts]), expected.x)
    assert torch.equal(torch.cat([p.y for p in parts]), expected.y)


@both
@pytest.mark.parametrize("weighted", [False, True])
def test_minibatches_estimate_the_mean_of_all_rows(spread: Spread, weighted: bool) -> None:
    whole = make_source(weighted=weighted)

    def estimate(group: ThreadGroup) -> float:
        source = spread(group, whole)
        share = source.share(4)
        if share == 0.0:
            return 0.0
        return float(np.mean([share * source.minibatch(step, 4, seed=0).y.mean().item() for step in range(3000)]))

    weight = whole.data.sample_weight
    expected = np.average(whole.data.y.numpy(), weights=None if weight is None else weight.numpy())
    assert sum(run_in_threads(3, estimate)) == pytest.approx(expected, rel=0.02)


def fields(batch: Rows[torch.Tensor]) -> list[object]:
    return [None if t is None else t.tolist() for t in batch]


@both
def test_a_sample_of_all_rows_is_everything_everywhere(spread: Spread) -> None:
    whole = make_source(weighted=True, noisy=True)
    samples = run_in_threads(3, lambda group: fields(spread(group, whole).sample(10, np.random.default_rng(0))))
    assert samples == [fields(whole.data)] * 3


def test_a_sample_is_the_same_everywhere_even_if_the_generators_are_not() -> None:
    def draw(group: ThreadGroup) -> list[object]:
        return fields(shared(group, make_source()).sample(4, np.random.default_rng(group.rank)))

    first, *others = run_in_threads(3, draw)
    assert others == [first] * 2
    assert len(set(first[1])) == 4  # type: ignore[call-overload]


def test_samples_take_every_row_equally_often() -> None:
    def draw(group: ThreadGroup) -> list[float]:
        source, rng = shared(group, make_source()), np.random.default_rng(0)
        return [value for _ in range(400) for value in source.sample(4, rng).y.tolist()]

    counts = np.unique(run_in_threads(3, draw)[0], return_counts=True)[1]
    assert len(counts) == 10
    assert counts.min() > 120  # 160 are expected, with a standard deviation of 10
    assert counts.max() < 200


def test_identity_of_shared_rows_changes_with_any_part() -> None:
    whole, other = make_source(), make_source()
    other.data.y[-1] += 1.0
    identities = [run_in_threads(3, lambda g, w=w: shared(g, w).identity()) for w in (whole, make_source(), other)]
    assert identities[0] == identities[1]
    assert identities[0] != identities[2]


def test_splitting_different_rows_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="2 workers of this fit were given different rows"):
        run_in_threads(2, lambda group: split(make_source(10 + group.rank), group))
