"""One fit: decide everything in one place and in a fixed order, solve, and learn the noise.

A pinned decision is taken as it is, and nothing is searched for.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.fitting.checkpoint import Checkpoint, open_checkpoint
from cvgp.fitting.compare import Residuals, Scores, compare, coreset_residuals, simple_densities
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.kernel import (
    alternative_kernels,
    choose_kernel,
    share_lengthscale,
    starting_kernel,
    starting_mean,
    with_priors,
)
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import (
    Candidates,
    NeighborFit,
    adopt_neighbors,
    all_statistics,
    fit_neighbors,
    neighbors_are_affordable,
    reason_against_neighbors,
)
from cvgp.fitting.noise import NoiseFit, fit_noise, with_outputs
from cvgp.fitting.noise_map import NoiseRecipe, constant_noise_scores, noise_scores
from cvgp.fitting.options import InitName, ModelOptions, TrainingOptions
from cvgp.fitting.outputs import learn_factors, learn_near_factors
from cvgp.fitting.prepare import FitData
from cvgp.fitting.sample import Start
from cvgp.fitting.size import begin_model, choose_size, exact_is_affordable
from cvgp.fitting.solve import Plan, Solution, chosen_solver, make_plan, solve, warn_if_simpler_is_better
from cvgp.gp.kernels import HELD_ABOVE, HELD_AROUND, NOISE_FLOOR, is_held, name_of_kernel, release
from cvgp.gp.model import CVGP
from cvgp.objectives import CHUNK_ROWS, statistics
from cvgp.optim import Status


class Request(NamedTuple):
    """What a fit is given: scaled rows, and everything that the user has decided."""

    data: FitData
    options: ModelOptions
    settings: TrainingOptions
    run: Run
    pinned: Decisions = Decisions()
    init: InitName | Coreset = "kmeans"

    @property
    def size_is_open(self) -> bool:
        """Whether the fit is to choose the number of points."""
        return self.options.n_coreset is None and isinstance(self.init, str) and self.init == "kmeans"

    @property
    def by_lbfgs(self) -> bool:
        """Whether the rows are few enough for L-BFGS on all of them."""
        return chosen_solver(self.settings, self.data.train.num_rows, self.run) == "lbfgs"


class Fit(NamedTuple):
    """A finished fit and what it has decided."""

    result: NoiseFit
    decisions: Decisions

    @property
    def is_exact(self) -> bool:
        """Whether each row of the fit is a point of the coreset."""
        size = self.decisions.n_coreset
        return size is not None and size.value == {"size": len(self.result.solution.model.X_c), "exact": True}


def fit(request: Request) -> Fit:
    """Fit a model to scaled rows; the long solvers store their progress in a folder, if there is one."""
    folder = request.settings.checkpoint_dir
    if folder is None:
        return _fit(request, None)
    facts = {k: v for k, v in vars(request.settings).items() if k not in ("checkpoint_dir", "callbacks")}
    with open_checkpoint(folder, request.run, request.data.train, request.options, facts) as checkpoint:
        return _fit(request._replace(pinned=checkpoint.load_decisions() or request.pinned), checkpoint)


def _fit(request: Request, checkpoint: Checkpoint | None, *, may_shrink: bool = True) -> Fit:
    data, options, settings, run, _, _ = request
    source = data.train
    learns_noise = options.noise == "input-dependent" or (options.noise == "auto" and settings.solver != "paper")
    h, limit, training = run.heuristics, run.budget.max_time, run
    if limit is not None and learns_noise:
        reserved = min(h.noise_seconds + source.num_rows * h.noise_row_seconds, h.noise_share * limit)
        training = run._replace(budget=run.budget.reserving(reserved))
    begun = decide(request._replace(run=training))
    if checkpoint is not None:
        checkpoint.save_decisions(begun.decisions)
    if begun.neighbors is not None:
        found = begun.neighbors
        release(found.model.kernel, found.model.likelihood)
        sums = all_statistics(found.model, found.rows, found.predictions, source.group)
        kept, bound = adopt_neighbors(found.model, found.rows, found.num_neighbors, sums)
        solution = Solution(found.model, begun.plan.solver, bound, found.result, kept.statistics)
        finished = NoiseFit(solution, kept, found.predictions)
    else:
        solution = solve(
            begun.model,
            source,
            begun.plan,
            settings,
            training,
            checkpoint=checkpoint,
            validation=data.held_out,
            # Fewer points may be too few for an output that has less noise than the others.
            may_shrink=may_shrink and options.n_coreset is None and len(data.scaling.y_mean) == 1,
        )
        finished = NoiseFit(solution)
        if settings.max_iter is None and solution.result.status is not Status.INTERRUPTED:
            warn_if_simpler_is_better(solution.model, source, run)
    decisions, size = begun.decisions, len(solution.model.X_c)
    if size < len(begun.model.X_c):  # an exact GP that needs only some of its rows
        decisions = decisions.revised("n_coreset", taken=f"all rows, then {size} points kept")
    if len(data.scaling.y_mean) > 1 and not settings.early_stopping:
        model, near = solution.model, finished.kept
        learned = learn_factors(model, source, solution.statistics)[0] if near is None else None
        finished = finished._replace(factor=learned if near is None else learn_near_factors(model, near, run))
    if learns_noise and data.outliers is None:
        # The probability of what n rows have not shown, by the rule of succession (Laplace, 1814).
        finished = finished._replace(rare_share=1.0 / (source.total_weight + 2.0))
    finished, choice = _decide_noise(request, finished, learns_noise=learns_noise)
    return Fit(with_outputs(finished, source.group), decisions.with_choice("noise", choice))


class Begun(NamedTuple):
    """What a fit has decided, the model that it begins with, and the fit with neighbors, if they are used."""

    decisions: Decisions
    model: CVGP
    plan: Plan
    neighbors: NeighborFit | None = None


def decide(request: Request) -> Begun:
    """Decide everything that comes before the fit."""
    data, options, settings, run, _, init = request
    source, decisions, begin = data.train, data.decisions, run.budget.seconds
    neighbors_ruled_out = _reason_against(request)
    is_exact = _is_exact(request, may_use_neighbors=not neighbors_ruled_out)
    start, choice = _decide_kernel(request, is_exact=is_exact)
    decisions = decisions.with_choice("kernel", choice)
    size, choice = _decide_size(request, start, is_exact=is_exact)
    decisions = decisions.with_choice("n_coreset", choice)
    transform: Literal["log", "softplus"] = "softplus" if settings.solver == "paper" else "log"
    model = begin_model(start, source, size, run, init=init, beta_transform=transform, is_standard=data.spread is None)
    if not neighbors_ruled_out and is_exact and options.n_neighbors == "auto":
        neighbors_ruled_out = "the exact GP already uses every row"
    fit, brief, choice = _decide_neighbors(request, model, neighbors_ruled_out)
    decisions = decisions.with_choice("n_neighbors", choice)
    if request.pinned.solver is not None:
        plan = Plan(**request.pinned.solver.value)
    elif fit is not None:
        plan = Plan("closed form", tight=False, max_iter=0)
    else:
        plan = make_plan(settings, source.num_rows, len(model.X_c), model.X_c.shape[1], run, brief=brief)
    reason = "" if fit is None else "beside neighbors the places of points matter little"
    decisions = decisions.with_choice("solver", request.pinned.solver or Choice(plan.solver, asdict(plan), reason))
    if request.pinned.solver is None:  # or else all is known
        taken = ", ".join(f"{name} {choice.taken}" for name, choice in decisions)
        run.note("choose", f"{taken} ({run.budget.seconds - begin:.1f} s)")
    return Begun(decisions, model, plan, fit)


def _reason_against(request: Request) -> str:
    source, options, settings, run = request.data.train, request.options, request.settings, request.run
    count, h = options.n_neighbors, run.heuristics
    if count == 0:
        return "as asked for"
    reason = reason_against_neighbors(source, h)
    if count != "auto":
        if reason:
            raise InvalidInputError(f"n_neighbors={count} cannot be used: {reason}. Use n_neighbors=0, or 'auto'.")
        return ""
    asked = {
        "solver": settings.solver != "auto",
        "bound": settings.bound != "auto",
        "max_iter": settings.max_iter is not None,
        "early_stopping": settings.early_stopping,
    }
    if given := [name for name, is_given in asked.items() if is_given]:
        return f"{' and '.join(given)} asks for a trained coreset; a number for n_neighbors gives it neighbors too"
    if source.num_rows < h.least_rows_to_choose:
        return reason or f"{source.num_rows} rows are too few to judge them by"
    return reason


def _is_exact(request: Request, *, may_use_neighbors: bool) -> bool:
    pinned, data = request.pinned.n_coreset, request.data
    if pinned is not None:
        return bool(pinned.value["exact"])
    neighbors_are_wanted = may_use_neighbors and request.options.n_neighbors != "auto"
    if not (request.size_is_open and request.by_lbfgs) or neighbors_are_wanted:
        return False
    num_rows, dims = data.train.num_rows, len(data.scaling.x_mean)
    return exact_is_affordable(num_rows, dims, request.run)


def _decide_kernel(request: Request, *, is_exact: bool) -> tuple[Start, Choice]:
    data, options, _, run, pinned, _ = request
    dims, begin = len(data.scaling.x_mean), run.budget.seconds
    mean = starting_mean(options.mean, data.spread)
    floor = NOISE_FLOOR if data.spread is None else NOISE_FLOOR * data.spread.y**2
    if pinned.kernel is not None:
        return _start_from_json(pinned.kernel.value, options, mean, data, floor, run.heuristics), pinned.kernel
    is_long = data.train.num_rows >= run.heuristics.least_rows_to_choose
    may_be_rough = request.size_is_open and request.by_lbfgs and is_long
    make = partial(starting_kernel, num_dims=dims, ard=options.ard, spread=data.spread, tied=options.sphere)
    names = alternative_kernels(options.kernel, is_exact=is_exact and is_long, may_be_rough=may_be_rough)
    if data.train.num_rows < run.heuristics.linear_rows_per_column * dims:
        names = tuple(name for name in names if "linear" not in name)
    found = choose_kernel(
        make(options.kernel),
        mean,
        data.train,
        run.part(0.2),
        alternatives=[make(name) for name in names],
        noise_floor=floor,
        known_noise=data.known_noise,
    )
    shared = None
    if is_exact and options.ard and options.kernel in (None, "auto") and isinstance(data.train, MemorySource):
        shared, scores = share_lengthscale(found.start, data.train, run.part(0.2), data.spread, options.sphere)
        found.tried.update(scores)
    start = shared or found.start
    value = start_to_json(start) | {"ard": options.ard and shared is None}
    taken = value["name"] if shared is None else f"{value['name']}, one lengthscale"
    scored = Choice.scored({name: start.scores for name, start in found.tried.items()})
    return start, Choice(taken, value, "", scored, run.budget.seconds - begin)


def start_to_json(start: Start) -> dict[str, Any]:
    """What :class:`Decisions` keeps of a start."""
    states = [{name: tensor.tolist() for name, tensor in m.state_dict().items()} for m in (start.kernel, start.mean)]
    found = {"name": name_of_kernel(start.kernel), "noise": start.noise, "noise_is_known": start.noise_is_known}
    return found | {"kernel": states[0], "mean": states[1], "priors": is_held(start.kernel)}


def _own_names(state: Mapping[str, Any]) -> set[str]:
    """The names in a state dictionary, except for priors that a fit adds, which depend on the number of rows."""
    return {name for name in state if not {HELD_ABOVE, HELD_AROUND} & set(name.split("."))}


def with_all_rows(request: Request, found: Fit, data: FitData) -> Fit:
    """Fit an exact GP again, to all rows, starting from kernel and noise of its fit to fewer rows."""
    request.run.note("all rows", f"fitting kernel and noise again, to {data.train.num_rows} rows")
    model, decisions = found.result.solution.model, found.decisions
    assert decisions.kernel is not None, "a fit has a kernel"
    known = decisions.kernel.value
    start = Start(model.kernel, model.mean, model.noise.item(), noise_is_known=known["noise_is_known"])
    kernel = replace(decisions.kernel, value=start_to_json(start) | {name: known[name] for name in ("priors", "ard")})
    size = Choice("all rows", {"size": data.train.num_rows, "exact": True}, "the exact GP is affordable")
    pinned = replace(decisions, kernel=kernel, n_coreset=size)
    # It starts near its optimum.
    tol = max(request.settings.tol, request.run.heuristics.start_tol)
    settings = copy(request.settings).set_params(tol=tol)
    request = request._replace(data=data, pinned=pinned, settings=settings)
    again = _fit(request, None, may_shrink=False)  # a checkpoint would be that of fewer rows
    return again._replace(decisions=replace(decisions, n_coreset=again.decisions.n_coreset))


def _start_from_json(
    value: Any, options: ModelOptions, mean: Mean, data: FitData, floor: float, h: Heuristics
) -> Start:
    dims, rows = len(data.scaling.x_mean), data.train.num_rows
    kernel: str | Kernel = options.kernel if isinstance(options.kernel, Kernel) else value["name"]
    made = starting_kernel(kernel, dims, ard=value["ard"], spread=data.spread, tied=options.sphere)
    if value["priors"]:
        sample = data.train.sample(min(rows, 100), np.random.default_rng(0)).x
        made = with_priors(made, rows, sample.cpu(), 1.0, h)
    for module, stored in ((made, value["kernel"]), (mean, value["mean"])):
        own = module.state_dict()
        if _own_names(own) != _own_names(stored):
            raise InvalidInputError("The pinned kernel was decided for another kernel, mean or number of columns.")
        module.load_state_dict(own | {name: own[name].new_tensor(stored[name]) for name in own.keys() & stored.keys()})
    known = value["noise_is_known"]
    return Start(made, mean, value["noise"], noise_floor=floor, noise_is_known=known, name=value["name"])


def _decide_size(request: Request, start: Start, *, is_exact: bool) -> tuple[int, Choice]:
    data, options, _, run, pinned, init = request
    if pinned.n_coreset is not None and is_exact:
        size = data.train.num_rows
        return size, replace(pinned.n_coreset, value={"size": size, "exact": True})
    if pinned.n_coreset is not None:
        return int(pinned.n_coreset.value["size"]), pinned.n_coreset
    begin, scores, reason = run.budget.seconds, dict[str, Scores](), ""
    if isinstance(init, Coreset):
        size, reason = len(init), "the coreset that was given"
    elif options.n_coreset is not None:
        size, reason = options.n_coreset, "as asked for"
    elif is_exact:
        size, reason = data.train.num_rows, "the exact GP is affordable"
    else:
        curve = choose_size(start, data.train, run)
        size = int(run.agreed(curve.enough))
        shown = {0, curve.sizes.index(curve.enough), len(curve.sizes) - 1}
        scores = {str(curve.sizes[i]): curve.scores[i] for i in sorted(shown)}
    taken, value = "all rows" if is_exact else str(size), {"size": size, "exact": is_exact}
    return size, Choice(taken, value, reason, Choice.scored(scores), run.budget.seconds - begin)


def _decide_neighbors(request: Request, model: CVGP, ruled_out: str) -> tuple[NeighborFit | None, bool, Choice]:
    """The fit with neighbors, if they are used, and whether long training would gain little without them."""
    data, options, settings, run, pinned, _ = request
    source, h, begin = data.train, run.heuristics, run.budget.seconds

    def choice(
        fit: NeighborFit | None, reason: str, scores: Mapping[str, Scores] | None = None, *, brief: bool = False
    ) -> Choice:
        value: dict[str, Any] = {"count": fit.num_neighbors if fit else 0, "brief": brief}
        taken = str(fit.num_neighbors) if fit else "none"
        own, names = name_of_kernel(model.kernel), h.neighbor_kernels
        learned = own if fit is None else name_of_kernel(fit.model.kernel)
        if learned != own:
            # A pinned fit goes the same way.
            first, last = names.index(own), names.index(learned)
            value["kernels"] = names[first + 1 : last + 1] if last > first else names[last:first][::-1]
            taken += f", {learned}"
        return Choice(taken, value, reason, Choice.scored(scores or {}), run.budget.seconds - begin)

    def fit_or_keep(rows: MemorySource, candidates: Candidates) -> NeighborFit | None:
        """A kernel that is fitted to neighbors, or the model's own where no step can be made or none is wanted."""
        learn_kernel = settings.max_iter is None and rows.num_rows >= h.least_rows_to_choose
        fit = fit_neighbors(model, rows, candidates, run, learn_kernel=learn_kernel)
        return fit or fit_neighbors(model, rows, candidates, run, learn_kernel=False)

    def kernels(names: Sequence[str]) -> tuple[Kernel, ...]:
        sample = source.sample(min(source.num_rows, 100), np.random.default_rng(0)).x.cpu()
        made = (starting_kernel(name, sample.shape[1], ard=options.ard, tied=options.sphere) for name in names)
        return tuple(with_priors(kernel, source.num_rows, sample, 1.0, h) for kernel in made)

    def candidates(*counts: int) -> Candidates:
        """Numbers of neighbors, and the kernels on either side of the model's own, if the kernel is open."""
        names, own = h.neighbor_kernels, name_of_kernel(model.kernel)
        if options.kernel not in (None, "auto") or own not in names:
            return Candidates(counts)
        place = names.index(own)
        return Candidates(counts, kernels(names[place + 1 :]), kernels(names[:place][::-1]))

    if pinned.n_neighbors is not None:
        value, fit = pinned.n_neighbors.value, None
        if value["count"] and isinstance(source, MemorySource):
            known = Candidates((value["count"],), kernels(value.get("kernels", ())), is_known=True)
            fit = fit_or_keep(source, known)
        return fit, bool(value["brief"]), pinned.n_neighbors
    if not ruled_out and options.n_neighbors == "auto":
        ruled_out = "" if neighbors_are_affordable(source.num_rows, len(model.X_c), run) else "max_time is too short"
    if ruled_out or not isinstance(source, MemorySource):
        return None, False, choice(None, ruled_out)
    if options.n_neighbors != "auto":
        fit = fit_or_keep(source, candidates(int(options.n_neighbors)))
        return fit, False, choice(fit, "as asked for", fit.tried if fit else None)
    fit = fit_neighbors(model, source, candidates(h.default_neighbors, *h.more_neighbors), run)
    if fit is None:
        return None, False, choice(None, "no kernel could be fitted to them")
    judged, residuals = fit.judged(h)
    without = _coreset_alone(model, source, fit.rows, judged)
    alone, near = constant_noise_scores(model, without), constant_noise_scores(fit.model, residuals)
    mapped = noise_scores(fit.model, residuals, run)
    if run.agreed(compare(mapped, near).gain > h.least_noise_gain):  # or else the noisiest rows would decide
        alone, near = noise_scores(model, without, run), mapped
    is_good = near.density >= max(simple_densities(judged))
    is_taken = bool(run.agreed(compare(near, alone).is_clear and is_good))
    scores = fit.tried | {"coreset and neighbors": near, "coreset alone": alone}
    fit = fit if is_taken else None
    return fit, is_good, choice(fit, "", scores, brief=is_good)


def _coreset_alone(model: CVGP, source: MemorySource, rows: Rows[Tensor], judged: Rows[Tensor]) -> Residuals:
    """Residuals of rows under the coreset of all others; of rows with a time, under that of earlier stretches."""
    if rows.cluster is None or judged.cluster is None or judged.time is None:
        return coreset_residuals(model, statistics(model, source.chunks(CHUNK_ROWS), source.group), judged)
    found = []
    for stretch in judged.cluster.unique():  # in order, as the rows are
        before = MemorySource(*rows.take(rows.cluster < stretch)).chunks(CHUNK_ROWS)
        own = judged.take(judged.cluster == stretch)
        found.append(coreset_residuals(model, statistics(model, before), own, are_new=True))
    return Residuals(*(None if own[0] is None else torch.cat(own) for own in zip(*found, strict=True)))  # type: ignore[arg-type]


def _decide_noise(request: Request, fit: NoiseFit, *, learns_noise: bool) -> tuple[NoiseFit, Choice]:
    data, options, _, run, pinned, _ = request
    source, begin = data.train, run.budget.seconds
    if pinned.noise is not None:
        value = pinned.noise.value
        fit = fit if value is None else fit_noise(fit, source, run, recipe=NoiseRecipe(**value))
        return fit, pinned.noise
    if learns_noise:
        always = options.noise == "input-dependent"
        fit = fit_noise(fit, source, run, always=always, normal_tails=data.outliers is not None)
    reason = "" if options.noise == "auto" and learns_noise else "as asked for"
    recipe, candidates, seconds = fit.recipe, Choice.scored(fit.candidates), run.budget.seconds - begin
    if recipe is None:
        return fit, Choice("constant", None, reason, candidates, seconds)
    parts = [f"{recipe.tails} tails"]
    parts += ["variance discounted"] if recipe.discounts_variance else []
    parts += ["rows re-weighted"] if recipe.rounds else []
    return fit, Choice(f"input-dependent ({', '.join(parts)})", recipe._asdict(), reason, candidates, seconds)
