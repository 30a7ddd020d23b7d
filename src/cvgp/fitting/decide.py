"""The one place where a fit decides: rows and options in, `Decisions` out, with the model that they begin.

The order is fixed. Outliers and transforms come first (:mod:`cvgp.fitting.prepare`), then the kernel, the number of
pseudo-points, neighbors and the solver. What the noise is like is decided after the fit, from its residuals
(:mod:`cvgp.fitting.noise`). A pinned decision is taken as it is, and nothing is searched for.
"""

import math
from copy import deepcopy
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.coreset import Coreset
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.fitting.compare import Scores
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.kernel import alternative_kernels, choose_kernel, starting_kernel, starting_mean, with_priors
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import (
    NeighborFit,
    choose_neighbors,
    find_near,
    fit_neighbors,
    in_random_order,
    neighbors_are_affordable,
    predict_sequentially,
    reason_against_neighbors,
)
from cvgp.fitting.noise import NoiseFit, NoiseRecipe
from cvgp.fitting.options import Settings
from cvgp.fitting.place import InitName
from cvgp.fitting.prepare import FitData, ModelOptions
from cvgp.fitting.sample import Start
from cvgp.fitting.size import choose_size, exact_is_affordable
from cvgp.fitting.solve import Plan, chosen_solver, make_plan
from cvgp.fitting.start import begin_model
from cvgp.gp.kernels import HELD_ABOVE, HELD_AROUND, NOISE_FLOOR, is_held, name_of_kernel
from cvgp.gp.model import CVGP
from cvgp.objectives import CHUNK_ROWS, statistics
from cvgp.optim import Result, Status


class Request(NamedTuple):
    """What a fit is given: scaled rows, and everything that the user has decided."""

    data: FitData
    """The rows, with the decisions about them."""
    options: ModelOptions
    settings: Settings
    run: Run
    """The time limit, the history and the heuristics."""
    pinned: Decisions = Decisions()
    """Decisions that are taken as they are."""
    init: InitName | Coreset = "kmeans"
    """Where the coreset starts; a coreset is in the units of the model."""

    @property
    def size_is_open(self) -> bool:
        """Whether the fit is to choose the number of points."""
        return self.options.n_coreset is None and isinstance(self.init, str) and self.init == "kmeans"

    @property
    def by_lbfgs(self) -> bool:
        """Whether the rows are few enough for L-BFGS on all of them."""
        return chosen_solver(self.settings, self.data.train.num_rows, self.run) == "lbfgs"


class Begun(NamedTuple):
    """What a fit has decided, and the model that it begins with."""

    decisions: Decisions
    model: CVGP
    plan: Plan
    neighbors: NeighborFit | None = None
    """The fit with neighbors, if they are used."""


def decide(request: Request) -> Begun:
    """Decide everything that comes before the fit."""
    data, options, settings, run, _, init = request
    source, decisions, begin = data.train, data.decisions, run.budget.seconds
    neighbors_ruled_out = _reason_against(request)
    is_exact = _is_exact(request, may_use_neighbors=not neighbors_ruled_out)
    start, choice = _decide_kernel(request)
    decisions = decisions.with_choice("kernel", choice)
    size, choice = _decide_size(request, start, is_exact=is_exact)
    decisions = decisions.with_choice("n_coreset", choice)
    model = begin_model(
        start,
        source,
        size,
        run,
        init=init,
        beta_transform="softplus" if settings.solver == "paper" else "log",
        is_standard=data.spread is None,
    )
    if not neighbors_ruled_out and is_exact and options.n_neighbors == "auto":
        neighbors_ruled_out = "the exact GP already uses every row"
    fit, brief, choice = _decide_neighbors(request, model, neighbors_ruled_out)
    decisions = decisions.with_choice("n_neighbors", choice)
    plan, choice = _decide_solver(request, model, uses_neighbors=fit is not None, brief=brief)
    decisions = decisions.with_choice("solver", choice)
    run.note("choose", _summary(decisions, run.budget.seconds - begin))
    return Begun(decisions, model, plan, fit)


def _summary(decisions: Decisions, seconds: float) -> str:
    taken = ", ".join(f"{name} {choice.taken}" for name, choice in decisions)
    return f"{taken} ({seconds:.1f} s)"


def _reason_against(request: Request) -> str:
    """Why neighbors are not even tried; empty if they are."""
    source, options, settings, run = request.data.train, request.options, request.settings, request.run
    count, h = options.n_neighbors, run.heuristics
    if count == 0:
        return "as asked for"
    reason = reason_against_neighbors(source, h)
    if count != "auto":
        if reason:
            raise InvalidInputError(f"n_neighbors={count} cannot be used: {reason}. Use n_neighbors=0, or 'auto'.")
        return ""
    if not settings.leaves_training_open:
        return "the training options say how the coreset is to be trained"
    if source.num_rows < h.least_rows_to_choose:
        return reason or f"{source.num_rows} rows are too few to judge them by"
    return reason


def _is_exact(request: Request, *, may_use_neighbors: bool) -> bool:
    """Whether every row becomes a point."""
    pinned, source = request.pinned.n_coreset, request.data.train
    if pinned is not None:
        return bool(pinned.value["exact"])
    neighbors_are_wanted = may_use_neighbors and request.options.n_neighbors != "auto"
    if not (request.size_is_open and request.by_lbfgs) or neighbors_are_wanted:
        return False
    dims = len(request.data.scaling.x_mean)
    return exact_is_affordable(source.num_rows, dims, request.run, has_neighbors=may_use_neighbors)


def _decide_kernel(request: Request) -> tuple[Start, Choice]:
    """Where kernel, mean and noise start."""
    data, options, _, run, pinned, _ = request
    dims, begin = len(data.scaling.x_mean), run.budget.seconds
    mean = starting_mean(options.mean, data.spread)
    floor = NOISE_FLOOR if data.spread is None else NOISE_FLOOR * data.spread.y**2
    if pinned.kernel is not None:
        return _start_from_json(pinned.kernel.value, options, mean, data, floor), pinned.kernel
    is_long = data.train.num_rows >= run.heuristics.least_rows_to_choose
    may_be_rough = request.size_is_open and request.by_lbfgs and is_long
    found = choose_kernel(
        starting_kernel(options.kernel, dims, ard=options.ard, spread=data.spread),
        mean,
        data.train,
        run.part(0.2),
        alternatives=alternative_kernels(
            options.kernel, dims, ard=options.ard, may_be_rough=may_be_rough, spread=data.spread
        ),
        noise_floor=floor,
        known_noise=data.known_noise,
    )
    scores: dict[str, Scores | None] = {name: start.scores for name, start in found.tried.items()}
    name = name_of_kernel(found.start.kernel)
    choice = Choice(name, _start_to_json(found.start), "", Choice.scored(scores), run.budget.seconds - begin)
    return found.start, choice


def _start_to_json(start: Start) -> dict[str, Any]:
    def state(module: torch.nn.Module) -> dict[str, Any]:
        return {name: [list(tensor.shape), tensor.reshape(-1).tolist()] for name, tensor in module.state_dict().items()}

    return {
        "name": name_of_kernel(start.kernel),
        "kernel": state(start.kernel),
        "mean": state(start.mean),
        "noise": start.noise,
        "noise_is_known": start.noise_is_known,
        "priors": is_held(start.kernel, HELD_ABOVE, HELD_AROUND),
    }


def _start_from_json(value: Any, options: ModelOptions, mean: Mean, data: FitData, floor: float) -> Start:
    """A start as it was stored, with the parts of the present options."""
    dims, rows = len(data.scaling.x_mean), data.train.num_rows
    kernel: str | Kernel = options.kernel if isinstance(options.kernel, Kernel) else value["name"]
    made = starting_kernel(kernel, dims, ard=options.ard, spread=data.spread)
    if value["priors"]:
        sample = data.train.sample(min(rows, 100), np.random.default_rng(0)).x
        made = with_priors(made, rows, sample.cpu(), 1.0)
    mean = deepcopy(mean)
    for module, stored in ((made, value["kernel"]), (mean, value["mean"])):
        own = module.state_dict()
        if set(own) != set(stored):
            raise InvalidInputError("The pinned kernel was decided for another kernel, mean or number of columns.")
        tensors = {
            name: torch.tensor(values, dtype=own[name].dtype).reshape(shape) for name, (shape, values) in stored.items()
        }
        module.load_state_dict(tensors)
    return Start(
        made,
        mean,
        value["noise"],
        noise_floor=floor,
        noise_is_known=value["noise_is_known"],
        name=value["name"],
    )


def _decide_size(request: Request, start: Start, *, is_exact: bool) -> tuple[int, Choice]:
    """How many pseudo-points."""
    data, options, _, run, pinned, init = request
    if pinned.n_coreset is not None:
        return int(pinned.n_coreset.value["size"]), pinned.n_coreset
    if isinstance(init, Coreset):
        return len(init), _size_choice(len(init), "the coreset that was given")
    if options.n_coreset is not None:
        return options.n_coreset, _size_choice(options.n_coreset, "as asked for")
    if is_exact:
        rows = data.train.num_rows
        return rows, _size_choice(rows, "the exact GP is affordable", exact=True)
    begin, curve = run.budget.seconds, choose_size(start, data.train, run)
    size = int(run.agreed(curve.enough))
    shown = {0, curve.sizes.index(curve.enough), len(curve.sizes) - 1}
    scores: dict[str, Scores | None] = {str(curve.sizes[i]): curve.scores[i] for i in sorted(shown)}
    return size, _size_choice(size, "", scores=scores, seconds=run.budget.seconds - begin)


def _size_choice(
    size: int,
    reason: str,
    *,
    exact: bool = False,
    scores: dict[str, Scores | None] | None = None,
    seconds: float = 0.0,
) -> Choice:
    taken = "all rows" if exact else str(size)
    return Choice(taken, {"size": size, "exact": exact}, reason, Choice.scored(scores or {}), seconds)


def _decide_neighbors(request: Request, model: CVGP, ruled_out: str) -> tuple[NeighborFit | None, bool, Choice]:
    """The fit with neighbors, if they are used, and whether long training would gain little without them."""
    data, options, settings, run, pinned, _ = request
    source = data.train
    h, begin = run.heuristics, run.budget.seconds
    if pinned.n_neighbors is not None:
        value = pinned.n_neighbors.value
        fit = None
        if value["count"]:
            assert isinstance(source, MemorySource), "checked before"
            fit = _fit_or_adopt(model, source, value["count"], settings, run, start=value["start"])
        return fit, bool(value["brief"]), pinned.n_neighbors
    if not ruled_out and options.n_neighbors == "auto":
        ruled_out = "" if neighbors_are_affordable(source.num_rows, len(model.X_c), run) else "max_time is too short"
    if ruled_out or not isinstance(source, MemorySource):
        return None, False, Choice("none", _neighbor_value(0, None), ruled_out)
    if options.n_neighbors != "auto":
        count = int(options.n_neighbors)
        fit = _fit_or_adopt(model, source, count, settings, run)
        value = _neighbor_value(count, fit.start)
        return fit, False, Choice(str(count), value, "as asked for", seconds=run.budget.seconds - begin)
    found = fit_neighbors(model, source, h.default_neighbors, run, tol=settings.tol)
    if found is None:
        reason = "no kernel could be fitted to them"
        return None, False, Choice("none", _neighbor_value(0, None), reason, seconds=run.budget.seconds - begin)
    alone = deepcopy(model)
    sums = statistics(alone, source.chunks(CHUNK_ROWS), source.group)
    verdict = choose_neighbors(found, alone, sums, run)
    is_taken = bool(run.agreed(verdict.comparison.is_clear and verdict.is_good))
    scores: dict[str, Scores | None] = {
        f"{found.num_neighbors} neighbors": verdict.with_neighbors,
        "coreset alone": verdict.coreset_alone,
    }
    value = _neighbor_value(
        found.num_neighbors if is_taken else 0, found.start if is_taken else None, brief=verdict.is_good
    )
    choice = Choice(
        str(found.num_neighbors) if is_taken else "none", value, "", Choice.scored(scores), run.budget.seconds - begin
    )
    return (found if is_taken else None), verdict.is_good, choice


def _neighbor_value(count: int, start: str | None, *, brief: bool = False) -> dict[str, Any]:
    return {"count": count, "start": start, "brief": brief}


def _fit_or_adopt(
    model: CVGP, source: MemorySource, count: int, settings: Settings, run: Run, start: str | None = None
) -> NeighborFit:
    """A kernel that is fitted to neighbors, or the model's own where no step can be made or none is wanted."""
    h = run.heuristics
    if settings.max_iter is None and source.num_rows >= h.least_rows_to_choose and start != "unchanged":
        fit = fit_neighbors(model, source, count, run, tol=settings.tol, start=start)
        if fit is not None:
            return fit
    rows, own = in_random_order(source.data, run.seed), deepcopy(model)
    predictions = predict_sequentially(own, rows, find_near(own, rows, count, h, source.group), source.group)
    return NeighborFit(own, "unchanged", Result(Status.CONVERGED, math.nan, 0), rows, predictions, count)


def _decide_solver(request: Request, model: CVGP, *, uses_neighbors: bool, brief: bool) -> tuple[Plan, Choice]:
    """How the coreset is trained; with neighbors it is solved for where it is."""
    source, settings, run, pinned = request.data.train, request.settings, request.run, request.pinned
    if pinned.solver is not None:
        return Plan(**pinned.solver.value), pinned.solver
    if uses_neighbors:
        plan, reason = Plan("closed form", tight=False, max_iter=0), "beside neighbors its places matter little"
    else:
        plan, reason = make_plan(settings, source.num_rows, len(model.X_c), model.X_c.shape[1], run, brief=brief), ""
    return plan, Choice(plan.solver, asdict(plan), reason)


def noise_choice(fit: NoiseFit, seconds: float, *, reason: str = "") -> Choice:
    """The decision about the noise of a finished fit."""
    recipe, candidates = fit.recipe, Choice.scored(fit.candidates)
    if recipe is None:
        return Choice("constant", None, reason, candidates, seconds)
    parts = [f"strength {recipe.strength:g}", f"{recipe.tails} tails"]
    parts += ["variance discounted"] if recipe.discounts_variance else []
    parts += [f"rows re-weighted {recipe.rounds} times"] if recipe.rounds else []
    return Choice(f"input-dependent ({', '.join(parts)})", recipe._asdict(), reason, candidates, seconds)


def noise_recipe(choice: Choice | None) -> NoiseRecipe | None:
    """The recipe of a pinned decision about the noise."""
    return None if choice is None or choice.value is None else NoiseRecipe(**choice.value)
