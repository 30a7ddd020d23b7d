import numpy as np

from cvgp.data.rows import Array, Rows
from cvgp.data.tables.reservoir import Reservoir


def nothing(columns: int = 1) -> Rows[Array]:
    return Rows(np.empty((0, columns)), np.empty((0, 1)))


def offer(reservoir: Reservoir, part: int, start: int, count: int, rng: np.random.Generator) -> None:
    row = np.arange(start, start + count)
    values = row.astype(np.float64)
    reservoir.add(Rows(values[:, None], values[:, None], None, None), part, row, rng)


def sample(size: int, seed: int = 0) -> Reservoir:
    reservoir, rng = Reservoir(nothing(), size), np.random.default_rng(seed)
    for part in range(10):
        offer(reservoir, part, 100 * part, 100, rng)
    return reservoir


def test_all_rows_are_kept_where_they_fit() -> None:
    assert sample(1000).rows.y[:, 0].tolist() == list(range(1000))


def test_so_many_different_rows_are_kept_in_the_order_of_the_table() -> None:
    rows = sample(50).rows.y[:, 0].tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == 50


def test_rows_are_known_by_part_and_number() -> None:
    found = sample(50)
    assert (found.where[:, 1] == found.rows.y[:, 0]).all()
    assert (found.where[:, 0] == found.where[:, 1] // 100).all()


def test_every_row_is_as_likely_as_another() -> None:
    counts = np.zeros(1000)
    for seed in range(400):
        counts[sample(50, seed).rows.y[:, 0].astype(int)] += 1
    # Parts of 100 rows are chosen 2000 times in the mean, with a standard deviation of about 43.
    assert np.abs(counts.reshape(10, 100).sum(axis=1) - 2000).max() < 5 * 43


def test_features_are_changed_for_all_rows() -> None:
    reservoir = Reservoir(nothing(2), 10)
    x = np.array([[1.0, np.nan], [np.nan, 2.0]])
    reservoir.add(Rows(x, x[:, :1], None, None), 0, np.arange(2), np.random.default_rng(0))
    assert reservoir.with_features(lambda x: np.where(np.isnan(x), [7.0, 8.0], x)).rows.x.tolist() == [
        [1.0, 8.0],
        [7.0, 2.0],
    ]
