"""Why a model predicts what it predicts for one row: effects of columns, and what the mean is made of (§13.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, printable
from cvgp.estimators.display import number, shortened
from cvgp.estimators.fitted import FittedGP, Support
from cvgp.estimators.frames import UserColumn, is_frame, schema_of, user_columns
from cvgp.estimators.importance import ImportanceMixin, drawn_in_random_order, held_rows
from cvgp.estimators.inputs import check_exposure, check_prediction, take_exposure
from cvgp.estimators.predictive import Predictive
from cvgp.gp.likelihoods import WithQuantiles
from cvgp.runtime import clean_torch_state
from cvgp.tables.columns import place_in_cycle
from cvgp.tables.encode import DRAWS, Cells, Inputs

MOST_BACKGROUND = 100  # rows that predictions are averaged over
MOST_PREDICTIONS, MOST_WITH_NEIGHBORS = 2**17, 2**15  # for all sets of columns; beyond, orders of columns are drawn
LEAST_PAIRS = 2  # of opposite orders for each row of the background, whose differences give the sampling error
MOST_JOINT = 1024  # points of a joint covariance
SHOWN_POINTS, LONGEST_CELL = 10, 24


class Explanation(NamedTuple):
    """A prediction for one row: the effect of each column, and the values of y that it is made of. Print it.

    The effects add up to the prediction minus the baseline, which is the mean prediction for the background. The
    `support` is that of the mean of y, or of its transform, which is ``prior + weight @ residual``.
    """

    target: str
    prediction: float
    baseline: float
    num_background: int
    columns: tuple[str, ...]
    values: tuple[str, ...]  # of the row
    effects: Array  # [C], Shapley values
    covariance: Array  # [C, C], posterior covariance of the effects
    sampling_error: Array  # [C], standard errors if orders of the columns were drawn, and zero if all were used
    support: Support
    heaviest: list[dict[str, Any]]  # the values of the largest weights, in words

    @property
    def sd(self) -> Array:
        """The posterior standard deviation of each effect."""
        return np.sqrt(np.maximum(self.covariance.diagonal(), 0.0))

    def to_json(self) -> dict[str, Any]:
        """All but the covariance as JSON types, and the heaviest part of the support."""
        numbers = zip(self.values, *map(np.ndarray.tolist, (self.effects, self.sd, self.sampling_error)), strict=True)
        effects = (dict(zip(("value", "effect", "sd", "sampling_error"), own, strict=True)) for own in numbers)
        known = {name: getattr(self, name) for name in ("target", "prediction", "baseline", "num_background")}
        return known | {"columns": dict(zip(self.columns, effects, strict=True)), "heaviest": self.heaviest}

    def __repr__(self) -> str:
        order, sd, error = np.argsort(-np.abs(self.effects), kind="stable"), self.sd, self.sampling_error.max()
        effects = [(self.columns[j], self.values[j], signed(self.effects[j]), number(sd[j])) for j in order]
        facts = [(number(own["weight"]), f"{own['share']:.1%}", number(own["y"]), own["kind"]) for own in self.heaviest]
        points = [(*own, *point["columns"].values()) for own, point in zip(facts, self.heaviest, strict=True)]
        change = signed(self.prediction - self.baseline, 4)
        head = f"{printable(self.target)}: {number(self.prediction, 4)} = baseline {number(self.baseline, 4)} {change}"
        drawn = f", sampling errors up to {number(error)}" if error else ""
        table = _aligned([("column", "value", "effect", "sd"), *effects])
        values = _aligned([("weight", "share", "y", f"of {len(self.support.y)}", *self.columns), *points])
        return "\n".join([head + drawn, "", *table, "", *values])


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign."""
    return f"{'-' if value < 0.0 else '+'}{number(abs(value), digits)}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    cells = [[printable(shortened(cell, LONGEST_CELL)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


class ExplainMixin(ImportanceMixin):
    """Explanations of predictions, for an estimator whose fit leaves a `FittedGP` in `_gp`."""

    @clean_torch_state()
    def explain(self, X: Any, *, background: Any = None, output: Any = None, exposure: Any = None) -> Explanation:
        """Explain the predicted mean for one row, or the latent value of a classifier.

        Parameters
        ----------
        X : array-like of shape (n_features,) or (1, n_features), or a table of one row
        background : array-like of shape (n_samples, n_features) or a table, optional
            Rows to compare with, at most 100 of which are drawn: an effect is what the prediction changes on average if
            a column is that of X instead of theirs. By default the rows of the model, or else its pseudo-points.
        output : int or label of a class, optional
            Which of several outputs, by default the first; which of several classes, by default the most probable one.
        exposure : as for `predict`

        Returns
        -------
        Explanation

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
        >>> model = cvgp.CVGPRegressor(n_coreset=20, random_state=0).fit(X, np.sin(X[:, 0]) + X[:, 1])
        >>> model.explain([0.0, 0.5], background=[[0.5, 0.0]]).effects.round(1).tolist()
        [-0.5, 0.5]
        """
        check_is_fitted(self)
        X, exposure = take_exposure(self, X if is_frame(X) or np.ndim(X) != 1 else [X], exposure)
        given, columns = check_prediction(self, X), user_columns(self)
        if len(given) != 1:
            raise InvalidInputError(f"explain is for one row; got {len(given)}. Give X[:1], or frame.iloc[[0]].")
        row, (target, gp, q) = given if isinstance(given, Inputs) else Inputs(given), _explained(self, given, output)
        each = None if exposure is None else float(check_exposure(exposure, 1)[0])
        is_plain = gp.target.name == "identity" and not isinstance(gp.likelihood, WithQuantiles) and each is None

        def mean(x: Array | Inputs) -> Array:
            return np.asarray((gp.mean(x) if is_plain else Predictive.at(gp, x, each).moments.mean)[:, q])

        found = None if background is None else check_prediction(self, take_exposure(self, background, None)[0])
        x, weight = held_rows(gp) if found is None else (found, None)
        others, share = _drawn(x, weight, MOST_BACKGROUND)
        n, d, affordable = len(others), len(columns), MOST_PREDICTIONS if gp.kept is None else MOST_WITH_NEIGHBORS
        affordable //= n * (DRAWS if row.unknown else 1)
        pairs = 0 if 2**d <= affordable else max(affordable // (2 * d), LEAST_PAIRS)
        masks, A = _sets(d, n, pairs)
        # Both ends are predicted as `predict` does it, so that the effects add up to the last digits.
        prediction, means = float(mean(given)[0]), mean(others)
        f = np.where(masks.all(axis=2), prediction, means[:, None])  # [n, m]
        inner = masks.any(axis=2) & ~masks.all(axis=2)
        if inner.any():
            f[inner] = mean(_mixed(row, columns, others[np.nonzero(inner)[0]], masks[inner]))
        parts = A * (f - prediction)[..., None]  # [n, m, d]
        effects, error = share @ parts.sum(axis=1), np.zeros(d)
        if pairs:
            by_pair = pairs * parts.reshape(n, pairs, -1, d).sum(axis=2)
            error = np.sqrt(share**2 @ by_pair.var(axis=1, ddof=1) / pairs)
        about = target, prediction, float(share @ means), n, tuple(column.name for column in columns)
        table = X if is_frame(X) and hasattr(self, "feature_names_in_") else None
        # By two orders for some of the others, since the covariance is joint; unknown cells have their mean.
        others, share = _drawn(others, share, max(MOST_JOINT // (2 * d + 2), 1))
        masks, A = _sets(d, len(others), 1)
        A, masks = (share[:, None, None] * A).reshape(-1, d), masks.reshape(-1, d)
        points = _mixed(Inputs(row.x), columns, np.repeat(others, 2 * d + 2, axis=0), masks)
        covariance = A.T @ Predictive.at(gp, points, each).function_covariance(gp.covariance(points))[:, :, q] @ A
        values, support = _row_text(table, row, columns), gp.support(row.draws()[0] if row.unknown else row.x, q)
        return Explanation(*about, values, effects, covariance, error, support, _support_text(support, columns, q))


def _explained(estimator: Any, row: Array | Inputs, output: Any) -> tuple[str, FittedGP, int]:
    """The name of what is explained, its latent function and output; of two classes it is the second one."""
    gp, schema, is_class = estimator._gp, schema_of(estimator), hasattr(estimator, "classes_")
    num_outputs = len(gp.scaling.y_mean)
    known = estimator.classes_[-len(estimator._gps) :].tolist() if is_class else list(range(num_outputs))
    if output is not None and output not in known:
        raise InvalidInputError(f"output must be one of {known}; got {output!r}.")
    best = int(estimator._probabilities(row)[0].argmax()) if is_class and len(known) > 1 else 0
    at = best if output is None else known.index(output)
    if is_class:
        return f"latent value of {known[at]}", estimator._gps[at], 0
    return "y" if schema is None else schema.targets[at], gp, at


def _drawn(x: Array | Inputs, weight: Array | None, most: int) -> tuple[Array, Array]:
    """Different rows [n, D] among x, and their shares [n]; unknown cells have their mean."""
    x = x.x if isinstance(x, Inputs) else x
    count = min(len(x), most) if weight is None else most
    rows = drawn_in_random_order(x, weight, count, np.random.default_rng(0))
    found, counts = np.unique(rows, axis=0, return_counts=True)
    return found, counts / counts.sum()


def _sets(d: int, n: int, pairs: int) -> tuple[NDArray[np.bool_], Array]:
    """Sets of d columns for each of n rows, and A for the Shapley values A f: both [n, m, d]."""
    if not pairs:
        masks = (np.arange(2**d)[:, None] >> np.arange(d)) & 1 == 1
        size, worth = masks.sum(axis=1)[:, None], np.array([*(1.0 / (d * comb(d - 1, s)) for s in range(d)), 0.0])
        A = np.where(masks, worth[size - 1], -worth[size])
        return np.broadcast_to(masks, (n, *masks.shape)), np.broadcast_to(A, (n, *A.shape))
    first = np.random.default_rng(0).permuted(np.tile(np.arange(d), (n, pairs, 1)), axis=2)
    step, k = np.stack([first, d - 1 - first], axis=2)[..., None, :], np.arange(d + 1)[:, None]
    A = 0.5 / pairs * ((step == k - 1) * 1.0 - (step == k))  # [n, pairs, 2, d + 1, d]
    return (step < k).reshape(n, -1, d), A.reshape(n, -1, d)


def _mixed(row: Inputs, columns: list[UserColumn], x: Array, masks: NDArray[np.bool_]) -> Array | Inputs:
    """The rows x [P, D] with the columns of `row` that the masks [P, C] name, its unknown cells included; changes x."""
    features = [column.features for column in columns]
    for own, chosen in zip(features, masks.T, strict=True):
        x[chosen, own] = row.x[0, own]

    def copied(cells: Cells) -> Cells:
        rows = np.flatnonzero(masks[:, features.index(cells.features)])
        return Cells(cells.features, rows, np.repeat(cells.values, len(rows), axis=0))

    parts = [list(map(copied, cells)) for cells in (row.unknown, row.gaps)]
    return Inputs(x, *parts) if any(parts) else x


def _row_text(X: Any, row: Inputs, columns: list[UserColumn]) -> tuple[str, ...]:
    """What a row has in each column: the text or level in a table, or else what its features stand for."""
    unknown, texts = [cells.features for cells in row.unknown], []
    for own in columns:
        cell = None if X is None or own.is_place else np.asarray(X[own.name])[0]
        cell = str(cell)[:16].removesuffix("T00:00") if own.parts else str(cell) if own.is_level else cell
        is_text = isinstance(cell, str) and cell not in ("None", "nan", "NaT", "<NA>")
        known = "missing" if own.features in unknown else _feature_text(own, row.x[0, own.features])
        texts.append(str(cell) if is_text else known)
    return tuple(texts)


def _support_text(own: Support, columns: list[UserColumn], output: int) -> list[dict[str, Any]]:
    size, kinds = np.abs(own.weight), ("training row", "pseudo-point")
    shares = size / size.sum()
    return [
        {"kind": kinds[i < own.num_points], "weight": float(own.weight[i]), "share": float(shares[i])}
        | {"y": float(own.y[i, output]), "columns": {c.name: _feature_text(c, own.X[i, c.features]) for c in columns}}
        for i in np.argsort(-size, kind="stable")[:SHOWN_POINTS].tolist()
    ]


def _feature_text(column: UserColumn, features: Array) -> str:
    """What the features [w] of a column stand for; those of a pseudo-point may be between two categories."""
    if column.is_place:
        z, x, y = features
        return ", ".join(
            number(float(np.degrees(angle)), 4) for angle in (np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x))
        )
    cyclic = 2 * len(column.parts) or 2 * (column.period is not None)
    width = cyclic - ("trend" in column.parts) or 1  # without the mark of a missing cell
    if column.categories:
        return (*column.categories, "missing")[int(features.argmax())]
    if column.is_level:
        return f"effect {signed(features[0])}"
    if len(features) > width and features[-1] > 0.5:
        return "missing"
    if column.parts[:1] == ("trend",):
        return str(np.datetime64("1970-01-01") + np.timedelta64(round(features[0]), "D"))
    if column.period is not None:
        place = number(place_in_cycle(features[None], column.period)[0])
        return f"{column.parts[0]}: day {place}" if column.parts else place
    return column.labels[int(features[0] > 0.5)] if column.is_boolean else number(features[0])
