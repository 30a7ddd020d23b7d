"""Gradient boosting to compare with: learned from the rows of a fit, and kept as plain arrays with the model.

scikit-learn learns the trees. It has no public way to write them down but a pickle, and a pickle in a model file would
run code where the file is opened. So the nodes are read from its private attributes, and tests compare predictions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError
from cvgp.estimators.simple_models import Predictions
from cvgp.files.untrusted import Arrays
from cvgp.host import sklearn_alone

FEWEST_ROWS = 20
MOST_ROWS, MOST_CELLS, ROWS_OF_WIDE_TABLES = 20_000, 600_000, 2000
"""Rows to learn from: as many as have this number of cells, within limits."""
MOST_BINS, FEWEST_BINS, USUAL_COLUMNS = 255, 32, 30
"""Bins per column: scikit-learn's default for up to so many columns. Time grows with bins times columns."""
HELD_OUT = 500
CELLS_TO_LEARN_AGAIN = 100_000
"""Up to so many cells, trees learn again from all rows when their error is known."""
MOST_TREES, MOST_NODES = 100, 61
"""By scikit-learn's defaults: a tree has at most 31 leaves."""
LARGEST = 1e130
"""Beyond what is ever learned (`noted_rows.LARGEST`), and its square is a number."""
PREFIX = "boosting."


class BoostedTrees(NamedTuple):
    """Trees whose values add up, as flat arrays over all nodes [K].

    The nodes of a tree come in the order in which a walk meets them that goes to the left first. So the left child of a
    node is the next node. Features are in the units of the model that the trees are kept with.
    """

    num_rows: int
    """How many rows the trees have learned from."""
    start: float
    """What the values of trees are added to."""
    sd: float
    """The error on rows that were held out."""
    sizes: NDArray[np.uint8]  # [T], nodes of each tree
    feature: NDArray[np.unsignedinteger[Any]]  # [K], 0 for leaves; in as few bytes as there are features
    right: NDArray[np.uint8]  # [K], the right child, counted from the first node of its tree; 0 for leaves
    value: Array  # [K], the threshold of a node, or what a leaf adds

    @classmethod
    def learn(cls, x: Array, y: Array, weight: Array | None = None) -> BoostedTrees | None:
        """From features [N, D] and targets [N], of which a row of weight w counts as w rows; None if there are too few.

        Trees that have not seen a fifth of the rows, at most 500, give the error. Where another training takes little
        time, the trees that are kept have learned from all rows.
        """
        if len(x) < FEWEST_ROWS:
            return None
        order = np.random.default_rng(0).permutation(len(x))[: rows_to_learn_from(x.shape[1])]
        held, learning = np.array_split(order, [min(len(order) // 5, HELD_OUT)])
        # scikit-learn's sums are of float32. A power of two changes no digit of them, but keeps them in its range.
        unit = _power_of_two(np.abs(y - y.mean()).mean())
        trees = _trained(x, y / unit, weight, learning)
        with sklearn_alone():
            error = y[held] / unit - trees.predict(x[held])
        share = np.ones(len(held)) if weight is None else weight[held] / weight[held].max()
        sd = unit * float(np.sqrt(share @ error**2 / share.sum()))
        if len(order) * x.shape[1] <= CELLS_TO_LEARN_AGAIN:
            learning = order
            trees = _trained(x, y / unit, weight, learning)
        # Rows that are predicted exactly would give a density without bounds.
        floor = max(1e-6 * float(np.abs(y).max()), float(np.finfo(np.float64).tiny))
        found = _written_down(trees)
        if found is None:
            return None
        start, sizes, nodes = found
        value = np.where(nodes["is_leaf"] == 1, unit * nodes["value"], nodes["num_threshold"])
        return cls(
            num_rows=len(learning),
            start=unit * start,
            sd=max(sd, floor),
            sizes=sizes,
            feature=nodes["feature_idx"].astype(np.min_scalar_type(x.shape[1])),
            right=nodes["right"].astype(np.uint8),
            value=value,
        )

    def predict(self, x: Array) -> Predictions:
        """Predictions for rows [n, D]."""
        columns = np.ascontiguousarray(x.T)
        mean = np.full(len(x), self.start)
        first = 0
        for size in self.sizes.tolist():
            tree = slice(first, first + size)
            first += size
            feature, right, value = self.feature[tree].tolist(), self.right[tree].tolist(), self.value[tree].tolist()
            rows_at = {0: np.arange(len(x))}  # by the node that they have come to
            for node in range(size):
                rows = rows_at.pop(node)
                if right[node] == 0:
                    mean[rows] += value[node]
                else:
                    goes_left = columns[feature[node]][rows] <= value[node]
                    rows_at[node + 1], rows_at[right[node]] = rows[goes_left], rows[~goes_left]
        return mean, np.full(len(x), self.sd)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of a file; :meth:`from_arrays` reads them."""
        return {PREFIX + name: np.asarray(value) for name, value in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, num_features: int) -> BoostedTrees | None:
        """From a file, which may hold anything; None where it holds no trees."""
        if f"{PREFIX}sizes" not in arrays:
            return None
        num_rows = arrays.take(f"{PREFIX}num_rows", (), dtypes=("int64",), limits=(1, MOST_ROWS))
        start = arrays.take(f"{PREFIX}start", (), dtypes=("float64",), limits=(-LARGEST, LARGEST))
        tiny = float(np.finfo(np.float64).tiny)
        sd = arrays.take(f"{PREFIX}sd", (), dtypes=("float64",), limits=(tiny, LARGEST))
        sizes = arrays.take(f"{PREFIX}sizes", (None,), dtypes=("uint8",), limits=(1, MOST_NODES))
        if len(sizes) > MOST_TREES:
            raise FileFormatError(f"{PREFIX}sizes must be of at most {MOST_TREES} trees; got {len(sizes)}.")
        shape = (int(sizes.sum(dtype=np.int64)),)
        dtypes = (np.min_scalar_type(num_features).name,)
        feature = arrays.take(f"{PREFIX}feature", shape, dtypes=dtypes, limits=(0, num_features - 1))
        right = arrays.take(f"{PREFIX}right", shape, dtypes=("uint8",))
        value = arrays.take(f"{PREFIX}value", shape, dtypes=("float64",), limits=(-LARGEST, LARGEST))
        _check_walks(sizes, right)
        return cls(int(num_rows), float(start), float(sd), sizes, feature, right, value)

    @property
    def is_storable(self) -> bool:
        """Whether all numbers are within the limits of a file."""
        return bool((np.abs([self.start, self.sd, *self.value]) <= LARGEST).all())


def rows_to_learn_from(num_features: int) -> int:
    """How many rows are enough; more columns take more time."""
    return min(MOST_ROWS, max(MOST_CELLS // num_features, ROWS_OF_WIDE_TABLES))


def number_of_bins(num_features: int) -> int:
    """How finely columns are divided."""
    return min(MOST_BINS, max(MOST_BINS * USUAL_COLUMNS // num_features, FEWEST_BINS))


def seconds_to_learn(num_rows: int, num_features: int) -> float:
    """What :meth:`BoostedTrees.learn` takes on one thread of a usual processor, or less."""
    cells = min(num_rows, rows_to_learn_from(num_features)) * num_features
    size_of_trees = min(num_rows / 620, 1.0)  # as leaves of 20 rows allow
    once = 0.02 + size_of_trees * (0.08 + 3e-5 * num_features * number_of_bins(num_features)) + 6e-7 * cells
    return 2.0 * once if cells <= CELLS_TO_LEARN_AGAIN else once


def _trained(x: Array, y: Array, weight: Array | None, rows: NDArray[np.int64]) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a while to import

    often = rows if weight is None else _as_often_as_they_count(rows, weight[rows], rows_to_learn_from(x.shape[1]))
    bins = number_of_bins(x.shape[1])
    with sklearn_alone():
        return HistGradientBoostingRegressor(random_state=0, early_stopping=False, max_bins=bins).fit(
            x[often], y[often]
        )


def _as_often_as_they_count(rows: NDArray[np.int64], weight: Array, most: int) -> NDArray[np.int64]:
    """Each row as often as its weight says, to the next whole number up or down, and `most` rows in all.

    With weights scikit-learn takes six times as long.
    """
    count = min(max(np.minimum(weight, most).sum(), len(rows)), most)
    reached = np.cumsum(weight / weight.max())
    # At halves, which weights add up to more easily, a row of next to no weight could decide.
    times = np.diff(np.floor(reached * (count / reached[-1]) + 0.382), prepend=0.0)
    return np.repeat(rows, times.astype(np.int64))


def _written_down(trees: Any) -> tuple[float, NDArray[np.uint8], NDArray[Any]] | None:
    """The first value, the sizes of trees and their nodes; None if this scikit-learn keeps them in another way."""
    try:
        parts = [tree.nodes for (tree,) in trees._predictors]
        start = float(np.squeeze(trees._baseline_prediction))
        nodes = np.concatenate(parts)
        sizes = np.array([len(part) for part in parts], np.uint8)
        _check_walks(sizes, nodes["right"])
        follows = np.concatenate([part["left"] == np.arange(1, len(part) + 1) for part in parts])
        is_known = bool((follows == (nodes["is_leaf"] == 0)).all())
    except (AttributeError, TypeError, ValueError, FileFormatError):
        return None  # A fit must not fail because there is nothing to compare it with.
    return (start, sizes, nodes) if is_known else None


def _check_walks(sizes: NDArray[Any], right: NDArray[Any]) -> None:
    """Refuse nodes that are not trees: each but the first of a tree has one parent, which comes before it."""
    ends = np.cumsum(sizes, dtype=np.int64)
    first = np.repeat(ends - sizes, sizes)  # [K], the first node of each node's tree
    place = np.arange(len(right)) - first
    inner = right != 0
    target = right[inner].astype(np.int64)
    is_within = (target > place[inner] + 1) & (target < np.repeat(sizes, sizes)[inner])
    children = np.sort(np.concatenate([(first + place + 1)[inner], first[inner] + target]))
    if not is_within.all() or not np.array_equal(children, np.flatnonzero(place > 0)):
        raise FileFormatError(f"{PREFIX}right must lead from each node of a tree to two later ones, each its own.")


def _power_of_two(size: float) -> float:
    """The largest one that is not above a size; 1 for 0."""
    return float(2.0 ** (np.frexp(size)[1] - 1)) if size > 0.0 else 1.0
