"""An Optuna sampler that stays fast up to 50,000 trials (§5.5 of the mathematics). Needs the extra `optuna`."""

from __future__ import annotations

import math
import threading
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.priors import LogNormalPrior
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from cvgp.coreset import Coreset, pivoted_rows
from cvgp.data.rows import Array, Rows
from cvgp.errors import FactorizationError, NotSupportedError, optional_packages
from cvgp.fitting.maximize import maximize_by_lbfgs
from cvgp.fitting.monitor import Run
from cvgp.gp import bounds
from cvgp.gp.kernels import add_log_normal_prior, cross_matrix, diagonal, gaussian_likelihood, make_kernel
from cvgp.gp.model import CVGP
from cvgp.gp.process import CoresetProcess
from cvgp.objectives import ExactObjective
from cvgp.runtime import clean_torch_state, kept_warnings, limited_threads

with optional_packages():
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import IntersectionSearchSpace
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState

__all__ = ["CVGPSampler"]

POINTS, PLACE_EVERY = 150, 20  # points of the coreset, and new trials after which they are chosen again
CANDIDATE_ROWS, LEARNING_ROWS = 2000, 250  # trials among which points are chosen, and from which the kernel is learned
GROWTH, EVALUATIONS = 1.15, 40  # of the trials between two fits of the kernel, and of the likelihood in a fit
START_NOISE, LEAST_NOISE = 1e-3, 1e-6  # variances in standard deviations of the values
RANDOM, LOCAL, CENTERS = 500, 1000, 10  # candidates of a suggestion, and good trials that the local ones are around
NEAREST, FARTHEST = -3.0, -0.5  # decimal logarithms of the distances of local candidates, in ranges of parameters
POLISHED, POLISH_STEPS = 4, 30  # candidates that L-BFGS improves, and its iterations
SPREAD = 0.5  # of the logarithms of lengthscales, a priori
LOG_PHI = -0.5 * math.log(2.0 * math.pi)
_LOCK = threading.RLock()  # of all samplers: threads of a study share one, and a lock of its own could not be pickled


class CVGPSampler(BaseSampler):  # type: ignore[misc]
    """Bayesian optimization with a coreset of the trials, for studies of 500 to 50,000 trials with one objective.

    It maximizes the logarithm of the expected improvement. Trials that are running count as if they would end as
    expected, so several threads may share the sampler. Pruned and failed trials are not learned from.

    Parameters
    ----------
    seed : int or None
        The same seed gives the same suggestions, unless trials run in parallel.
    independent_sampler : optuna.samplers.BaseSampler or None
        For the first trials, and for parameters that only some trials have; a random sampler if None.
    n_startup_trials : int
        Finished trials before the model is used.

    Examples
    --------
    >>> import optuna
    >>> from cvgp.adapters.optuna import CVGPSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=CVGPSampler(seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -5, 5) ** 2, n_trials=20)
    >>> study.best_value < 0.01
    True
    """

    def __init__(
        self, *, seed: int | None = None, independent_sampler: BaseSampler | None = None, n_startup_trials: int = 10
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._independent = RandomSampler(seed=seed) if independent_sampler is None else independent_sampler
        self._n_startup_trials = n_startup_trials
        self._study: str | None = None
        self._search_space = IntersectionSearchSpace()
        self._trials: _Trials | None = None

    def reseed_rng(self) -> None:
        """Take other random numbers from now on."""
        self._rng = np.random.default_rng()
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all finished trials have, but those with one value."""
        if len(study.directions) > 1:
            raise NotSupportedError("CVGPSampler is for one objective. Use GPSampler or TPESampler for several.")
        with _LOCK:
            if study.study_name != self._study:
                self._study, self._search_space, self._trials = study.study_name, IntersectionSearchSpace(), None
            found = self._search_space.calculate(study)
        return {name: own for name, own in found.items() if not own.single()}

    @clean_torch_state()
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of the parameters in the search space; none while too few trials have finished."""
        if not search_space:
            return {}
        with _LOCK, limited_threads(1), kept_warnings():
            if self._trials is None or self._trials.space.distributions != search_space:
                self._trials = _Trials(_Space(search_space))
            trials = self._trials
            running = trials.collect(study)
            if len(trials.y) < self._n_startup_trials:
                return {}
            trials.suggested[trial.number] = row = trials.suggest(running, self._rng)
            return trials.space.decode(row)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value of one parameter, by the independent sampler."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)


class _Space:
    """Rows [P] of parameters: the share of its range for a number, and the index of a choice."""

    def __init__(self, distributions: dict[str, BaseDistribution]) -> None:
        self.distributions = distributions
        self.choices = np.array([len(getattr(own, "choices", ())) for own in distributions.values()])  # [P]
        self.is_number = self.choices == 0  # [P]

    def encode(self, params: dict[str, Any]) -> Array:
        """The row of some parameters."""
        return np.array([_place(own.to_internal_repr(params[name]), own) for name, own in self.distributions.items()])

    def decode(self, row: Array) -> dict[str, Any]:
        """The parameters of a row."""
        pairs = zip(self.distributions.items(), row, strict=True)
        return {name: own.to_external_repr(float(_value(place, own))) for (name, own), place in pairs}

    def snap(self, rows: Array) -> Array:
        """Rows [n, P] at the nearest values that the parameters can have."""
        columns = zip(self.distributions.values(), rows.T, strict=True)
        return np.stack([_place(_value(column, own), own) for own, column in columns], axis=1)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Random rows."""
        return self.snap(rng.random((count, len(self.choices))) * np.maximum(self.choices, 1))

    def move(self, rows: Array, rng: np.random.Generator) -> Array:
        """Rows [n, P] with some numbers moved, by a distance of each row's own, and some choices drawn again."""
        distance = 10.0 ** rng.uniform(NEAREST, FARTHEST, (len(rows), 1))
        near = rows + distance * rng.standard_normal(rows.shape)
        share = rng.uniform(1.0 / len(self.choices), 1.0, (len(rows), 1))
        moved = np.where(self.is_number, near, self.draw(len(rows), rng))
        return self.snap(np.where(rng.random(rows.shape) < share, moved, rows))

    def features(self, rows: Array) -> Tensor:
        """What the kernel sees of rows: first the numbers, then a column for each choice [n, D]."""
        # With these, two choices are at a distance of one.
        choices = [math.sqrt(0.5) * np.eye(n)[rows[:, p].astype(int)] for p, n in enumerate(self.choices) if n]
        return torch.as_tensor(np.hstack([rows[:, self.is_number], *choices]))


def _place(value: Any, own: Any) -> Any:
    """A number as a share of its range, of logarithms if its scale is logarithmic; the index of a choice as it is."""
    if isinstance(own, CategoricalDistribution):
        return value
    low, high = (math.log(end) if own.log else end for end in (own.low, own.high))
    return ((np.log(value) if own.log else value) - low) / (high - low)


def _value(place: Any, own: Any) -> Any:
    """The nearest number that a parameter can have, or the index of a choice."""
    if isinstance(own, CategoricalDistribution):
        return np.clip(np.floor(place), 0, len(own.choices) - 1)
    low, high = (math.log(end) if own.log else end for end in (own.low, own.high))
    value = low + np.clip(place, 0.0, 1.0) * (high - low)
    value = np.exp(value) if own.log else value
    if own.step is not None:
        value = own.low + np.round((value - own.low) / own.step) * own.step
    return np.clip(value, own.low, own.high)


def _outputscale(kernel: Any) -> Any:
    return kernel.outputscale  # a function that can be pickled


class _Trials:
    """The trials of a study in one search space, and what the model has learned from them; values are minimized."""

    def __init__(self, space: _Space) -> None:
        self.space = space
        self.suggested: dict[int, Array] = {}  # rows of trials that may be running, by number
        self.rows, self.y = list[Array](), list[float]()  # of finished trials
        self._seen, self._unfinished = 0, list[int]()  # how many trials of the study were looked at, and numbers
        self._placed = self._known = self._learned = 0  # trials when points were chosen, learned, and in the last fit
        self._noise = torch.tensor(START_NOISE, dtype=torch.float64)
        self._process: CoresetProcess | None = None
        dims = int(np.maximum(space.choices, 1).sum())
        self._kernel = make_kernel("matern52", dims)
        self._kernel.base_kernel.lengthscale = typical = torch.full((dims,), 0.5 * math.sqrt(dims), dtype=torch.float64)
        add_log_normal_prior(self._kernel, typical, SPREAD)
        self._kernel.register_prior("outputscale_prior", LogNormalPrior(0.0, 2.0), _outputscale)

    def collect(self, study: Study) -> list[Array]:
        """Note the trials that have finished since the last call, and return the rows of those that are running."""
        trials, running = study.get_trials(deepcopy=False), list[Array]()
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        numbers = [*self._unfinished, *range(self._seen, len(trials))]
        self._seen, self._unfinished = len(trials), []
        for number in numbers:
            trial = trials[number]
            if not trial.state.is_finished():
                self._unfinished.append(number)
                if (is_known := self.space.distributions.keys() <= trial.params.keys()) or number in self.suggested:
                    running.append(self.space.encode(trial.params) if is_known else self.suggested[number])
                continue
            self.suggested.pop(number, None)
            if getattr(trial, "constraints", None):
                raise NotSupportedError("CVGPSampler does not know constraints. Use GPSampler or TPESampler of Optuna.")
            if trial.state == TrialState.COMPLETE:
                self.rows.append(self.space.encode(trial.params))
                self.y.append(sign * trial.value)
        return running

    @torch.no_grad()
    def suggest(self, running: list[Array], rng: np.random.Generator) -> Array:
        """The row with the largest expected improvement among candidates."""
        process, space = self._updated(rng), self.space
        if running:
            x = space.features(np.array(running))
            process = process.condition(x, process(x).mean, self._noise)
        best = process(process.X_c).mean.min()

        def best_of(rows: Array, count: int) -> Array:
            return np.asarray(rows[np.argsort(-log_improvement(process, space.features(rows), best).numpy())[:count]])

        centers = np.array([self.rows[i] for i in np.argsort(self.y)[:CENTERS]])
        local = space.move(np.resize(centers, (LOCAL, centers.shape[1])), rng)
        starts = np.vstack([best_of(rows, POLISHED // 2) for rows in (space.draw(RANDOM, rng), local)])
        polished = starts.copy()
        polished[:, space.is_number] = _polished(process, space.features(starts), int(space.is_number.sum()), best)
        return np.asarray(best_of(np.vstack([starts, space.snap(polished)]), 1)[0])

    def _updated(self, rng: np.random.Generator) -> CoresetProcess:
        """The posterior of all finished trials."""
        count = len(self.y)
        if self._process is None or count - self._placed >= min(PLACE_EVERY, 1 + self._placed // 10):
            self._process, self._placed = self._renewed(rng), count
        elif count > self._known:
            x = self.space.features(np.array(self.rows[self._known :]))
            z = torch.as_tensor(self._standardized(np.array(self.y[self._known :])))
            self._process = self._process.condition(x, z, self._noise)
        self._known = count
        return self._process

    def _renewed(self, rng: np.random.Generator) -> CoresetProcess:
        """Choose points, learn the kernel if trials have become many more, and solve for the coreset of all trials."""
        x, y = self.space.features(np.array(self.rows)), np.array(self.y)
        z = torch.as_tensor(self._rescaled(y))
        half = CANDIDATE_ROWS // 2
        rank = np.concatenate([np.arange(len(y))[:half], half + rng.permutation(max(len(y) - half, 0))[:half]])
        rows = np.argsort(y, kind="stable")[rank]  # the best, and a random part of the others
        points = self._points(x[rows], rank)
        if len(y) >= GROWTH * self._learned:
            others = rng.permutation(np.setdiff1d(np.arange(len(rows)), points))[: LEARNING_ROWS - len(points)]
            some = rows[np.concatenate([points, others])]
            self._learn(x[some], z[some])
            self._learned = len(y)
            points = self._points(x[rows], rank)
        model = self._model(x[rows[points]], z[rows[points]])
        psi = bounds.whitener(model.jittered_covariance()) @ cross_matrix(self._kernel, model.X_c, x)  # [M, n]
        k_xx = diagonal(self._kernel, x)
        # What the points do not explain of f is noise (FITC: Snelson and Ghahramani, 2006).
        weighed = bounds.weigh(self._noise + (k_xx - psi.square().sum(0)).clamp_min(0.0), k_xx)
        model.adopt_optimum(bounds.gather_whitened(psi, k_xx, z[:, None], *weighed[1:]))
        return model.process()

    def _points(self, x: Tensor, rank: NDArray[np.int64]) -> NDArray[np.intp]:
        """Rows by pivoted Cholesky, where the variance of a good trial counts more (Moss, Ober and Picheny, 2023)."""
        root = torch.as_tensor(1.0 / np.sqrt(rank + 1.0))  # [n]
        k_xx = root.square() * diagonal(self._kernel, x)
        return pivoted_rows(k_xx, lambda i: root[i] * root * cross_matrix(self._kernel, x[[i]], x)[0], POINTS)[0]

    def _model(self, x: Tensor, z: Tensor) -> CVGP:
        likelihood = gaussian_likelihood(self._noise.item(), LEAST_NOISE)
        likelihood.noise_covar.register_prior("noise_prior", LogNormalPrior(math.log(START_NOISE), 2.0), "noise")
        return CVGP(Coreset(x, z, np.ones(len(x))), self._kernel, likelihood=likelihood)

    @torch.enable_grad()
    def _learn(self, x: Tensor, z: Tensor) -> None:
        model, before = self._model(x, z), deepcopy(self._kernel)
        objective = ExactObjective(model, Rows(x, z))
        try:
            maximize_by_lbfgs(objective, len(x), Run.alone(), max_evaluations=EVALUATIONS, tol=1e-3, phase="kernel")
            self._noise = model.noise.detach().clamp_min(2.0 * LEAST_NOISE)
        except (FactorizationError, FloatingPointError):
            self._kernel = before  # the next fit has other trials

    def _rescaled(self, y: Array) -> Array:
        """Standardized logarithms of distances to the best value: they resolve good values, however bad others are."""
        finite = y[np.isfinite(y)] if np.isfinite(y).any() else np.zeros(1)
        self._ends, gap = (finite.min(), finite.max()), finite - finite.min()
        self._unit = np.quantile(gap, 0.25) or gap.mean() or 1.0
        self._center, self._spread = 0.0, 1.0
        z = self._standardized(y)
        self._center, self._spread = z.mean(), z.std() or 1.0
        return self._standardized(y)

    def _standardized(self, y: Array) -> Array:
        gap = (np.nan_to_num(y, neginf=self._ends[0], posinf=self._ends[1]) - self._ends[0]) / self._unit
        return np.asarray((np.where(gap > 0.0, np.log1p(np.maximum(gap, 0.0)), gap) - self._center) / self._spread)


def log_improvement(process: CoresetProcess, x: Tensor, best: Tensor) -> Tensor:
    """The logarithm of the expected improvement below `best` at x [n, D] (Ament et al., 2023)."""
    prediction = process(x)
    sd = prediction.variance.clamp_min(1e-14).sqrt()
    u = (best - prediction.mean) / sd  # [n]; the improvement is sd (phi(u) + u Phi(u))
    above, below = u.clamp_min(0.0), u.clamp(-1e3, 0.0)  # farther below, the difference would be rounding
    plain = ((-0.5 * above.square() + LOG_PHI).exp() + above * torch.special.ndtr(above)).log()
    ratio = math.sqrt(0.5 * math.pi) * torch.special.erfcx(-below / math.sqrt(2.0))  # Phi(u) / phi(u)
    return sd.log() + torch.where(u > 0.0, plain, -0.5 * u.square() + LOG_PHI + torch.log1p(below * ratio))


@torch.enable_grad()
def _polished(process: CoresetProcess, x: Tensor, count: int, best: Tensor) -> Array:
    """The first columns [n, count] of rows x with a larger improvement, found by moving these columns."""
    if count == 0:
        return np.zeros((len(x), 0))

    def negative(flat: Array) -> tuple[float, Array]:
        free = torch.tensor(flat.reshape(len(x), count), requires_grad=True)
        value = -log_improvement(process, torch.cat([free, x[:, count:]], 1), best).sum()
        (slope,) = torch.autograd.grad(value, free)
        return value.item(), slope.numpy().ravel()

    begin: Array = x[:, :count].numpy().ravel()
    ends = [(0.0, 1.0)] * len(begin)
    found = minimize(negative, begin, jac=True, method="L-BFGS-B", bounds=ends, options={"maxiter": POLISH_STEPS})
    return np.asarray(found.x.reshape(len(x), count))
