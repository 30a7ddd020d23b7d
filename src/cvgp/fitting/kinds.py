"""Fits of classes and counts: choices by a regression on the scale of f, then the latent values themselves (§16).

The input warp, the initial kernel and the size of the coreset are chosen by a regression on linked targets: classes as
-1 and 1, counts as logarithms. If rows are few for the columns, one lengthscale beside a linear kernel, and a linear
kernel alone, are tried too, by cross-validation of the whole fit.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, learn_warped_scaling
from cvgp.fitting.compare import Scores, weight_of
from cvgp.fitting.decide import Request, decide
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.kernel import starting_kernel, with_priors
from cvgp.fitting.latents import LatentFit, Latents, fit_latents, multiply_variance
from cvgp.fitting.monitor import FitLog, Run
from cvgp.fitting.options import ModelOptions, TrainingOptions
from cvgp.fitting.prepare import FitData, choose_scaling, decide_warp, merge_copies, scaled_rows, spread_of
from cvgp.fitting.sample import DEFAULT_KERNEL
from cvgp.gp.kernels import name_of_kernel
from cvgp.gp.likelihoods import Likelihood
from cvgp.gp.model import CVGP

LATENT_VARIANCE = 4.0  # of f at the start, times that of the linked targets
FOLDS = 3


class KindFit(NamedTuple):
    """A fit of latent values, how inputs are scaled, and what was decided."""

    fit: LatentFit
    scaling: Scaling  # whose y are the latent values, around their constants
    decisions: Decisions


def fit_kind(
    rows: Rows[Array], likelihood: Likelihood, options: ModelOptions, settings: TrainingOptions, run: Run
) -> KindFit:
    """Fit latent values to rows, whose y `[n]` the likelihood describes."""
    h, begin, rows = run.heuristics, run.budget.seconds, merge_copies(rows)
    linked = rows._replace(y=likelihood.linked(rows.y[:, 0]).reshape(len(rows.x), -1))
    warp, warp_choice = decide_warp(linked, options, run, Decisions())
    learned = learn_warped_scaling(warp, linked)
    scaling = choose_scaling(learned, options)
    source = scaled_rows(linked, scaling, options.device, run.group)
    data = FitData(source, None, scaling, spread_of(scaling, learned), None)
    # Classes and counts need neither a site for each row nor a rough kernel.
    choosing = run._replace(heuristics=replace(h, exact_seconds=0.0, largest_coreset=h.largest_latent_coreset))
    named = replace(options, kernel=DEFAULT_KERNEL) if options.kernel is None else options
    begun = decide(Request(data, named, settings, choosing))
    weight = np.ones(len(rows.x)) if rows.sample_weight is None else rows.sample_weight
    constant = torch.as_tensor(likelihood.constant(rows.y[:, 0], weight), device=source.device)
    (scaled,) = source.chunks(source.num_rows)
    scaled = scaled._replace(y=torch.as_tensor(rows.y[:, 0], device=source.device))
    multiply_variance(begun.model, LATENT_VARIANCE)
    start, kernel_choice = begun.model, begun.decisions.kernel
    if options.kernel in (None, "auto") and options.ard:
        start, kernel_choice = _fewer_parameters(start, scaled, likelihood, constant, run, kernel_choice)
    found = fit_latents(Latents.begin(start, constant, likelihood), scaled, run, most_rows=h.latent_rows)
    solver = Choice("sites and L-BFGS", None, "", {}, run.budget.seconds - begin)
    alone = Choice("none", None, "not for classes and counts")
    made = {"input_warp": warp_choice, "kernel": kernel_choice, "n_neighbors": alone, "solver": solver}
    return KindFit(found, scaling, replace(begun.decisions, **made, seed=run.seed))


def _fewer_parameters(
    model: CVGP, rows: Rows[Tensor], likelihood: Likelihood, constant: Tensor, run: Run, choice: Choice | None
) -> tuple[CVGP, Choice | None]:
    """Where rows are few for the columns: ARD, one lengthscale beside a line, or a line, by cross-validated density."""
    h, dims = run.heuristics, rows.x.shape[1]
    if not dims * h.latent_rows_per_column > len(rows.x) > 2 * FOLDS or dims < 2:
        return model, choice
    begin, sample = run.budget.seconds, rows.x[:100].cpu()

    def with_kernel(name: str, *, ard: bool) -> CVGP:
        kernel = with_priors(starting_kernel(name, dims, ard=ard), len(rows.x), sample, 1.0, h).to(rows.x.device)
        other = CVGP(model.coreset, kernel, mean=model.mean, likelihood=model.likelihood).to(rows.x.device)
        multiply_variance(other, LATENT_VARIANCE)
        return other

    name = name_of_kernel(model.kernel)
    candidates: dict[str, Callable[[], CVGP]] = {
        name: lambda: model,
        f"{name}+linear, one lengthscale": lambda: with_kernel(f"{name}+linear", ard=False),
        "linear": lambda: with_kernel("linear", ard=False),
    }
    folds = torch.as_tensor(run.rng("folds").permutation(len(rows.x)) % FOLDS, device=rows.x.device)
    scores: dict[str, Scores] = {}
    for label, make in candidates.items():
        if scores and not run.has_time:
            break
        parts = []
        for fold in range(FOLDS):
            inside, outside = rows.take(folds != fold), rows.take(folds == fold)
            latents = Latents.begin(make(), constant, likelihood).copied()
            quiet = run.part(0.05)._replace(log=FitLog())
            found = fit_latents(latents, inside, quiet, most_rows=h.latent_rows)
            parts.append(density_of(found.latents, outside))
        scores[label] = Scores.join(parts)
    taken = max(scores, key=lambda label: scores[label].density)
    seconds = (0.0 if choice is None else choice.seconds) + run.budget.seconds - begin
    return candidates[taken](), Choice(taken, None, "few rows for the columns", Choice.scored(scores), seconds)


@torch.no_grad()
def density_of(latents: Latents, rows: Rows[Tensor]) -> Scores:
    """How likely rows are under latent values that have not seen them."""
    found = [model.process()(rows.x) for model in latents.models]
    f_mean = torch.stack([f.mean for f in found], 1) + latents.constant
    density = latents.likelihood.log_predictive(rows.y, f_mean, torch.stack([f.variance for f in found], 1))
    return Scores(density, -density, weight_of(rows), rows.cluster)
