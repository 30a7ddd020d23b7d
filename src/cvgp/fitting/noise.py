"""The noise of a finished fit: how it depends on x, and the fit once more with each row at its own precision.

Noise maps are learned from residuals that a row did not help to make. The strength of their prior is chosen by the
density of rows that had no part in them. So is whether the noise depends on x at all, whether residuals have heavier
tails than the normal distribution, and whether the variance of f is discounted.

A row where there is little noise says more about f than one where there is much. Once the noise is known, the coreset
(with neighbors, what the nearest rows say too) is solved for with the noise of each row, and the noise is learned
again. This is kept if unseen rows are clearly more likely for it and not clearly less accurate.
"""

import math
from copy import deepcopy
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource, MemorySource, add_noise
from cvgp.errors import InvalidInputError
from cvgp.fitting.compare import Scores, compare
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
from cvgp.fitting.noise_map import FOLDS, Recipe, fit_noise_map, held_out_scores
from cvgp.fitting.place import initial_coreset
from cvgp.fitting.residuals import Residuals, coreset_residuals, exact_residuals, exact_residuals_of_new
from cvgp.fitting.sample import take_observations
from cvgp.fitting.solve import Solution, all_rows, exact_bound, is_exact_gp, set_site_noise
from cvgp.gp.bounds import solve_titsias
from cvgp.gp.kernels import NOISE_FLOOR, diagonal, multiply_inside
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Features, InputNoise
from cvgp.objectives import CHUNK_ROWS, statistics_and_gain
from cvgp.runtime import threads_for

NoiseName = Literal["auto", "constant", "input-dependent"]

PHASE = "noise"
SEEN_SHARE = 0.8
"""The share of a sample that a coreset is solved with to judge it by the other rows."""
SMALLEST_NOISE = 0.1
"""Of the median noise. A row that counts far more than others would determine its own prediction."""


def check_noise_name(name: object) -> None:
    """Raise if `noise` is not a known kind."""
    if name not in get_args(NoiseName):
        raise InvalidInputError(f"noise must be one of {', '.join(get_args(NoiseName))}; got {name!r}.")


class NoiseRecipe(NamedTuple):
    """How the noise is learned."""

    strength: float
    """Precision of the prior on the weights of the features."""
    tails: Literal["normal", "learned"]
    discounts_variance: bool
    rounds: int = 0
    """How often the rows were re-weighted by their noise."""


class NoiseFit(NamedTuple):
    """A fit, the rows that its predictions use, and its noise, if that depends on x."""

    solution: Solution
    kept: NeighborRows | None = None
    predictions: SequentialPredictions | None = None
    noise: InputNoise | None = None
    recipe: NoiseRecipe | None = None
    candidates: dict[str, Scores] = {}  # noqa: RUF012 - never changed

    @property
    def needed_noise(self) -> InputNoise:
        """The noise of a fit that is known to have one."""
        assert self.noise is not None, "asked for before it was learned"
        return self.noise


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

    Parameters
    ----------
    fit
        The fit, and the rows that its predictions use.
    source
        Its rows.
    run
        With next to no time left, the noise stays constant. Nothing is solved again once the time is up.
    always
        Whether to learn it even if a constant is as good.
    normal_tails
        Whether residuals are normal, as they are taken for if outliers have a distribution of their own.
    recipe
        The choice, if it is known.
    """
    h, model = run.heuristics, fit.solution.model
    if not always and recipe is None and not run.budget.affords(h.noise_cost * len(model.X_c) ** 3):
        return fit
    rng = np.random.default_rng(int(run.agreed(float(run.rng("noise").integers(2**31)))))
    view = _view_of(fit, source, run, rng)
    learning, judged = view.residuals(fit)
    counted = learning.weight > 0
    learning = learning.take(counted)
    if not learning.square.any():
        return fit  # y is constant, so there is no error to learn from
    maker = _NoiseMaker(model, learning, run, rng)
    candidates: dict[str, Scores] = {}
    rounds, is_known = h.reweighting_rounds, recipe is not None
    if recipe is None:
        recipe, candidates, is_better = maker.choose(learning, normal_tails=normal_tails)
        if not (always or is_better):
            return fit._replace(candidates=candidates)
    else:
        rounds, recipe = recipe.rounds, recipe._replace(rounds=0)
    best = fit._replace(noise=maker.learn(learning, recipe), recipe=recipe, candidates=candidates)
    # The first fit weights no row by its noise, so all known noise is that of its rows.
    known, best_residuals, before = judged.known, learning, _noise_scores(best.needed_noise, judged, judged.known)
    for number in range(1, rounds + 1):
        if not run.has_time:
            break
        tried = view.reweighted(best, learning.x)
        again, judged = view.residuals(tried)
        again = again.take(counted)._replace(known=learning.known)  # noise(x) is to be learned
        noise = maker.learn(again, recipe)._replace(base=tried.needed_noise.base)
        tried = tried._replace(noise=noise, recipe=recipe._replace(rounds=number))
        after = _noise_scores(noise, judged, known)
        if not (is_known or compare(after, before).is_clear):
            break
        best, best_residuals, before = tried, again, after
    if best_residuals is learning:
        return best
    # Solved once more with the noise that was learned last, so that the model and its noise agree.
    return view.finished(view.reweighted(best, learning.x))


@torch.no_grad()
def _noise_scores(noise: InputNoise, rows: Residuals, known: Tensor) -> Scores:
    """Scores of rows under a noise, beside their known noise variances `[n]`."""
    total = noise.f_factor(rows.f_var) * rows.f_var + noise.variance(rows.x) + known
    return Scores(noise.tails.log_density(rows.square, total[:, None])[0].mean(1), rows.square.mean(1), rows.weight)


class _NoiseMaker:
    """Learns noise maps for one model."""

    def __init__(self, model: CVGP, rows: Residuals, run: Run, rng: np.random.Generator) -> None:
        self.model, self.run, self.rng = model, run, rng
        h = run.heuristics
        count = max(min(h.noise_centers, len(rows.x) // h.rows_per_noise_center), 1)
        x, y = rows.x.cpu().numpy(), rows.square.mean(1).cpu().numpy()
        placed = initial_coreset("kmeans", x, y, count, rng, kernel=model.kernel)
        self.centers = torch.tensor(placed.X, device=rows.x.device)
        with torch.no_grad():
            self.prior = diagonal(model.kernel, rows.x).mean().item()
        # The lengthscales of f itself, or others than sqrt(D), do no better.
        scale = torch.full_like(self.centers[0], len(self.centers[0]) ** -0.5)
        self.features = Features(self.centers, scale)

    def choose(self, rows: Residuals, *, normal_tails: bool) -> tuple[NoiseRecipe, dict[str, Scores], bool]:
        """The recipe under which unseen rows are most likely, all scores, and whether it beats a constant."""
        h, budget = self.run.heuristics, self.run.budget
        if len(rows.x) < h.least_noise_rows:
            return NoiseRecipe(h.noise_strengths[0], "normal", discounts_variance=False), {}, False
        count = max(self.run.rows(h.noise_rows_to_choose), h.fewest_noise_rows)
        judged = torch.as_tensor(self.rng.permutation(len(rows.x))[:count])
        folds = torch.as_tensor(self.rng.permutation(len(judged)) % FOLDS).to(rows.x.device)
        some = rows.take(judged.to(rows.x.device))
        slowest = 0.0

        def score(at: Tensor, recipe: Recipe) -> Scores:
            nonlocal slowest
            begin = budget.seconds
            found = held_out_scores(at, some, folds, recipe)
            slowest = max(slowest, budget.seconds - begin)
            return found

        def is_in_time() -> bool:
            # What follows a trial takes about as long as four more.
            return 5.0 * slowest <= budget.left

        candidates = {"constant": held_out_scores(some.x[:, :0], some, folds, Recipe(h.noise_strengths[0]))}
        # Heavy tails, so that no single row decides.
        at, by_strength = self.features.at(some.x), dict[float, Scores]()
        for strength in h.noise_strengths:
            if not by_strength or is_in_time():
                by_strength[strength] = score(at, Recipe(strength, "heavy"))
        strength = max(by_strength, key=lambda strength: by_strength[strength].density)
        shapes = [("normal", False), ("learned", False), ("normal", True), ("learned", True)]
        found: dict[tuple[str, bool], Scores] = {}
        for tails, discounts in shapes:
            if (tails == "learned" and normal_tails) or (found and not is_in_time()):
                continue
            recipe = Recipe(strength, tails, self.prior if discounts else 0.0)  # type: ignore[arg-type]
            found[tails, discounts] = score(at, recipe)
            name = f"{tails} tails" + (", variance discounted" if discounts else "")
            candidates[f"noise(x), {name}"] = found[tails, discounts]
        # The first, and so the simplest, that is as good as the best: tails that are too light cost more than tails
        # that are too heavy, so a clear difference is not required.
        most = max(scores.density for scores in found.values())
        shape = next(shape for shape, scores in found.items() if scores.density >= most - h.noise_choice_margin)
        chosen = NoiseRecipe(strength, shape[0], shape[1])  # type: ignore[arg-type]
        gain = compare(found[shape], candidates["constant"])
        # A noise map that is likely better is taken: one that is not needed costs little.
        return chosen, candidates, gain.gain > max(gain.gain_error, h.noise_choice_margin)

    def learn(self, rows: Residuals, choice: NoiseRecipe) -> InputNoise:
        """The noise that all rows imply; the variance of the tails is a part of it."""
        at = self.features.at(rows.x)
        recipe = Recipe(choice.strength, choice.tails, self.prior if choice.discounts_variance else 0.0)
        level, gamma, discount, tails = fit_noise_map(at, rows, recipe)
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
            f_prior=level.new_tensor(self.prior),
            **tails.of_variance_one()._asdict(),
            constant=level.new_tensor(self.model.noise.item()),
            base=torch.zeros_like(level),
        )


class _View(Protocol):
    """One way to leave rows out of a fit, and to solve it again with the noise of each row.

    There are three, by what a prediction uses: the coreset, all rows (an exact GP), or a coreset and the nearest rows.
    Kernel and pseudo-inputs stay as they are.
    """

    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        """Residuals to learn from, and residuals of rows that had no part in their prediction to judge by.

        Rows that are left out one by one would not do to judge by: if some count far more than others, their
        leave-one-out residuals are dominated by rounding.
        """

    def reweighted(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        """The same kernel and pseudo-inputs, with the noise of a fit for its rows; x are some of them."""

    def finished(self, fit: NoiseFit) -> NoiseFit:
        """A re-weighted fit that is kept, with the statistics of all rows."""


def _view_of(fit: NoiseFit, source: DataSource, run: Run, rng: np.random.Generator) -> _View:
    count = max(run.rows(run.heuristics.noise_rows), run.heuristics.fewest_noise_rows)
    if fit.kept is not None:
        return _WithNeighbors(fit, source, count, run.heuristics)
    if is_exact_gp(fit.solution.model, source):
        return _Exact(fit, source, rng)
    return _OfCoreset(fit, source, count, run.heuristics, rng)


class _WithNeighbors:
    """Late rows, each predicted by all rows before it, serve for both."""

    def __init__(self, fit: NoiseFit, source: DataSource, count: int, h: Heuristics) -> None:
        assert fit.kept is not None, "it has neighbors"
        self.kept, self.count, self.group, self.model = fit.kept, count, source.group, fit.solution.model
        near = find_near(self.model, self.kept.rows, self.kept.num_neighbors, h, self.group)
        self.predictions = fit.predictions or predict_sequentially(self.model, self.kept.rows, near, self.group)

    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        assert fit.kept is not None, "a fit with neighbors stays one"
        predictions = fit.predictions or self.predictions
        found = late_residuals(fit.solution.model, fit.kept.rows, predictions, self.count)
        return found, found

    @torch.no_grad()
    def reweighted(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        model, noise = _with_lowest_noise(self.model, fit.needed_noise, x)
        rows = add_noise(self.kept.rows, noise.beyond_base)
        found = predict_sequentially(model, rows, self.predictions.near, self.group)
        kept = self.kept._replace(rows=rows, statistics=found.statistics)
        share = (len(rows.x) - found.near.start) / len(rows.x)
        bound = solve_titsias(found.statistics, whitened(model).L_K_inv).value.item() / share
        solution = fit.solution._replace(model=model, bound=bound, statistics=found.statistics)
        return fit._replace(solution=solution, kept=kept, predictions=found, noise=noise)

    def finished(self, fit: NoiseFit) -> NoiseFit:
        assert fit.kept is not None, "a fit with neighbors stays one"
        assert fit.predictions is not None, "it was re-weighted"
        model, rows = fit.solution.model, fit.kept.rows
        found = all_statistics(model, rows, fit.predictions, self.group)
        kept, bound = adopt_neighbors(model, rows, fit.kept.num_neighbors, found)
        return fit._replace(solution=fit.solution._replace(bound=bound, statistics=found), kept=kept)


class _Exact:
    """An exact GP, of which everything follows from one factorization."""

    def __init__(self, fit: NoiseFit, source: DataSource, rng: np.random.Generator) -> None:
        self.model, self.source = fit.solution.model, source
        self.seen, self.new = _two_parts(all_rows(source), rng)

    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        model, noise = fit.solution.model, fit.noise
        with threads_for(len(model.X_c) ** 3):
            learning = exact_residuals(model, _with_noise(all_rows(self.source), noise))
            return learning, exact_residuals_of_new(model, _with_noise(self.seen, noise), self.new)

    @torch.no_grad()
    def reweighted(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        model, noise = _with_lowest_noise(self.model, fit.needed_noise, x)
        source = self.source.with_noise(noise.beyond_base)
        take_observations(model, all_rows(source))
        with threads_for(len(model.X_c) ** 3):
            bound = exact_bound(model, source)
        set_site_noise(model, source)
        return fit._replace(solution=fit.solution._replace(model=model, bound=bound), noise=noise)

    def finished(self, fit: NoiseFit) -> NoiseFit:
        source = self.source.with_noise(fit.needed_noise.beyond_base)
        with threads_for(len(fit.solution.model.X_c) ** 3):
            found, _ = statistics_and_gain(fit.solution.model, source.chunks(CHUNK_ROWS), source.group)
        return fit._replace(solution=fit.solution._replace(statistics=found))


class _OfCoreset:
    """Rows of a sample are left out; to judge, the coreset is solved for with four fifths of them."""

    def __init__(self, fit: NoiseFit, source: DataSource, count: int, h: Heuristics, rng: np.random.Generator) -> None:
        self.model, self.source, self.tried = fit.solution.model, source, source
        if source.num_rows > h.reweighting_rows and source.group.world == 1:
            # Enough to try a noise with; all rows are read once it is kept.
            self.tried = MemorySource(*source.sample(h.reweighting_rows, rng))
        self.tight = fit.solution.tight
        self.sample = source.sample(count, rng)
        self.seen, self.new = _two_parts(self.sample, rng)

    @torch.no_grad()
    def residuals(self, fit: NoiseFit) -> tuple[Residuals, Residuals]:
        model, noise = fit.solution.model, fit.noise
        found, _ = statistics_and_gain(model, [_with_noise(self.seen, noise)])
        return (
            coreset_residuals(model, fit.solution.statistics, _with_noise(self.sample, noise)),
            coreset_residuals(model, found, self.new, are_new=True),
        )

    @torch.no_grad()
    def reweighted(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        model, noise = _with_lowest_noise(self.model, fit.needed_noise, x)
        return self._solved(fit, self.tried, model, noise)

    def finished(self, fit: NoiseFit) -> NoiseFit:
        if self.tried is self.source:
            return fit
        return self._solved(fit, self.source, fit.solution.model, fit.needed_noise)

    def _solved(self, fit: NoiseFit, source: DataSource, model: CVGP, noise: InputNoise) -> NoiseFit:
        """The best coreset for rows of the source, which count as all rows do."""
        source = source.with_noise(noise.beyond_base)
        found, gain = statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group)
        if source.total_weight < self.source.total_weight:
            scale = self.source.total_weight / source.total_weight
            found, gain = found.times(scale), scale * gain
        bound = model.adopt_optimum(found).item() + (gain if self.tight else 0.0)
        set_site_noise(model, source)
        return fit._replace(solution=fit.solution._replace(model=model, bound=bound, statistics=found), noise=noise)


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
    """Rows that are seen, and rows to judge by."""
    order = torch.as_tensor(rng.permutation(len(rows.x)), device=rows.x.device)
    first = math.ceil(SEEN_SHARE * len(order))
    return rows.take(order[:first]), rows.take(order[first:])


def noise_seconds(num_rows: int, run: Run) -> float:
    """Seconds of a time limit to reserve for the noise."""
    h, limit = run.heuristics, run.budget.max_time
    return 0.0 if limit is None else min(h.noise_seconds + num_rows * h.noise_row_seconds, h.noise_share * limit)
