"""One fit from scaled rows to a finished model: decide, solve, and learn the noise."""

from dataclasses import replace
from typing import NamedTuple

from cvgp.fitting.checkpoint import stored_decisions
from cvgp.fitting.decide import Request, decide, noise_choice, noise_recipe
from cvgp.fitting.decisions import Decisions
from cvgp.fitting.neighbors import adopt_neighbors, all_statistics
from cvgp.fitting.noise import NoiseFit, fit_noise, noise_seconds
from cvgp.fitting.solve import Solution, solve, warn_if_simpler_is_better
from cvgp.gp.kernels import release
from cvgp.optim import Status


class Fit(NamedTuple):
    """A finished fit and what it has decided."""

    result: NoiseFit
    decisions: Decisions


def fit(request: Request, checkpoint_dir: str | None = None) -> Fit:
    """Fit a model to scaled rows; the long solvers store their progress in `checkpoint_dir`, if it is given."""
    data, options, settings, run, pinned, _ = request
    source = data.train
    learns_noise = options.noise == "input-dependent" or (options.noise == "auto" and settings.solver != "paper")
    reserved = noise_seconds(source.num_rows, run) if learns_noise else 0.0
    training = run._replace(budget=run.budget.reserving(reserved))
    with stored_decisions(checkpoint_dir, pinned, source, options, settings) as (pinned, store):
        begun = decide(request._replace(run=training, pinned=pinned))
        store(begun.decisions)
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
            checkpoint_dir=checkpoint_dir,
            validation=data.held_out,
            may_shrink=options.n_coreset is None,
        )
        finished = NoiseFit(solution)
        if settings.max_iter is None and solution.result.status is not Status.INTERRUPTED:
            warn_if_simpler_is_better(solution.model, source, run)
    begin, decisions, size = run.budget.seconds, begun.decisions, len(solution.model.X_c)
    if size < len(begun.model.X_c) and decisions.n_coreset is not None:  # an exact GP that needs only some of its rows
        kept_points = replace(decisions.n_coreset, taken=f"all rows, then {size} points kept")
        decisions = decisions.with_choice("n_coreset", kept_points)
    if pinned.noise is not None:
        recipe = noise_recipe(pinned.noise)
        if recipe is not None:
            finished = fit_noise(finished, source, run, recipe=recipe)
        return Fit(finished, decisions.with_choice("noise", pinned.noise))
    if learns_noise:
        always = options.noise == "input-dependent"
        finished = fit_noise(finished, source, run, always=always, normal_tails=data.outliers is not None)
    reason = "" if options.noise == "auto" and learns_noise else "as asked for"
    choice = noise_choice(finished, run.budget.seconds - begin, reason=reason)
    return Fit(finished, decisions.with_choice("noise", choice))
