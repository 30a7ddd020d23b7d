"""The noise of a finished fit: how it depends on x, learned from residuals of rows that are predicted by others.

The density of rows that had no part in a noise map decides on whether the noise depends on x at all, on heavy tails,
and on a discount on the variance of f. The coreset (with neighbors, what the nearest rows say too) is then solved for
with the noise of each row. This is kept if unseen rows are clearly more likely for it and not clearly less accurate.
"""

import math
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource, MemorySource, add_noise
from cvgp.fitting.compare import (
    Residuals,
    Scores,
    compare,
    coreset_residuals,
    exact_residuals,
    exact_residuals_of_new,
    folds_of,
)
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import (
    NeighborRows,
    SequentialPredictions,
    adopt_neighbors,
    all_statistics,
    find_near,
    late_residuals,
    predict_sequentially,
    whitened,
)
from cvgp.fitting.noise_map import (
    FOLDS,
    SMALLEST_NOISE,
    NoisePrior,
    NoiseRecipe,
    TailsName,
    fit_noise_map,
    held_out_scores,
    noise_features,
    prior_variance,
)
from cvgp.fitting.outputs import make_outputs, model_of, over_outputs, rows_of, sums_of
from cvgp.fitting.sample import take_observations, two_parts
from cvgp.fitting.solve import Solution, all_rows, exact_bound, is_exact_gp, set_site_noise
from cvgp.gp.bounds import Statistics, solve_titsias
from cvgp.gp.kernels import NOISE_FLOOR, multiply_inside
from cvgp.gp.model import CVGP
from cvgp.gp.noise import InputNoise
from cvgp.gp.outputs import Outputs
from cvgp.objectives import CHUNK_ROWS, statistics_and_gain
from cvgp.parallel.group import Group
from cvgp.runtime import threads_for

SEEN_SHARE = 0.8  # the share of a sample that a coreset is solved with to judge it by the other rows


class NoiseFit(NamedTuple):
    """A fit, the rows that its predictions use, and its noise, if that depends on x."""

    solution: Solution
    kept: NeighborRows | None = None
    predictions: SequentialPredictions | None = None
    noise: InputNoise | None = None
    recipe: NoiseRecipe | None = None
    candidates: dict[str, Scores] = {}  # noqa: RUF012 - never changed
    rare_share: float = 0.0  # of observations with errors far beyond those seen
    factor: Tensor | None = None  # [Q], of the noise of several outputs
    outputs: Outputs | None = None  # what their predictions need
    simpler: "NoiseFit | None" = None  # what this fit was made from: not re-weighted, or with a constant noise


def fit_noise(
    fit: NoiseFit,
    source: DataSource,
    run: Run,
    *,
    always: bool = False,
    normal_tails: bool = False,
    recipe: NoiseRecipe | None = None,
) -> NoiseFit:
    """Learn how the noise depends on x, and re-weight the rows by their noise if that helps.

    With `always` it is learned even if a constant is as good. Tails are normal if outliers have a distribution of their
    own. A recipe is a choice that is known. With next to no time left the noise stays constant.
    """
    h, model = run.heuristics, fit.solution.model
    if not always and recipe is None and not run.budget.affords(h.noise_cost * len(model.X_c) ** 3):
        return fit
    rng = np.random.default_rng(int(run.agreed(float(run.rng("noise").integers(2**31)))))
    count = max(run.rows(h.noise_rows), h.fewest_noise_rows)
    view = _view(fit, source, count, h, rng)
    learning, judged = view.residuals(fit)
    counted = learning.weight > 0
    learning = learning.take(counted)
    if not learning.square.any():
        return fit  # y is constant, so there is no error to learn from
    maker = _NoiseMaker(model, learning, run, rng)
    rounds, is_known = h.reweighting_rounds, recipe is not None
    if recipe is None:
        recipe, candidates, is_better = maker.choose(learning, normal_tails=normal_tails)
        fit = fit._replace(candidates=candidates)
        if not (always or is_better):
            return fit
    else:
        rounds, recipe = recipe.rounds, recipe._replace(rounds=0)
    noise = maker.learn(learning, recipe)
    best = plain = fit._replace(noise=noise, recipe=recipe, simpler=fit)
    # The first fit weights no row by its noise, so all known noise is that of its rows.
    known, before = judged.known, _noise_scores(noise, judged, judged.known)
    for number in range(1, rounds + 1):
        if not run.has_time:
            break
        lowest, lowered = _with_lowest_noise(model, noise, learning.x)
        tried = view.reweighted(best, lowest, lowered)
        again, judged = view.residuals(tried)
        again = again.take(counted)._replace(known=learning.known)  # noise(x) is to be learned
        learned = maker.learn(again, recipe)._replace(base=lowered.base)
        after = _noise_scores(learned, judged, known)
        if not (is_known or compare(after, before).is_clear):
            break
        noise, before = learned, after
        best = tried._replace(noise=noise, recipe=recipe._replace(rounds=number))
    if best.recipe == recipe:
        return best
    # Solved once more with the noise that was learned last, so that the model and its noise agree.
    lowest, lowered = _with_lowest_noise(model, noise, learning.x)
    return view.finished(view.reweighted(best, lowest, lowered), lowered)._replace(simpler=plain)


@torch.no_grad()
def out_of_sample(fit: NoiseFit, source: DataSource, run: Run) -> Residuals:
    """Residuals of rows that a fit has learned from, each left out or given the rows before it, and their variances.

    The variances of f are corrected as predictions are, and the known noise includes the learned one.
    """
    rng, model = np.random.default_rng(run.seed), fit.solution.model
    found, _ = _view(fit, source, run.heuristics.noise_rows, run.heuristics, rng).residuals(fit)
    found = found.take(found.weight > 0)
    if fit.factor is not None:  # residuals are in units of the roots of the factors
        c = fit.factor.repeat(len(found.x) // len(fit.factor))  # [n Q]
        if fit.noise is None:
            return found._replace(known=model.noise.expand_as(found.f_var))
        known, scale = fit.noise.variance(found.x), fit.noise.times(c).f_factor(c * found.f_var)
        return found._replace(f_var=scale * found.f_var, known=known)
    if fit.noise is None:
        return found._replace(known=model.total_noise(found.known).expand_as(found.f_var))
    known = found.known - (fit.noise.beyond_base(found.x) if bool(fit.noise.base > 0.0) else 0.0)
    total = fit.noise.variance(found.x) + known.clamp_min(0.0)
    return found._replace(f_var=found.f_var * fit.noise.f_factor(found.f_var), known=total)


def with_outputs(fit: NoiseFit, group: Group) -> NoiseFit:
    """A fit and those that it was made from, with what predictions of several outputs need."""
    if fit.factor is None:
        return fit
    solution, simpler = fit.solution, fit.simpler and with_outputs(fit.simpler, group)
    if simpler is not None and simpler.solution is solution:
        return fit._replace(outputs=simpler.outputs, simpler=simpler)
    outputs = make_outputs(solution.model, solution.statistics, fit.factor, fit.kept, group)
    return fit._replace(outputs=outputs, simpler=simpler)


def _view(
    fit: NoiseFit, source: DataSource, count: int, h: Heuristics, rng: np.random.Generator
) -> "_WithNeighbors | _Exact | _OfCoreset":
    if fit.kept is not None:
        return _WithNeighbors(fit, fit.kept, source.group, count, h)
    if fit.factor is None and is_exact_gp(fit.solution.model, source):
        return _Exact(fit, source, rng)
    return _OfCoreset(fit, source, count, h, rng)


@torch.no_grad()
def _noise_scores(noise: InputNoise, rows: Residuals, known: Tensor) -> Scores:
    total = noise.f_factor(rows.f_var) * rows.f_var + noise.variance(rows.x) + known
    densities = noise.tails.log_density(rows.square, total[:, None])[0].mean(1)
    return Scores(densities, rows.square.mean(1), rows.weight, rows.cluster)


class _NoiseMaker:
    def __init__(self, model: CVGP, rows: Residuals, run: Run, rng: np.random.Generator) -> None:
        self.model, self.run, self.rng, h = model, run, rng, run.heuristics
        self.prior = NoisePrior(h.noise_precision, prior_variance(model, rows.x))
        self.features = noise_features(model, rows, h, rng)

    def choose(self, rows: Residuals, *, normal_tails: bool) -> tuple[NoiseRecipe, dict[str, Scores], bool]:
        """The recipe under which unseen rows are most likely, all scores, and whether it beats a constant."""
        h = self.run.heuristics
        if len(rows.x) < h.least_noise_rows:
            return NoiseRecipe(), {}, False
        count = max(self.run.rows(h.noise_rows_to_choose), h.fewest_noise_rows)
        judged = torch.as_tensor(self.rng.permutation(len(rows.x))[:count])
        some = rows.take(judged.to(rows.x.device))
        folds = folds_of(some, FOLDS, self.rng)

        candidates = {"constant": held_out_scores(some.x[:, :0], some, folds, NoiseRecipe(), self.prior)}
        at = self.features.at(some.x)
        tails: tuple[TailsName, ...] = ("normal",) if normal_tails else ("normal", "learned")
        found: dict[NoiseRecipe, Scores] = {}
        for recipe in (NoiseRecipe(name, flag) for flag in (False, True) for name in tails):
            if not found or self.run.budget.left > 0.0:
                found[recipe] = held_out_scores(at, some, folds, recipe, self.prior)
                suffix = ", variance discounted" if recipe.discounts_variance else ""
                candidates[f"noise(x), {recipe.tails} tails{suffix}"] = found[recipe]
        # The first, and so the simplest, that is as good as the best: tails that are too light cost more than tails
        # that are too heavy, so a clear difference is not required.
        most = max(scores.density for scores in found.values())
        chosen = next(recipe for recipe, scores in found.items() if scores.density >= most - h.noise_choice_margin)
        gain = compare(found[chosen], candidates["constant"])
        # A noise map that is likely better is taken: one that is not needed costs little.
        return chosen, candidates, gain.is_likelier(margin=h.noise_choice_margin)

    def learn(self, rows: Residuals, recipe: NoiseRecipe) -> InputNoise:
        """The noise that all rows imply; the variance of the tails is a part of it."""
        at = self.features.at(rows.x)
        level, gamma, discount, tails = fit_noise_map(at, rows, recipe, self.prior)
        shift = tails.variance.log()
        # No noise is larger than the largest residual.
        most = rows.square.mean(1).max().clamp_min(2.0 * NOISE_FLOOR)
        log_noise = (level + shift + at @ gamma).clamp(math.log(NOISE_FLOOR), most.log().item())
        return InputNoise(
            centers=self.features.centers,
            inverse_lengthscale=self.features.inverse_lengthscale,
            alpha=self.features.L_inv.mT @ gamma,
            level=level + shift,
            lowest=log_noise.min(),
            highest=log_noise.max(),
            variance_discount=discount,
            f_scale=tails.variance,
            f_prior=level.new_tensor(self.prior.f_var),
            **tails.of_variance_one()._asdict(),
            constant=level.new_tensor(self.model.noise.item()),
            base=torch.zeros_like(level),
        )


# For each kind of prediction: `residuals` to learn from and to judge by, a fit `reweighted` by the noise of its rows,
# and one that is kept, `finished` with the statistics of all rows.


class _WithNeighbors:
    """Late rows, each predicted by all rows before it, serve for both."""

    def __init__(self, fit: NoiseFit, kept: NeighborRows, group: Group, count: int, h: Heuristics) -> None:
        self.kept, self.count, self.group, self.model = kept, count, group, fit.solution.model
        near = find_near(self.model, kept.rows, kept.num_neighbors, h, group)
        self.predictions = fit.predictions or predict_sequentially(self.model, kept.rows, near, group)

    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        rows = (fit.kept or self.kept).rows

        def of_output(q: int, c: Tensor) -> Residuals:
            own = model_of(fit.solution.model, q, c), rows_of(rows, q, c)
            return late_residuals(*own, predict_sequentially(*own, self.predictions.near, self.group), self.count)

        if fit.factor is None:
            found = late_residuals(fit.solution.model, rows, fit.predictions or self.predictions, self.count)
        else:
            found = over_outputs(fit.factor, of_output)
        return found, found

    @torch.no_grad()
    def reweighted(self, fit: NoiseFit, model: CVGP, noise: InputNoise) -> NoiseFit:
        rows = add_noise(self.kept.rows, noise.beyond_base)
        found = predict_sequentially(model, rows, self.predictions.near, self.group)
        kept = self.kept._replace(rows=rows, statistics=found.statistics)
        share = (len(rows.x) - found.near.start) / len(rows.x)
        bound = solve_titsias(found.statistics, whitened(model).L_K_inv).value.item() / share
        solution = fit.solution._replace(model=model, bound=bound, statistics=found.statistics)
        return fit._replace(solution=solution, kept=kept, predictions=found, noise=noise)

    def finished(self, fit: NoiseFit, noise: InputNoise) -> NoiseFit:
        model, rows = fit.solution.model, add_noise(self.kept.rows, noise.beyond_base)
        found = all_statistics(model, rows, fit.predictions or self.predictions, self.group)
        kept, bound = adopt_neighbors(model, rows, self.kept.num_neighbors, found)
        return fit._replace(solution=fit.solution._replace(bound=bound, statistics=found), kept=kept)


class _Exact:
    """An exact GP, of which everything follows from one factorization."""

    def __init__(self, fit: NoiseFit, source: DataSource, rng: np.random.Generator) -> None:
        self.model, self.source = fit.solution.model, source
        self.seen, self.new = _two_parts(all_rows(source), rng)
        self.work = len(self.model.X_c) ** 3

    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        model, noise = fit.solution.model, fit.noise
        with threads_for(self.work):
            learning = exact_residuals(model, _with_noise(all_rows(self.source), noise))
            return learning, exact_residuals_of_new(model, _with_noise(self.seen, noise), self.new)

    @torch.no_grad()
    def reweighted(self, fit: NoiseFit, model: CVGP, noise: InputNoise) -> NoiseFit:
        source = self.source.with_noise(noise.beyond_base)
        take_observations(model, all_rows(source))
        with threads_for(self.work):
            bound = exact_bound(model, source)
        set_site_noise(model, source)
        return fit._replace(solution=fit.solution._replace(model=model, bound=bound), noise=noise)

    def finished(self, fit: NoiseFit, noise: InputNoise) -> NoiseFit:
        source = self.source.with_noise(noise.beyond_base)
        with threads_for(self.work):
            found, _ = statistics_and_gain(fit.solution.model, source.chunks(CHUNK_ROWS), source.group)
        return fit._replace(solution=fit.solution._replace(statistics=found))


class _OfCoreset:
    """Rows of a sample are left out; to judge, the coreset is solved for with four fifths of them."""

    def __init__(self, fit: NoiseFit, source: DataSource, count: int, h: Heuristics, rng: np.random.Generator) -> None:
        self.source = self.tried = source
        self.sample = source.whole_clusters(count, rng)
        if source.num_rows > h.reweighting_rows and source.group.world == 1 and self.sample.cluster is None:
            # Enough to try a noise with; all rows are read once it is kept.
            self.tried = MemorySource(*source.sample(h.reweighting_rows, rng))
        self.seen, self.new = _two_parts(self.sample, rng)
        # Large groups are left out as a whole, and some of their rows are enough to learn from.
        total = len(self.sample.x)
        self.used = torch.as_tensor(rng.permutation(total)[:count] if total > count else np.arange(total))

    @torch.no_grad()
    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        model, noise = fit.solution.model, fit.noise
        found, _ = statistics_and_gain(model, [_with_noise(self.seen, noise)])
        sample = _with_noise(self.sample, noise)
        if fit.factor is None:
            learning = coreset_residuals(model, fit.solution.statistics, sample).take(self.used)
            return learning, coreset_residuals(model, found, self.new, are_new=True)

        def of_output(sums: Statistics, rows: Rows[Tensor], q: int, c: Tensor) -> Residuals:
            own, are_new = (model_of(model, q, c), sums_of(sums, q, c), rows_of(rows, q, c)), rows is self.new
            return coreset_residuals(*own, are_new=True) if are_new else coreset_residuals(*own).take(self.used)

        pairs = (fit.solution.statistics, sample), (found, self.new)
        learning, judged = (over_outputs(fit.factor, partial(of_output, *pair)) for pair in pairs)
        return learning, judged

    def reweighted(self, fit: NoiseFit, model: CVGP, noise: InputNoise) -> NoiseFit:
        return self._solved(fit, self.tried, model, noise)

    def finished(self, fit: NoiseFit, noise: InputNoise) -> NoiseFit:
        return fit if self.tried is self.source else self._solved(fit, self.source, fit.solution.model, noise)

    @torch.no_grad()
    def _solved(self, fit: NoiseFit, source: DataSource, model: CVGP, noise: InputNoise) -> NoiseFit:
        source = source.with_noise(noise.beyond_base)
        found, gain = statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group)
        if source.total_weight < self.source.total_weight:
            scale = self.source.total_weight / source.total_weight
            found, gain = found.times(scale), scale * gain
        bound = model.adopt_optimum(found).item() + (gain if fit.solution.tight else 0.0)
        set_site_noise(model, source)
        return fit._replace(solution=fit.solution._replace(model=model, bound=bound, statistics=found), noise=noise)


@torch.no_grad()
def _with_lowest_noise(model: CVGP, noise: InputNoise, x: Tensor) -> tuple[CVGP, InputNoise]:
    """A copy whose constant is the lowest noise of all, so that no row has less."""
    model = deepcopy(model)
    lowest = torch.maximum(noise.lowest.exp(), SMALLEST_NOISE * noise.variance(x).median())
    multiply_inside(model.likelihood.noise_covar, "noise", lowest / model.noise)
    return model, noise._replace(base=model.noise.detach().clone())


def _with_noise(rows: Rows[Tensor], noise: InputNoise | None) -> Rows[Tensor]:
    """Rows with the noise that a fit gave them: none of their own if it has one level for all."""
    return rows if noise is None or not bool(noise.base > 0.0) else add_noise(rows, noise.beyond_base)


def _two_parts(rows: Rows[Tensor], rng: np.random.Generator) -> tuple[Rows[Tensor], Rows[Tensor]]:
    first = math.ceil(SEEN_SHARE * len(rows.x))
    return two_parts(rows, first, len(rows.x) - first, rng)
