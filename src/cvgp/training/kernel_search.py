"""Kernel and noise to start from, judged by rows that no candidate has seen.

A bound with a few pseudo-points in many dimensions explains almost no prior variance. Its cheapest way up is then to
explain nothing: all noise, no function. Every later stage inherits that. The exact likelihood of some rows has no such
escape. But what it learns need not suit a small coreset: of a function without noise it makes a process so smooth and
so large that few points cannot carry it. So both are tried: kernels that the exact likelihood learned, and kernels that
a short fit of a small coreset learned. The density of unseen rows decides (docs: regressor).
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from gpytorch.means import Mean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp.bounds import solve_titsias, whitener
from cvgp.gp.hyperparameters import HELD_ABOVE, is_held, multiply_inside
from cvgp.gp.kernel_names import name_of_kernel
from cvgp.gp.kernels import NOISE_FLOOR
from cvgp.gp.model import CVGP
from cvgp.objectives.exact import ExactObjective
from cvgp.objectives.full_batch import TitsiasObjective, solve_coreset, statistics
from cvgp.training.candidates import Start, best_of
from cvgp.training.column_gaps import widen_to_gaps
from cvgp.training.densities import row_densities, variance_of_y, weighted_mean
from cvgp.training.initialise import initial_coreset
from cvgp.training.kernel_choice import choose_kernel
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.monitor import Watch
from cvgp.training.periods import candidate_periods, is_alias, periodic_parts, set_periods, shortest_periods
from cvgp.training.plan import exact_seconds
from cvgp.training.shrinkage import hold_if_few
from cvgp.training.small_data import distinct_rows, take_observations

START_FACTORS = (1.0, 0.25, 4.0)
"""Multiples of the typical lengthscale that are tried."""
START_NOISE = 0.1
"""Of the variance of y."""
LEAST_START_NOISE = 100.0
"""In units of the noise floor. At the floor no larger noise can be learned: its logarithm has no slope there."""
LEARNING_ROWS, EXACT_ROWS, JUDGING_ROWS = 1000, 500, 500
EVALUATIONS, KERNEL_EVALUATIONS = 40, 20
EVALUATION_SECONDS = 2e-3
"""Of an evaluation of the exact likelihood, what does not depend on the number of rows."""
START_TOL = 1e-3
"""Nats per row that ten iterations have to gain: what follows a start goes on from it."""
RACE_ROWS, RACE_EVALUATIONS = 300, 15
"""Several starts are first compared by a short search on fewer rows, and only the best of them goes on."""
PERIODS = 3
"""Likely periods that are tried beside a kernel's own."""
CORESET_POINTS, CORESET_EVALUATIONS = 64, 25
AS_GOOD = 0.02
"""Nats per row. A small coreset that is so close to the exact GP of some rows needs no other kernel."""
NOISE_LADDER = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
"""Shares of the variance of y; all of it, which is to explain nothing, is not among them."""


@torch.enable_grad()  # also for a caller that has switched gradients off
def search_start(
    kernel: Kernel,
    mean: Mean,
    source: DataSource,
    rng: np.random.Generator,
    watch: Watch,
    *,
    size: int = CORESET_POINTS,
    is_exact: Callable[[Start], bool] = lambda by_rows: False,
    alternatives: Sequence[Kernel] = (),
    noise_floor: float = NOISE_FLOOR,
    known_noise: float | None = None,
) -> Start:
    """The kernel, mean and noise with the best density of unseen rows; the arguments stay as they are.

    Parameters
    ----------
    kernel, mean
        The prior. It is tried from several lengthscales, unless its own are frozen.
    source
        Where rows are sampled from: at most 1000 to learn from and 500 to judge by.
    rng
        Draws the rows.
    watch
        Records the searches.
    size
        How many pseudo-points the start is for.
    is_exact
        Says of what the exact likelihood learned whether every row is to be a point instead.
    alternatives
        Kernels to try in place of the first, which is then ``s k(x, x')`` with a stationary k. They are such kernels
        too, or sums that begin with one.
    noise_floor
        Smallest noise variance, in the units of the source.
    known_noise
        The noise variance where it is not to be learned.
    """
    most = watch.some_of(LEARNING_ROWS)
    learning, judging = _two_parts(source.sample(most + watch.some_of(JUDGING_ROWS), rng), most, rng)
    learning = _counting_as(learning, source.total_weight)
    few = _counting_as(learning.take(slice(watch.some_of(EXACT_ROWS))), source.total_weight)
    y_sd = math.sqrt(variance_of_y(learning)) or 1.0  # outputs that are all the same say nothing of f
    kernel, *alternatives = (hold_if_few(k, source.num_rows, learning.x, y_sd) for k in (kernel, *alternatives))
    noise = max(START_NOISE * variance_of_y(learning), LEAST_START_NOISE * noise_floor)
    first = Start(kernel, mean, noise, -math.inf, noise_floor=noise_floor)
    if known_noise is not None:
        first = first._replace(noise=known_noise, noise_is_known=True)
    elif is_held(kernel, HELD_ABOVE) and not source.has_known_noise:
        first = first._replace(typical_noise=noise)
    factors = START_FACTORS if _lengthscales(kernel) else (1.0,)
    seen = torch.cat([learning.x, judging.x])
    shortest = shortest_periods(seen) if periodic_parts(kernel) else seen.new_zeros(1)

    def learn_from(rows: Rows[Tensor], start: Start, phase: str, evaluations: int = EVALUATIONS) -> Start:
        found = learn_exactly(start, rows, judging, watch, phase, evaluations)
        return found._replace(density=-math.inf) if is_alias(found.kernel, shortest) else found

    learn_from_few = partial(learn_from, few)
    starts = {f"start x{factor:g}": _scaled(first, factor) for factor in factors}
    for i, start in enumerate(_with_periods(first, learning, shortest), 1):
        starts[f"start period {i}"] = start
    if len(starts) > 1 and len(few.x) > RACE_ROWS:
        fewer = _counting_as(learning.take(slice(RACE_ROWS)), source.total_weight)
        race = [partial(learn_from, fewer, start, phase, RACE_EVALUATIONS) for phase, start in starts.items()]
        ahead = best_of(race, watch)
        by_rows = None if ahead is None else best_of([partial(learn_from_few, ahead, "start")], watch) or ahead
    else:
        by_rows = best_of([partial(learn_from_few, start, phase) for phase, start in starts.items()], watch)
    if by_rows is not None and alternatives:
        learn_kernel = partial(learn_from_few, evaluations=KERNEL_EVALUATIONS)
        by_rows, chosen = choose_kernel(by_rows, alternatives, learn_kernel, judging, watch)
        first = first._replace(kernel=kernel if chosen is None else chosen)
        if chosen is not None and isinstance(chosen, AdditiveKernel):
            # A sum has several optima, and where the single kernel ended need not lead to the best.
            name = name_of_kernel(chosen)
            tries = [partial(learn_from_few, _scaled(first, f), f"start {name} x{f:g}") for f in factors]
            by_rows = (best_of(tries, watch) if watch.has_time else None) or by_rows
    if by_rows is None:
        return _scaled(first, 1.0)
    if is_exact(by_rows):
        return by_rows._replace(for_all_rows=True)

    def place(start: Start) -> CVGP:
        return _with_coreset(start, learning, min(size, CORESET_POINTS), rng)

    def judge(trial: CVGP) -> Start:
        return _judge(trial, first, learning, judging)

    def learn(start: Start, phase: str) -> Start:
        return judge(_learn_with_coreset(place(start), learning, watch, phase))

    best = best_of([lambda: judge(place(by_rows)), lambda: learn(by_rows, "start coreset")], watch)
    if best is None or best.density < by_rows.density - AS_GOOD:
        tries = [partial(learn, _scaled(first, factor), f"start coreset x{factor:g}") for factor in factors]
        others = best_of(tries, watch) if best is None or watch.has_time else None
        best = max((start for start in (best, others) if start), key=lambda start: start.density, default=None)
    return by_rows if best is None else best._replace(by_rows=by_rows)


def learn_exactly(
    start: Start, rows: Rows[Tensor], judging: Rows[Tensor], watch: Watch, phase: str, evaluations: int
) -> Start:
    """What the exact likelihood of some rows learns, and its density of others."""
    trial = _model(Coreset(rows.x, rows.y, np.ones(len(rows.x))), start)
    objective = ExactObjective(trial, distinct_rows(rows))
    begin = watch.own_seconds()
    found = maximise_by_lbfgs(objective, len(rows.x), watch, max_evaluations=evaluations, tol=START_TOL, phase=phase)
    expected = EVALUATION_SECONDS + exact_seconds(*rows.x.shape)
    watch.measure(max(found.num_iter, 1) * expected, watch.own_seconds() - begin)
    take_observations(trial, rows)
    evidence = -found.value * len(rows.x) - trial.log_prior().item()
    return _start_of(trial, start, judging)._replace(evidence=evidence)


def _learn_with_coreset(trial: CVGP, learning: Rows[Tensor], watch: Watch, phase: str) -> CVGP:
    """The trial after a short fit."""
    objective = TitsiasObjective(trial, lambda: [learning], len(learning.x))
    maximise_by_lbfgs(objective, len(learning.x), watch, max_evaluations=CORESET_EVALUATIONS, tol=0.0, phase=phase)
    return trial


def _judge(trial: CVGP, first: Start, learning: Rows[Tensor], judging: Rows[Tensor]) -> Start:
    """The density of unseen rows under the best coreset at the trial's pseudo-inputs."""
    solve_coreset(trial, [learning])
    return _start_of(trial, first, judging)


def _with_coreset(start: Start, learning: Rows[Tensor], size: int, rng: np.random.Generator) -> CVGP:
    """A model of a few points among the rows, with a noise that suits them."""
    x, y = learning.x.cpu().numpy(), learning.y.cpu().numpy()
    weight = None if learning.sample_weight is None else learning.sample_weight.cpu().numpy()
    points = min(size, max(len(x) // 2, 1))
    trial = _model(initial_coreset("kmeans", x, y, points, rng, sample_weight=weight, kernel=start.kernel), start)
    trial.to(learning.x.device)
    raise_noise(trial, learning)
    return trial


@torch.no_grad()
def raise_noise(model: CVGP, rows: Rows[Tensor]) -> None:
    """Raise the model's noise to the rung of a ladder that suits its coreset best, by the bound on some rows.

    A coreset that has yet to move explains less than an exact GP does. Under a noise far below what is left
    unexplained, a solver's cheapest way up is to give up the function and predict a constant.
    """
    variance = variance_of_y(rows)

    start, weight = model.noise.item(), len(rows.x) if rows.sample_weight is None else rows.sample_weight.sum().item()
    L_inv = whitener(model.jittered_covariance())
    sums_at_start = statistics(model, [rows])

    def bound_at(noise: float) -> float:
        model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
        sums = (
            statistics(model, [rows])
            if rows.noise_variance is not None
            else sums_at_start.at_noise(start, noise, weight)
        )
        return solve_titsias(sums, L_inv).value.item() + model.log_prior().item()

    best = max([start, *(share * variance for share in NOISE_LADDER if share * variance > start)], key=bound_at)
    model.likelihood.noise = torch.tensor(best, dtype=torch.float64)


def _model(coreset: Coreset, start: Start) -> CVGP:
    return CVGP(coreset, deepcopy(start.kernel), mean=deepcopy(start.mean), likelihood=start.likelihood())


def _start_of(model: CVGP, first: Start, judging: Rows[Tensor]) -> Start:
    """What a model has learned from a first start."""
    widen_to_gaps(model.kernel, judging.x)
    densities = row_densities(model, judging)
    noise = first.noise if first.noise_is_known else max(model.noise.item(), LEAST_START_NOISE * first.noise_floor)
    density = weighted_mean(densities, judging)
    return first._replace(kernel=model.kernel, mean=model.mean, noise=noise, density=density, densities=densities)


def _scaled(start: Start, factor: float) -> Start:
    """The same with lengthscales longer or shorter by a factor, as a copy."""
    kernel = deepcopy(start.kernel)
    _multiply_lengthscales(kernel, factor)
    return start._replace(kernel=kernel, mean=deepcopy(start.mean))


def _with_periods(start: Start, learning: Rows[Tensor], shortest: Tensor) -> list[Start]:
    """Copies with likely periods, where the kernel has periods to learn."""
    if not periodic_parts(start.kernel):
        return []
    rows, starts = learning.take(slice(EXACT_ROWS)), []
    for periods in candidate_periods(rows.x, rows.y, shortest, PERIODS):
        starts.append(_scaled(start, 1.0))
        set_periods(starts[-1].kernel, periods)
    return starts


def _two_parts(rows: Rows[Tensor], most: int, rng: np.random.Generator) -> tuple[Rows[Tensor], Rows[Tensor]]:
    """At most so many rows to learn from, and rows to judge by; a single row serves as both."""
    count = len(rows.x)
    order = torch.as_tensor(rng.permutation(count), device=rows.x.device)
    half = most if 2 * count >= 3 * most else (count + 1) // 2
    return rows.take(order[:half]), rows.take(order[half:] if count > 1 else order)


def _counting_as(rows: Rows[Tensor], total_weight: float) -> Rows[Tensor]:
    """Rows whose weights add up to that of all rows, or to their number if this is less.

    A part of rows that count little counts less still. It can be too little to tell a function from noise where all
    rows together can.
    """
    if rows.sample_weight is None:
        return rows
    factor = min(total_weight, len(rows.x)) / rows.sample_weight.sum().item()
    return rows._replace(sample_weight=rows.sample_weight * max(factor, 1.0))


def _lengthscales(kernel: Kernel) -> list[Kernel]:
    """The kernels whose lengthscale is to be learned; one that is frozen is not to be tried at other values."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    return [part for part in parts if part.raw_lengthscale.requires_grad]


def _multiply_lengthscales(kernel: Kernel, factor: float) -> None:
    """Make all lengthscales that are learned longer or shorter by one factor, as far as their constraints allow."""
    for part in _lengthscales(kernel):
        multiply_inside(part, "lengthscale", factor)
