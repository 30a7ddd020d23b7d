"""Rows in numbers: kept in memory or in a temporary file, in order and as minibatches."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from cvgp import read_table
from cvgp.data.scaling import Scaling, no_scaling
from cvgp.errors import FileAccessError
from cvgp.tables import stream
from cvgp.tables.stream import Store, StoredSource
from tests.tables.helpers import NUM_ROWS, frame, learned

BATCH = 512


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four blocks a window, so that an epoch is several windows; all of it in a file."""
    monkeypatch.setattr(stream, "WINDOW_BYTES", 4 * stream.BLOCK_ROWS * 3 * 8)
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)


def source(table: pd.DataFrame | None = None, scaling: Scaling | None = None, **options: Any) -> StoredSource:
    found = learned(frame() if table is None else table, on_bad_rows="skip", **options)
    return found.source(scaling or no_scaling(2, 1))


def epoch_rows(data: StoredSource, epoch: int, size: int = BATCH, seed: int = 0) -> list[int]:
    per_epoch = data.num_rows // size
    batches = [data.minibatch(epoch * per_epoch + i, size, seed) for i in range(per_epoch)]
    return torch.cat([batch.x[:, 0] for batch in batches]).long().tolist()


def weighted() -> pd.DataFrame:
    weights = np.random.default_rng(0).uniform(0.0, 4.0, NUM_ROWS)
    return frame().assign(w=np.where(np.arange(NUM_ROWS) % 100, weights, 0.0))


@pytest.mark.parametrize("limit", [0, 10**9], ids=["file", "memory"])
def test_a_store_holds_what_was_appended(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", limit)
    values = np.random.default_rng(0).normal(size=(10_000, 3))
    store = Store(3)
    for start in range(0, 10_000, 777):
        store.append(values[start : start + 777])
    np.testing.assert_array_equal(store.read(0, 10_000), values)
    np.testing.assert_array_equal(store.read(9_990, 20_000), values[9_990:])


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stream.tempfile, "TemporaryFile", refuse)
    with pytest.raises(FileAccessError, match=r"No space left.*TMPDIR"):
        source()


def test_no_file_is_left_behind_and_rows_are_freed_with_their_table(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = read_table(frame(), "y")
    freed = weakref.ref(table.learn().rows.store)
    assert list(tmp_path.iterdir()) == []
    gc.disable()
    try:
        del table
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [1000, 3000, 5000])
def test_chunks_hold_every_row_once_in_order(size: int) -> None:
    chunks = list(source().chunks(size))
    assert torch.cat([chunk.x[:, 0] for chunk in chunks]).tolist() == list(range(NUM_ROWS))
    assert {len(chunk.x) for chunk in chunks[:-1]} == {size}


@pytest.mark.parametrize("epoch", [0, 3])
def test_epoch_covers_every_row_once(epoch: int) -> None:
    assert sorted(epoch_rows(source(), epoch, size=1000)) == list(range(NUM_ROWS))


def test_batch_depends_only_on_seed_and_step() -> None:
    data, fresh = source(), source()
    for step in (0, 1, 200, 33, 34, 77, 78, 3):
        batch = data.minibatch(step, BATCH, 1)
        assert batch.x.equal(source().minibatch(step, BATCH, 1).x)
        assert batch.y.equal(batch.x[:, 0] / 2.0)
    list(data.chunks(2048))
    assert data.minibatch(6, BATCH, 1).x.equal(fresh.minibatch(6, BATCH, 1).x)


def test_epochs_and_seeds_are_shuffled_differently_and_mix_all_rows() -> None:
    data = source()
    orders = [epoch_rows(data, 0), epoch_rows(data, 1), epoch_rows(data, 0, seed=1)]
    assert len({tuple(order) for order in orders}) == 3
    # Without mixing the rows of a batch would be of one block of 4096 neighbours, whose deviation is 1182.
    assert np.median(np.array(orders[0]).reshape(-1, BATCH).std(axis=1)) > 4000


def test_bad_rows_are_in_no_batch_and_no_chunk() -> None:
    bad = [0, 8191, 8192, 15_000, 39_999]
    table = frame()
    table.loc[bad, "b"] = np.inf
    data, good = source(table), sorted(set(range(NUM_ROWS)) - set(bad))
    assert torch.cat([chunk.x[:, 0] for chunk in data.chunks(1000)]).tolist() == good
    assert set(epoch_rows(data, 1, size=5)) == set(good)


def test_precision_is_that_asked_for_of_the_same_rows() -> None:
    data = source()
    single = data.to(torch.float32)
    batch = single.minibatch(7, BATCH, 0)
    assert batch.x.dtype == next(single.chunks(5)).y.dtype == torch.float32
    assert batch.x.double().equal(data.minibatch(7, BATCH, 0).x)


def test_weighted_rows_are_drawn_in_proportion_to_their_weight() -> None:
    table, data = weighted(), source(weighted(), sample_weight="w")
    assert data.total_weight == pytest.approx(table["w"].sum())
    counts = np.bincount(epoch_rows(data, 0, size=100) + epoch_rows(data, 1, size=100), minlength=NUM_ROWS)
    expected = 2.0 * table["w"] * data.num_rows / table["w"].sum()
    # A systematic sample gives each row its share to within one, in every epoch.
    assert np.abs(counts - expected).max() < 2.0
    assert counts[table["w"] == 0.0].max() == 0
    assert data.minibatch(0, BATCH, 0).sample_weight is None
    chunk = next(data.chunks(100))
    assert chunk.sample_weight.tolist() == table["w"][chunk.x[:, 0].long().tolist()].tolist()


def test_held_out_rows_are_nowhere_else_and_take_their_weight_with_them() -> None:
    table, apart = learned(frame()).hold_out(0.1, np.random.default_rng(0))
    held, rest = set(table.features(apart).x[:, 0].astype(int)), table.source(no_scaling(2, 1))
    assert (len(held), rest.num_rows, table.num_rows) == (0.1 * NUM_ROWS, 0.9 * NUM_ROWS, 0.9 * NUM_ROWS)
    assert held.isdisjoint(epoch_rows(rest, 0, size=100))
    assert held.isdisjoint(rest.sample(10**6, np.random.default_rng(0)).x[:, 0].long().tolist())
    assert held.isdisjoint(table.common_sample.x[:, 0].astype(int))
    assert sum(len(chunk.x) for chunk in rest.chunks(2048)) == rest.num_rows
    again, others = table.hold_out(0.1, np.random.default_rng(0))
    assert held.isdisjoint(again.features(others).x[:, 0].astype(int))
    assert table.moments.means[0] == pytest.approx(np.mean(sorted(set(range(NUM_ROWS)) - held)))
    table, apart = learned(weighted(), sample_weight="w").hold_out(0.1, np.random.default_rng(0), copies=True)
    rest, own = table.source(no_scaling(2, 1)), table.features(apart).sample_weight
    assert rest.total_weight + own.sum() == pytest.approx(weighted()["w"].sum())
    assert not set(own) - set(weighted()["w"])  # weights that are no counts are taken as a whole


def test_copies_are_held_out_one_by_one() -> None:
    count = np.random.default_rng(0).integers(0, 5, NUM_ROWS)
    table, apart = learned(frame().assign(w=count), sample_weight="w").hold_out(
        0.1, np.random.default_rng(1), copies=True
    )
    held = table.features(apart)
    for own, given in ((held, 0.1), (table.load(), 0.9)):
        assert own.sample_weight.sum() == pytest.approx(given * count.sum(), rel=0.02)
    total = np.zeros(NUM_ROWS)
    for own in (held, table.load()):
        total[own.x[:, 0].astype(int)] += own.sample_weight
    np.testing.assert_array_equal(total, count)


@pytest.mark.parametrize(("each", "count", "groups"), [(4, 1000, 250), (100, 1000, 40), (400, 1000, 25)])
def test_whole_groups_are_read_from_all_over_the_table(each: int, count: int, groups: int) -> None:
    labels = np.random.default_rng(0).permutation(NUM_ROWS) % (NUM_ROWS // each)
    table = learned(frame().assign(who=[f"P{label}" for label in labels]), groups="who")
    found = table.whole_groups(count, np.random.default_rng(0))
    assert len(np.unique(found.cluster)) == groups
    assert len(found.x) == groups * each
    assert len(np.unique(labels[found.x[:, 0].astype(int)])) == groups


def test_rows_of_groups_count_by_the_design_effect() -> None:
    labels = np.sort(np.random.default_rng(0).integers(0, 500, NUM_ROWS))
    table = learned(frame().assign(who=labels), groups="who")
    data = table.with_correlation(0.3).source(no_scaling(2, 1))
    weight = torch.cat([chunk.sample_weight for chunk in data.chunks(3000)]).numpy()
    np.testing.assert_allclose(weight, 1.0 / (1.0 + 0.3 * (np.bincount(labels)[labels] - 1.0)))
    assert data.total_weight == pytest.approx(weight.sum())
    counts = np.bincount(epoch_rows(data, 0, size=100), minlength=NUM_ROWS)
    assert np.abs(counts - weight * NUM_ROWS / weight.sum()).max() < 1.0 + 1e-9


def test_more_noise_is_in_every_batch_and_in_the_harmonic_mean() -> None:
    plain = source()
    noisy = plain.with_noise(lambda x: 1.0 + x[:, 0]).with_noise(lambda x: x[:, 0])
    for rows in (next(noisy.chunks(10)), noisy.minibatch(3, BATCH, 0), noisy.sample(5, np.random.default_rng(0))):
        assert rows.noise_variance.equal(1.0 + 2.0 * rows.x[:, 0])
    expected = NUM_ROWS / np.sum(1.0 / (1.5 + 2.0 * np.arange(NUM_ROWS)))
    assert noisy.harmonic_noise(0.5) == pytest.approx(expected)
    assert not plain.has_known_noise
    assert plain.identity() != noisy.identity()


def test_identity_is_that_of_the_content() -> None:
    assert source().identity() == source().identity() != source(frame().assign(b=lambda t: t["b"] + 1.0)).identity()
