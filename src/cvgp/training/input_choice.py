"""The choice of a warp of inputs: how much of each column's ranks to mix in is learned, and unseen rows decide.

An exact GP of some rows learns with each column and its ranks as inputs. The ratio of their two lengthscales is the
share of the ranks (:mod:`cvgp.data.input_warp`). The warp is used where other rows are clearly more likely by it than
by the columns as they are.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from cvgp.data.input_warp import NO_WARP, InputWarp, Path, WarpName, mixed_path, normal_scores, warp_of
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import bulk_of, learn_scaling, moments_of
from cvgp.errors import FactorisationError, InvalidInputError
from cvgp.host import kept_warnings
from cvgp.optim.stopping import Progress
from cvgp.training.candidates import Start
from cvgp.training.densities import is_clearly_better, weighted_mean
from cvgp.training.kernel_search import START_NOISE, learn_exactly
from cvgp.training.monitor import Watch
from cvgp.training.start import starting_kernel

InputsName = Literal["auto"] | WarpName

LEAST_ROWS = 200
"""With fewer rows a warp cannot be told from chance."""
PART_ROWS, EVALUATIONS = 500, 25
"""Rows of each of two parts: the first is learned from, and the second is judged by."""
ROWS_FOR_RANKS = 20_000
"""That the few knots of a column are made of."""
SHARE_OF_TIME = 0.1
"""Of a time limit, what the choice may take."""
STANDARD_ERRORS = 2.0
MOST_OF_A_ROW = 3.0
"""Nats by which one row may speak for or against a warp: a single row that is far off decides nothing."""
IRRELEVANT = 0.01
"""A column whose inverse lengthscales are below this share of the largest one stays as it is."""
STEP = 0.05
"""Shares are multiples of this: rounding in a search must not make another model of the same rows."""


class _Learned(NamedTuple):
    """An exact GP of some rows: the density of others, and its lengthscales in the units of its inputs."""

    densities: Tensor
    lengthscales: Array


def check_inputs_name(name: object) -> None:
    """Refuse a warp that there is not."""
    names = ("auto", *get_args(WarpName))
    if name not in names:
        raise InvalidInputError(f"inputs must be one of {', '.join(names)}; got {name!r}.")


def suited_name(
    name: InputsName, *, standardize: bool, kernel: str | Kernel | None, mean: str | Mean, ard: bool, solver: str
) -> InputsName:
    """What ``auto`` is for a model: the identity, unless its prior is one that a warp leaves the sense of.

    That is a kernel of distances by name, with a lengthscale for each column. A line, a period, and a kernel or mean
    that is an object say something of the columns as they are.
    """
    if name != "auto" and name != "identity" and not standardize:
        raise InvalidInputError(
            f"inputs={name!r} gives columns other units, and standardize=False asks for those of the data. Use "
            "standardize=True, or inputs='identity'."
        )
    by_name = not (isinstance(kernel, Kernel) or isinstance(mean, Mean))
    of_distances = by_name and not any(part in str(kernel) for part in ("linear", "periodic"))
    is_suited = standardize and of_distances and ard and solver != "paper"
    return name if name != "auto" or is_suited else "identity"


@torch.enable_grad()  # also for a caller that has switched gradients off
def choose_inputs(name: InputsName, rows: Rows[Array], seed: int, watch: Watch, *, in_time: bool = False) -> InputWarp:
    """The warp of a name, learned from rows in the user's units (y may be transformed).

    Parameters
    ----------
    name
        As the user gives it.
    rows
        Those of the fit, or a sample of them.
    seed
        Draws the rows that are learned from and judged by.
    watch
        Records what was chosen.
    in_time
        Whether to keep to a share of the time limit, as for the choice of a target.
    """
    dims = rows.x.shape[1]
    if name == "identity":
        return NO_WARP
    rng = np.random.default_rng(seed)
    known = rows.take(rng.permutation(len(rows.x))[:ROWS_FOR_RANKS])
    scores = _scores(known)
    if name == "rank":
        return warp_of("rank", np.ones(dims), scores)
    y_varies = bool(moments_of(rows.y, rows.sample_weight).scales.all())
    if not scores or not y_varies or (name == "auto" and len(rows.x) < LEAST_ROWS):
        return NO_WARP
    order = rng.permutation(len(rows.x))
    half = min(watch.some_of(PART_ROWS) if in_time else PART_ROWS, (len(order) + 1) // 2)
    watches = watch.shares(SHARE_OF_TIME, 2) if in_time else (Watch() for _ in range(2))
    learning, judging = rows.take(order[:half]), rows.take(order[half : 2 * half])
    columns = sorted(scores)

    def with_ranks(x: Array) -> Array:
        return np.hstack([x, *(scores[d].apply(x[:, d])[:, None] for d in columns)])

    mixed = _learn(with_ranks, learning, judging, next(watches))
    if mixed is None:
        return NO_WARP
    # Processes whose last digits differ must not warp in different ways.
    (lengthscales,) = watch.group.first([torch.as_tensor(mixed.lengthscales)])
    warp = _warp(lengthscales.numpy(), scores, known)
    if name == "mixed":
        return warp
    plain = _learn(lambda x: x, learning, judging, next(watches))
    tensors = judging.map(torch.as_tensor)
    is_better = plain is None or _is_better(mixed.densities, plain.densities, tensors)
    (first,) = watch.group.first([torch.tensor(float(is_better), dtype=torch.float64)])
    _report(bool(first), mixed, plain, tensors, watch)
    return warp if bool(first) else NO_WARP


def _is_better(densities: Tensor, others: Tensor, judging: Rows[Tensor]) -> bool:
    """Whether rows are more likely in the mean, and clearly so if none of them says too much."""
    difference = densities - others
    bounded = difference.clamp(-MOST_OF_A_ROW, MOST_OF_A_ROW)
    is_clear = is_clearly_better(bounded, torch.zeros_like(bounded), judging, errors=STANDARD_ERRORS)
    return is_clear and weighted_mean(difference, judging) > 0.0


def _scores(rows: Rows[Array]) -> dict[int, Path]:
    """Normal scores of the columns that have any."""
    found = ((d, normal_scores(column, rows.sample_weight)) for d, column in enumerate(rows.x.T))
    return {d: path for d, path in found if path is not None}


def _warp(lengthscales: Array, scores: dict[int, Path], rows: Rows[Array]) -> InputWarp:
    """The mixed warp of lengthscales of all columns and of those columns' ranks that there are, in their own units."""
    dims = rows.x.shape[1]
    plain = learn_scaling(rows.x, rows.y, rows.sample_weight, bulk_of(rows.x, rows.sample_weight))
    ranks = dict(zip(sorted(scores), lengthscales[dims:], strict=True))
    slopes = {d: (plain.x_scale[d] / lengthscales[d], 1.0 / ranks[d]) for d in scores}
    least = IRRELEVANT * max(map(max, slopes.values()))
    shares, paths = np.zeros(dims), {}
    for d, score in scores.items():
        by_value, by_rank = slopes[d]
        if max(by_value, by_rank) > least:
            shares[d] = STEP * round(by_rank / (by_value + by_rank) / STEP)
        if shares[d] > 0.0:
            paths[d] = mixed_path(score, shares[d], plain.x_mean[d], plain.x_scale[d])
    return warp_of("mixed", shares, paths)


def _learn(
    inputs: Callable[[Array], Array], learning: Rows[Array], judging: Rows[Array], watch: Watch
) -> _Learned | None:
    """What an exact GP of some rows learns; None where it cannot."""
    learning, judging = (part._replace(x=inputs(part.x)) for part in (learning, judging))
    scaling = learn_scaling(learning.x, learning.y, learning.sample_weight, bulk_of(learning.x, learning.sample_weight))
    start = Start(starting_kernel(None, learning.x.shape[1], ard=True), ZeroMean(), START_NOISE, -math.inf)
    try:
        with kept_warnings():
            new = scaling.tensors(judging)
            learned = learn_exactly(start, scaling.tensors(learning), new, watch, "start inputs", EVALUATIONS)
    except (FactorisationError, FloatingPointError):
        return None
    assert learned.densities is not None, "a start that has learned has been judged"
    lengthscales = learned.kernel.base_kernel.lengthscale.detach().numpy().reshape(-1)
    return _Learned(learned.densities, lengthscales * np.where(scaling.varies, scaling.x_scale, 1.0))


def _report(is_better: bool, mixed: _Learned, plain: _Learned | None, judging: Rows[Tensor], watch: Watch) -> None:
    """Write the choice into the history, where callbacks see it too."""
    of_mixed = weighted_mean(mixed.densities, judging)
    of_plain = -math.inf if plain is None else weighted_mean(plain.densities, judging)
    chosen, density = ("mixed", of_mixed) if is_better else ("identity", of_plain)
    other = f"{of_plain:.3f} with identity" if is_better else f"{of_mixed:.3f} with mixed"
    watch.begin("start inputs", 1)
    watch.observe(Progress(1, -density, math.nan, f"inputs {chosen}: {density:.3f} nats per unseen row, and {other}"))
