"""Fits of classes and counts: choices by a regression on the scale of f, then the latent values themselves (§16).

The input warp, the initial kernel and the size of the coreset are chosen by a regression on linked targets: classes as
-1 and 1, counts as logarithms. If rows are few for the columns, one lengthscale beside a linear kernel, and a linear
kernel alone, are tried too, by cross-validation of the whole fit. If rows of classes are many, a sum with a rough
kernel is tried, by rows that are left out.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, learn_warped_scaling
from cvgp.data.source import MemorySource
from cvgp.errors import CVGPWarning
from cvgp.fitting.checkpoint import open_checkpoint
from cvgp.fitting.compare import STANDARD_ERRORS, Scores, compare, folds_of, weight_of
from cvgp.fitting.decide import Begun, Request, decide, start_to_json
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.kernel import ROUGH_KERNELS, starting_kernel, with_priors
from cvgp.fitting.latents import SCALE_FACTOR, LatentFit, Latents, Stream, fit_latents, multiply_variance, widened
from cvgp.fitting.monitor import FitLog, Run
from cvgp.fitting.options import ModelOptions, TrainingOptions
from cvgp.fitting.prepare import FitData, check_fingerprints, choose_scaling, decide_warp, scaled_rows, spread_of
from cvgp.fitting.privacy import check_rows, spread_of_inputs
from cvgp.fitting.sample import DEFAULT_KERNEL, Start, learn_correlation, weigh_clusters
from cvgp.gp.kernels import name_of_kernel
from cvgp.gp.likelihoods import Classes, Likelihood
from cvgp.gp.model import CVGP

LATENT_SOLVER = "sites and L-BFGS"
LATENT_VARIANCE = 4.0  # of f at the start, times that of the linked targets
LEAST_NOISE = 0.05  # of the linked targets, in their standard deviations
FOLDS = 3
TRIAL_TOLERANCE = 1e-3  # nats per row: fits to folds choose the same as with a tenth of it, in two thirds of the time
RIDGE = 1.0  # of a generalized linear model: the penalty of a standardized slope


class KindFit(NamedTuple):
    """A fit of latent values, how inputs are scaled, and what was decided."""

    fit: LatentFit
    scaling: Scaling  # whose y are the latent values, around their constants
    decisions: Decisions


def fit_kind(
    rows: Rows[Array],
    likelihood: Likelihood,
    options: ModelOptions,
    settings: TrainingOptions,
    run: Run,
    pinned: Decisions,
    blocks: Callable[[], Iterable[Rows[Array]]] | None = None,
) -> KindFit:
    """Fit latent values to rows, whose y `[n, 1]` the likelihood describes; copies are merged into one row.

    If there are more rows than fit into memory, `rows` are a sample, and `blocks` gives all of this process. Rows of
    groups then have their weights already.
    """
    h, begin, folder = run.heuristics, run.budget.seconds, settings.checkpoint_dir
    if options.private:
        check_rows(len(rows.x), options.n_coreset)
    check_fingerprints(rows.x, options.kernel)
    choosing = run.choosing(folder)
    weight, exposure = _weights(rows), _mean_exposure(rows)
    linked, of_classes = linked_rows(rows, likelihood), isinstance(likelihood, Classes)
    if not of_classes:
        # A regression without any noise would begin with huge scales, and with fewer points than they need.
        noise = LEAST_NOISE * linked.y.std() * run.rng("linked").standard_normal(linked.y.shape)
        linked = linked._replace(y=linked.y + noise)
    if linked.cluster is not None and linked.time is None and blocks is None:
        linked = weigh_clusters(linked, learn_correlation(linked, choosing))
        rows = rows._replace(sample_weight=linked.sample_weight)
    warp, warp_choice = decide_warp(linked, options, choosing, pinned)
    learned = learn_warped_scaling(warp, linked).with_common_scale(options.sphere)
    scaling = choose_scaling(learned, options)
    source = scaled_rows(linked, scaling, options.device, run.group)
    data = FitData(source, None, scaling, spread_of(scaling, learned), None)
    plain = scaling._replace(y_mean=np.zeros(1), y_scale=np.ones(1))
    facts = options, settings.heuristics, likelihood
    with nullcontext() if folder is None else open_checkpoint(folder, run, source, *facts) as checkpoint:
        stored = None if checkpoint is None else checkpoint.load_decisions()
        pinned = replace(stored or pinned, n_neighbors=None, solver=None)
        # A regression on classes sees too little of what more points gain, and of the steps in their log-odds.
        most, is_long = h.largest_latent_coreset, of_classes and len(rows.x) >= h.least_rows_to_choose
        sizes = replace(h, largest_coreset=most, smallest_coreset=most if is_long else h.smallest_coreset)
        few = choosing._replace(heuristics=replace(sizes, exact_seconds=0.0))

        def begin_with(kernel: str | Kernel | None) -> Begun:
            return decide(Request(data, replace(options, kernel=kernel), settings, few, pinned))

        begun = begin_with(DEFAULT_KERNEL if options.kernel is None else options.kernel)
        constant = torch.as_tensor(likelihood.constant(rows.y[:, 0], weight) - np.log(exposure), device=source.device)
        scaled = plain.tensors(rows, device=options.device)
        # Numbers vary as much on the scale of f as their logarithms do; the logits of clear classes vary more.
        factor = LATENT_VARIANCE if of_classes else scaling.y_scale[0] ** 2
        if pinned.kernel is None:
            may_be_rough = options.kernel is None and of_classes and run.has_time
            begun = _choose_start(
                begun,
                partial(begin_with, *ROUGH_KERNELS) if may_be_rough else None,
                _Trials(scaled, likelihood, constant, factor, choosing),
                may_be_simple=options.kernel in (None, "auto") and options.ard,
            )
        multiply_variance(begun.model, factor)
        alone = Choice("none", {"count": 0, "brief": False}, "not for classes and counts")
        made = {"input_warp": warp_choice, "n_neighbors": alone}
        decisions = replace(begun.decisions, **made, solver=None, seed=run.seed)
        if checkpoint is not None:
            checkpoint.save_decisions(decisions)
        every = None
        if blocks is not None:
            every = Stream(lambda: map(partial(plain.tensors, device=options.device), blocks()), run.group)
        latents = Latents.begin(begun.model, constant, likelihood)
        wider = None if decisions.kernel is None else decisions.kernel.value.get("wider")
        spread = spread_of_inputs(data) if options.private else None
        own: Any = {"widen": wider, "every": every, "checkpoint": checkpoint, "keep_apart": spread}
        found = fit_latents(latents, scaled, run, most_rows=h.latent_rows, **own)
    if run.group.rank == 0:
        if found.is_partial:
            text = "max_time ended the fit before the coreset was solved for with all rows; give it more time."
            warnings.warn(text, CVGPWarning, stacklevel=4)
        _warn_if_simpler_is_better(found, likelihood, run)
    solver = Choice(LATENT_SOLVER, None, "", {}, run.budget.seconds - begin)
    return KindFit(found, scaling, replace(decisions, solver=solver))


def linked_rows(rows: Rows[Array], likelihood: Likelihood) -> Rows[Array]:
    """Rows with observations [n, L] on the scale of f, those of counts for the mean exposure."""
    usual = rows.y[:, 0] if rows.exposure is None else rows.y[:, 0] * _mean_exposure(rows) / rows.exposure
    return rows._replace(y=likelihood.linked(usual).reshape(len(rows.x), -1), exposure=None)


def _mean_exposure(rows: Rows[Array]) -> float:
    return 1.0 if rows.exposure is None else float(np.average(rows.exposure, weights=_weights(rows)))


def _weights(rows: Rows[Array]) -> Array:
    return np.ones(len(rows.x)) if rows.sample_weight is None else rows.sample_weight


class _Trials(NamedTuple):
    """Fits of scaled rows, by which starts are compared."""

    rows: Rows[Tensor]
    likelihood: Likelihood
    constant: Tensor
    factor: float  # of the variance of f, over that of linked targets
    run: Run

    def fit(
        self, start: CVGP, rows: Rows[Tensor], share: float, most_rows: int, widen: float | None = None
    ) -> LatentFit:
        """A brief fit of some rows from a start, which stays as it is, in a share of the time."""
        latents = Latents.begin(start, self.constant, self.likelihood).copied()
        multiply_variance(latents.first, self.factor)
        quiet = self.run.part(share)._replace(log=FitLog())
        return fit_latents(latents, rows, quiet, most_rows=most_rows, tol=TRIAL_TOLERANCE, widen=widen)


def _choose_start(
    begun: Begun, begin_rough: Callable[[], Begun] | None, trials: _Trials, *, may_be_simple: bool
) -> Begun:
    """A start with a rough part if rows are many, or with fewer parameters if they are few, or the given one."""
    (num_rows, dims), h, budget = trials.rows.x.shape, trials.run.heuristics, trials.run.budget
    known = begun.decisions.kernel
    assert known is not None, "a fit has a kernel"
    begin = budget.seconds - known.seconds
    if num_rows >= h.latent_rows_per_column * dims:
        if begin_rough is not None and num_rows >= h.rough_latent_rows:
            begun = _rougher(begun, begin_rough(), trials)
    elif may_be_simple and num_rows > 2 * FOLDS and dims > 1:
        begun = _fewer_parameters(begun, known.value, trials)
    return begun._replace(decisions=begun.decisions.revised("kernel", seconds=budget.seconds - begin))


def _rougher(smooth: Begun, rough: Begun, trials: _Trials) -> Begun:
    """The start under which rows that are left out are likelier."""
    run, starts, scores = trials.run, (smooth, rough), dict[str, Scores]()
    for begun in starts:
        found = trials.fit(begun.model, trials.rows, 0.1, run.heuristics.rough_trial_rows)
        scores[name_of_kernel(begun.model.kernel)] = found.left_out
    by_smooth, by_rough = (found.density for found in scores.values())
    taken = starts[int(run.agreed(by_rough > by_smooth))]
    return taken._replace(decisions=taken.decisions.revised("kernel", candidates=Choice.scored(scores)))


def _fewer_parameters(begun: Begun, value: dict[str, Any], trials: _Trials) -> Begun:
    """ARD, one lengthscale beside a line, or a line, by cross-validated density.

    The value of the choice also says by how much to multiply the prior variance of f after the fit.
    """
    rows, likelihood, _, _, run = trials
    h, model, dims = run.heuristics, begun.model, rows.x.shape[1]
    sample = MemorySource(*rows).sample(100, np.random.default_rng(0)).x.cpu()

    def with_kernel(name: str) -> CVGP:
        kernel = with_priors(starting_kernel(name, dims, ard=False), len(rows.x), sample, 1.0, h)
        return CVGP(model.coreset, kernel, mean=model.mean, likelihood=model.likelihood).to(rows.x.device)

    name = name_of_kernel(model.kernel)
    candidates = {name: model}
    candidates[f"{name}+linear, one lengthscale"] = with_kernel(f"{name}+linear")
    candidates["linear"] = with_kernel("linear")
    folds = folds_of(rows, FOLDS, run.rng("folds"))
    parts = [(rows.take(folds != fold), rows.take(folds == fold)) for fold in range(FOLDS)]

    def scored(fits: Sequence[Latents]) -> Scores:
        return Scores.join([density_of(fit, unseen) for fit, (_, unseen) in zip(fits, parts, strict=True)])

    found: dict[str, list[Latents]] = {}
    scores: dict[str, Scores] = {}
    for label, candidate in candidates.items():
        if scores and not run.has_time:
            break
        found[label] = [trials.fit(candidate, seen, 0.05, h.latent_rows, widen=1.0).latents for seen, _ in parts]
        scores[label] = scored(found[label])
    best = max(scores, key=lambda label: scores[label].density)
    taken = list(candidates)[int(run.agreed(list(candidates).index(best)))]
    fits, so_far, factor = found[taken], scores[taken], 1.0
    while run.has_time and isinstance(likelihood, Classes):
        sources = [MemorySource(*seen, group=run.group) for seen, _ in parts]
        fits = [widened(fit, seen, SCALE_FACTOR)[0] for fit, seen in zip(fits, sources, strict=True)]
        wider = scored(fits)
        scores[f"{taken}, variance times {factor * SCALE_FACTOR:g}"] = wider
        if not run.agreed(compare(wider, so_far).is_clear):
            break
        so_far, factor = wider, factor * SCALE_FACTOR
    chosen = candidates[taken]
    if chosen is not model:
        value = start_to_json(Start(chosen.kernel, chosen.mean, chosen.noise.item())) | {"ard": False}
    changes = {"taken": taken, "value": value | {"wider": factor}, "candidates": Choice.scored(scores)}
    decisions = begun.decisions.revised("kernel", reason="few rows for the columns", **changes)
    return begun._replace(model=chosen, decisions=decisions)


@torch.no_grad()
def density_of(latents: Latents, rows: Rows[Tensor]) -> Scores:
    """How likely rows are under latent values that have not seen them."""
    found = [model.process()(rows.x) for model in latents.models]
    f_mean = torch.stack([f.mean for f in found], 1) + latents.offset(rows)
    density = latents.likelihood.log_predictive(rows.y, f_mean, torch.stack([f.variance for f in found], 1))
    return Scores.of(rows, density)


def _warn_if_simpler_is_better(found: LatentFit, likelihood: Likelihood, run: Run) -> None:
    """Warn if a constant or a generalized linear model is clearly likelier for a sample of rows without themselves."""
    h, rng, rows = run.heuristics, run.rng("compare"), found.rows
    some = torch.as_tensor(rng.permutation(len(rows.x))[: run.rows(h.compared_rows)], device=rows.x.device)
    if len(some) <= 2 * FOLDS:
        return
    sample = rows.take(some)
    ours = Scores.of(sample, found.left_out.densities[some])
    simple = {
        "a constant": simple_scores(sample._replace(x=torch.zeros_like(sample.x[:, :1])), likelihood),
        "a generalized linear model": simple_scores(sample, likelihood),
    }
    name = max(simple, key=lambda name: simple[name].density)
    if compare(simple[name], ours).is_likelier(STANDARD_ERRORS, h.margin):
        warnings.warn(
            f"Rows that are left out have a mean log density of {ours.density:.2f} nats under the fit, and "
            f"{simple[name].density:.2f} under {name}. Give it more time or pseudo-points, try kernel='linear', or "
            "look for extreme values in X and y.",
            ConvergenceWarning,
            stacklevel=5,
        )


@torch.no_grad()
def simple_scores(rows: Rows[Tensor], likelihood: Likelihood) -> Scores:
    """Scores of rows in random order under a generalized linear model of the other folds."""
    folds = folds_of(rows, FOLDS)
    x = torch.cat([torch.ones_like(rows.y[:, None]), rows.x], 1)
    offset = torch.zeros_like(rows.y) if rows.exposure is None else rows.exposure.log()
    density = torch.empty_like(rows.y)
    for fold in range(FOLDS):
        inside, outside = folds != fold, folds == fold
        slopes, learned = _linear_fit(x[inside], offset[inside, None], rows.take(inside), likelihood)
        f = x[outside] @ slopes + offset[outside, None]
        density[outside] = learned.log_predictive(rows.y[outside], f, torch.zeros_like(f))
    return Scores.of(rows, density)


def _linear_fit(x: Tensor, offset: Tensor, rows: Rows[Tensor], likelihood: Likelihood) -> tuple[Tensor, Likelihood]:
    """Slopes [P, L] of a generalized linear model, the first of which are constants, and its likelihood."""
    from scipy.optimize import minimize

    weight, shape = weight_of(rows), (x.shape[1], likelihood.num_latents)
    slopes: Array = np.zeros(shape)
    slopes[0] = likelihood.constant(rows.y.cpu().numpy(), weight.cpu().numpy())
    slopes[0] -= (weight @ offset / weight.sum()).item()

    def values(flat: Array) -> Tensor:
        return x @ torch.as_tensor(flat.reshape(shape), device=x.device) + offset  # [n, L]

    def negative(flat: Array) -> tuple[float, Array]:
        f, penalized = values(flat), flat.reshape(shape) * (np.arange(len(x[0])) > 0)[:, None]
        found = likelihood.expected(rows.y, f, torch.zeros_like(f))
        gradient = (x.mT @ (weight[:, None] * found.slope)).cpu().numpy() - RIDGE * penalized
        value = (weight @ found.value).item() - 0.5 * RIDGE * np.square(penalized).sum()
        return -value / len(x), -gradient.ravel() / len(x)

    for _ in range(2):
        slopes = minimize(negative, slopes.ravel(), jac=True, method="L-BFGS-B").x
        f = values(slopes)
        likelihood = likelihood.learned(rows.y, f, torch.zeros_like(f), weight)
    return torch.as_tensor(slopes.reshape(shape), device=x.device), likelihood
