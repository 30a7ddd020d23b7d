import os
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest
import torch

from cvgp.data.scaling import Scaling, no_scaling
from cvgp.data.tables import shuffle as windows
from cvgp.data.tables.first_pass import TableColumns, survey_table
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.streaming import ArrowSource
from cvgp.errors import FileFormatError, MissingFileError
from tests.data.tables.tables import NUM_ROWS, damage, frame, write_parts

BATCH = 512
COLUMNS = TableColumns(("y",))


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks a window, three parts open: an epoch is several windows."""
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2 * 8192 * 3 * 8)
    monkeypatch.setattr(windows, "MOST_OPEN", 3)


@pytest.fixture
def folder(tmp_path: Path, small_windows: None) -> Path:
    write_parts(tmp_path, frame())
    return tmp_path


def source(folder: Path | ds.Dataset, columns: TableColumns = COLUMNS, scaling: Scaling | None = None) -> ArrowSource:
    dataset = folder if isinstance(folder, ds.Dataset) else open_dataset(folder)
    survey = survey_table(dataset, columns, on_bad_rows="skip")
    return ArrowSource(survey, scaling or no_scaling(len(survey.encoder.feature_names), 1))


def epoch_rows(data: ArrowSource, epoch: int, size: int = BATCH, seed: int = 0) -> list[int]:
    per_epoch = data.num_rows // size
    batches = [data.minibatch(epoch * per_epoch + i, size, seed) for i in range(per_epoch)]
    return torch.cat([batch.x[:, 0] for batch in batches]).long().tolist()


def weighted(folder: Path) -> pd.DataFrame:
    table = frame()
    table["w"] = np.random.default_rng(0).uniform(0.0, 4.0, NUM_ROWS)
    table.loc[::100, "w"] = 0.0
    write_parts(folder, table)
    return table


def test_chunks_hold_every_row_once_in_order(folder: Path) -> None:
    assert torch.cat([chunk.x[:, 0] for chunk in source(folder).chunks(1000)]).tolist() == list(range(NUM_ROWS))


def test_chunks_are_of_the_size_asked_for(folder: Path) -> None:
    sizes = [len(chunk.x) for chunk in source(folder).chunks(3000)]
    assert sizes == [3000] * 13 + [1000]


def test_chunks_are_scaled(folder: Path) -> None:
    scaling = Scaling(np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([3.0]), np.array([5.0]))
    chunk = next(source(folder, scaling=scaling).chunks(10))
    row = torch.arange(10, dtype=torch.float64)
    torch.testing.assert_close(chunk.x, torch.stack([(row - 1.0) / 2.0, (-2.0 * row - 2.0) / 4.0], 1))
    torch.testing.assert_close(chunk.y, (row / 2.0 - 3.0) / 5.0)


@pytest.mark.parametrize("epoch", [0, 3])
def test_epoch_covers_every_row_once(folder: Path, epoch: int) -> None:
    rows = epoch_rows(source(folder), epoch, size=1000)
    assert sorted(rows) == list(range(NUM_ROWS))


def test_remainder_that_fills_no_batch_sits_the_epoch_out(folder: Path) -> None:
    data = source(folder)
    rows = epoch_rows(data, 0, size=9000)
    assert len(set(rows)) == len(rows) == 36_000
    assert sorted(epoch_rows(data, 1, size=1000)) == list(range(NUM_ROWS))


def test_batches_keep_inputs_and_outputs_together(folder: Path) -> None:
    batch = source(folder).minibatch(3, BATCH, 0)
    assert batch.y.equal(batch.x[:, 0] / 2.0)


def test_batch_depends_only_on_seed_and_step(folder: Path) -> None:
    fresh, used = source(folder), source(folder)
    for step in (0, 1, 200, 33, 34, 77, 78, 3):
        assert used.minibatch(step, BATCH, 1).x.equal(source(folder).minibatch(step, BATCH, 1).x)
    assert used.minibatch(6, BATCH, 1).x.equal(fresh.minibatch(6, BATCH, 1).x)


def test_a_pass_in_between_changes_no_batch(folder: Path) -> None:
    data = source(folder)
    data.minibatch(40, BATCH, 1)
    assert sum(len(chunk.x) for chunk in data.chunks(2048)) == NUM_ROWS
    assert data.minibatch(41, BATCH, 1).x.equal(source(folder).minibatch(41, BATCH, 1).x)


def test_a_pass_lets_go_of_what_was_read_ahead(folder: Path) -> None:
    data = source(folder)
    data.minibatch(0, BATCH, 0)
    before = sum(thread.name.startswith("cvgp-prefetch") for thread in threading.enumerate())
    list(data.chunks(2048))
    assert sum(thread.name.startswith("cvgp-prefetch") for thread in threading.enumerate()) == before - 1


def test_epochs_and_seeds_are_shuffled_differently(folder: Path) -> None:
    data = source(folder)
    orders = [epoch_rows(data, 0), epoch_rows(data, 1), epoch_rows(data, 0, seed=1)]
    assert len({tuple(order) for order in orders}) == 3


def test_a_batch_mixes_rows_of_several_parts(folder: Path) -> None:
    rows = np.array(epoch_rows(source(folder), 0)).reshape(-1, BATCH)
    # Without mixing the rows of a batch would be of one block of 8192 neighbours, whose deviation is 2365.
    assert np.median(rows.std(axis=1)) > 4000


def test_batch_is_no_larger_than_the_data(folder: Path) -> None:
    assert len(source(folder).minibatch(0, 10**6, 0).x) == NUM_ROWS


def test_a_run_that_goes_on_in_the_middle_does_not_read_what_came_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = source(folder)
    opened: list[int] = []
    read = windows.read_blocks

    def recorded(known: object, encoder: object, first_block: int = 0) -> object:
        opened.append(first_block)
        return read(known, encoder, first_block)  # type: ignore[arg-type]

    monkeypatch.setattr(windows, "read_blocks", recorded)
    per_epoch = NUM_ROWS // BATCH
    data.minibatch(5 * per_epoch + per_epoch // 2, BATCH, 0)
    del data
    assert len(opened) <= 2 * 3  # the parts of the window and of the one that is read ahead


def test_bad_rows_are_in_no_batch_and_no_chunk(tmp_path: Path, small_windows: None) -> None:
    table = frame()
    bad = [0, 8191, 8192, 15_000, 39_999]
    table.loc[bad, "b"] = np.inf
    write_parts(tmp_path, table)
    data = source(tmp_path)
    good = sorted(set(range(NUM_ROWS)) - set(bad))
    assert data.num_rows == len(good)
    assert torch.cat([chunk.x[:, 0] for chunk in data.chunks(1000)]).tolist() == good
    assert set(epoch_rows(data, 1, size=5)) == set(good)


def test_precision_is_that_asked_for_of_the_same_rows(folder: Path) -> None:
    data = source(folder)
    single = data.to(torch.float32)
    batch = single.minibatch(7, BATCH, 0)
    assert batch.x.dtype == next(single.chunks(5)).y.dtype == torch.float32
    assert batch.x.double().equal(data.minibatch(7, BATCH, 0).x)


def test_sample_holds_different_rows_in_order(folder: Path) -> None:
    rows = source(folder).sample(500, np.random.default_rng(0)).x[:, 0].tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == 500


def test_sample_of_all_rows_draws_nothing(folder: Path) -> None:
    rng = np.random.default_rng(0)
    assert len(source(folder).sample(NUM_ROWS, rng).x) == NUM_ROWS
    assert rng.integers(2**31) == np.random.default_rng(0).integers(2**31)


def test_total_weight_is_the_sum_of_the_weights(tmp_path: Path) -> None:
    table = weighted(tmp_path)
    assert source(tmp_path, TableColumns(("y",), weight="w")).total_weight == pytest.approx(table["w"].sum())


def test_total_weight_counts_rows_without_weights(folder: Path) -> None:
    assert source(folder).total_weight == NUM_ROWS


def test_weighted_rows_are_drawn_in_proportion_to_their_weight(tmp_path: Path, small_windows: None) -> None:
    table = weighted(tmp_path)
    data = source(tmp_path, TableColumns(("y",), weight="w"))
    counts = np.bincount(epoch_rows(data, 0, size=100) + epoch_rows(data, 1, size=100), minlength=NUM_ROWS)
    expected = 2.0 * table["w"] * data.num_rows / table["w"].sum()
    # A systematic sample gives each row its share to within one, in every epoch.
    assert np.abs(counts - expected).max() < 2.0
    assert counts[table["w"] == 0.0].max() == 0


def test_drawn_rows_carry_no_weight_and_chunks_do(tmp_path: Path) -> None:
    table = weighted(tmp_path)
    data = source(tmp_path, TableColumns(("y",), weight="w"))
    assert data.minibatch(0, BATCH, 0).sample_weight is None
    chunk = next(data.chunks(100))
    assert chunk.sample_weight is not None
    assert chunk.sample_weight.tolist() == table["w"][chunk.x[:, 0].long().tolist()].tolist()


def test_harmonic_noise_counts_the_rows_own_noise(tmp_path: Path) -> None:
    table = frame()
    table["v"] = np.random.default_rng(0).uniform(0.1, 2.0, NUM_ROWS)
    write_parts(tmp_path, table)
    scaling = no_scaling(2, 1)._replace(y_scale=np.array([2.0]))
    data = source(tmp_path, TableColumns(("y",), noise="v"), scaling)
    assert data.has_known_noise
    assert data.harmonic_noise(0.3) == pytest.approx(1.0 / (1.0 / (0.3 + table["v"] / 4.0)).mean())


def test_harmonic_noise_is_the_learned_one_where_none_is_known(folder: Path) -> None:
    assert source(folder).harmonic_noise(0.3) == 0.3


def test_held_out_rows_are_in_no_batch_and_no_chunk(folder: Path) -> None:
    rest, held = source(folder).hold_out(4000, np.random.default_rng(0))
    apart = set(held.data.x[:, 0].long().tolist())
    assert len(apart) == 4000
    assert rest.num_rows == NUM_ROWS - 4000
    assert apart.isdisjoint(epoch_rows(rest, 0, size=100))
    assert apart.isdisjoint(rest.sample(10**6, np.random.default_rng(0)).x[:, 0].long().tolist())
    assert sum(len(chunk.x) for chunk in rest.chunks(2048)) == rest.num_rows


def test_held_out_rows_take_their_weight_with_them(tmp_path: Path) -> None:
    table = weighted(tmp_path)
    rest, held = source(tmp_path, TableColumns(("y",), weight="w")).hold_out(4000, np.random.default_rng(0))
    assert rest.total_weight + held.total_weight == pytest.approx(table["w"].sum())


def test_identity_is_that_of_the_content(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    copy = tmp_path_factory.mktemp("copy")
    write_parts(copy, frame())
    other = tmp_path_factory.mktemp("other")
    write_parts(other, frame().assign(b=1.0))
    assert source(folder).identity() == source(copy).identity() != source(other).identity()


def test_the_largest_value_is_no_smaller_than_any(folder: Path) -> None:
    assert 2.0 * (NUM_ROWS - 1) <= source(folder).largest_value < 4.0 * NUM_ROWS


def test_any_arrow_file_system_will_do(folder: Path) -> None:
    filesystem = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
    data = source(ds.dataset("", filesystem=filesystem, format="parquet"))
    assert sorted(epoch_rows(data, 0, size=1000)) == list(range(NUM_ROWS))


def test_a_dataset_of_fewer_columns_reads_these_alone(folder: Path) -> None:
    dataset = open_dataset(folder)
    few = dataset.replace_schema(dataset.schema.remove(dataset.schema.get_field_index("b")))
    assert source(few).survey.encoder.names == ["a", "y"]


@pytest.mark.parametrize("use", ["chunks", "minibatches"])
@pytest.mark.parametrize(
    ("fault", "error"), [("damage", FileFormatError), ("remove", MissingFileError), ("rewrite", FileFormatError)]
)
def test_a_file_that_goes_bad_in_the_middle_is_named(
    folder: Path, use: str, fault: str, error: type[Exception]
) -> None:
    data = source(folder)
    file = folder / "part-2.parquet"
    if fault == "damage":
        damage(file)
    elif fault == "remove":
        os.remove(file)
    else:
        file.write_bytes((folder / "part-1.parquet").read_bytes())
    go_through = {"chunks": lambda: list(data.chunks(2048)), "minibatches": lambda: epoch_rows(data, 0)}[use]
    with pytest.raises(error, match=r"part-2\.parquet"):
        go_through()
