"""Likelihoods: how an observation depends on f, and all that a fit and its predictions need of that (§16).

A likelihood is the distribution of y given the latent values at its row. Expectations over the posterior of f are
Gauss-Hermite sums, or means over fixed quasi-random draws if a row has several latent values; derivatives are those of
the log density at the nodes. Exponential families with closed forms have these instead.
"""

import math
from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor
from torch.distributions import Bernoulli as BernoulliDistribution
from torch.distributions import Beta as BetaDistribution
from torch.distributions import Categorical, Distribution, Normal
from torch.distributions import Gamma as GammaDistribution
from torch.distributions import NegativeBinomial as NegativeBinomialDistribution
from torch.distributions import Poisson as PoissonDistribution
from torch.distributions import StudentT as StudentTDistribution
from torch.quasirandom import SobolEngine

from cvgp.errors import InvalidInputError

Array = NDArray[np.float64]

NODES = 20
DRAWS, DRAWS_OF_FIT = 256, 64
LEAST_CURVATURE = 1e-6  # of a row: a likelihood that is not log-concave may have a negative one
LARGEST_LATENT = 300.0  # of an exponent, so that rates stay finite while sites are solved for
LARGEST_POWER = 100  # of ten, in numbers whose logarithms have to be within that
SMALLEST_VARIANCE = 1e-8  # of f, for a derivative by differences
BISECTIONS, SAME = 60, 1e-9


class Expected(NamedTuple):
    """E_q log p(y | f) of each row, its derivative in the mean, and minus the second one, which is kept positive."""

    value: Tensor  # [n]
    slope: Tensor  # [n, L], a
    curvature: Tensor  # [n, L], g


@dataclass(frozen=True)
class Likelihood(ABC):
    """The distribution of y given one latent value f. Fields are parameters that a fit learns, all positive."""

    name: ClassVar[str]
    target: ClassVar[str]  # what y must be, in words
    otherwise: ClassVar[str] = ""  # what to do if it is not

    @property
    def num_latents(self) -> int:
        """The latent values of a row."""
        return 1

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what a fit learns."""
        return tuple(field.name for field in fields(self))

    @abstractmethod
    def distribution(self, f: Tensor) -> Distribution:
        """The distribution of y given latent values f; observations have the shape of f."""

    def check(self, y: Array) -> None:
        """Raise if observations [n] are impossible."""
        bad = np.flatnonzero(~self.is_possible(y))
        if len(bad):
            found = f"{y[bad[0]]:g} in row {bad[0] + 1}; {len(bad)} of {len(y)} rows cannot be used"
            text = f"likelihood={self.name!r} needs {self.target}; got {found}. {self.otherwise}"
            raise InvalidInputError(text.rstrip())

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """Which observations can occur."""
        return np.isfinite(y)

    def unit(self, y: Array) -> float:
        """What y is divided by during a fit, for a likelihood that any change of units leaves as it is."""
        return 1.0

    def in_units(self, unit: float) -> Self:
        """The likelihood of y times a unit."""
        return self

    def linked(self, y: Array) -> Array:
        """Observations [n] on the scale of f, by which a fit starts."""
        return y

    def constant(self, y: Array, weight: Array) -> Array:
        """The latent values [L] of the best prediction that is the same for all rows, nearly."""
        return np.array([np.average(self.linked(y), weights=weight)])

    def log_density(self, y: Tensor, f: Tensor) -> Tensor:
        """Log p(y | f) for f `[..., n]`, or `[..., n, L]` with several latent values."""
        return self.distribution(f).log_prob(y)

    def expected(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Expected:
        """Expectations over normal marginals with means and variances `[n, L]`."""
        f, weights = _nodes(f_mean, f_var)
        with torch.enable_grad():
            f = f.detach().requires_grad_()
            value = self.log_density(y, f)
            (slope,) = torch.autograd.grad(value.sum(), f, create_graph=True)
            curvature = torch.zeros_like(f)
            if slope.requires_grad:
                curvature = -torch.autograd.grad(slope.sum(), f)[0]
        value, slope, curvature = (weights @ part.detach() for part in (value, slope, curvature))
        return Expected(value, slope[:, None], curvature[:, None].clamp_min(LEAST_CURVATURE))

    def log_predictive(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Tensor:
        """Log of the predictive density of y `[n]`, with f integrated out."""
        f, weights = _nodes(f_mean, f_var)
        return torch.logsumexp(self.log_density(y, f) + weights.log()[:, None], 0)

    def moments(self, f_mean: Tensor, f_var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of a new y `[n]` with f integrated out: the mean, the variance of E[y | f], and the mean of Var[y | f]."""
        f, weights = _nodes(f_mean, f_var)
        given = self.distribution(f)
        mean = weights @ given.mean
        return mean, weights @ (given.mean - mean).square(), weights @ given.variance

    def sample(self, f: Tensor, seed: int) -> Tensor:
        """A draw of y for each latent value."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            return self.distribution(f).sample()

    def learned(self, y: Tensor, f_mean: Tensor, f_var: Tensor, weight: Tensor) -> Self:
        """The likelihood with the parameters under which rows with these posteriors are expected to be likeliest."""
        names = self.parameters
        if not names:
            return self
        from scipy.optimize import minimize

        f, weights = _nodes(f_mean, f_var)

        def negative(log_values: Array) -> float:
            # A factor of e^3 in one step is enough; beyond it the search would leave the range of floats.
            likelihood = replace(self, **dict(zip(names, np.exp(log_values).tolist(), strict=True)))
            value = (weights @ likelihood.log_density(y, f)) @ weight
            return -float(value) / float(weight.sum())

        start = np.log([getattr(self, name) for name in names])
        limits = [(value - 3.0, value + 3.0) for value in start]
        found = minimize(negative, start, method="Nelder-Mead", bounds=limits, options={"maxfev": 60 * len(names)})
        return replace(self, **dict(zip(names, np.exp(found.x).tolist(), strict=True)))


class Classes(Likelihood):
    """A likelihood of whole numbers from 0 on, which stand for classes."""

    @abstractmethod
    def probabilities(self, f_mean: Tensor, f_var: Tensor) -> Tensor:
        """Probabilities of the classes `[n, C]`, with f integrated out."""


class WithQuantiles(Likelihood):
    """A likelihood of numbers, whose distribution function is known."""

    @abstractmethod
    def frozen(self, f: Array) -> Any:
        """The distribution of y given f as SciPy has it."""

    def quantiles(self, levels: Array, f_mean: Tensor, f_var: Tensor) -> Array:
        """Quantiles `[n, P]` of a new y, with f integrated out: the mixture over the nodes is inverted."""
        f, weights = _nodes(f_mean, f_var)
        w, given = weights.numpy(), self.frozen(f.numpy())
        columns = []
        for level in levels:
            # The quantile of a mixture is between the least and the largest of its parts.
            ends = given.ppf(level)
            low, high = ends.min(0), ends.max(0)
            for _ in range(BISECTIONS):
                if (high - low <= (0.5 if self.is_discrete else SAME * np.abs(high))).all():
                    break
                middle = 0.5 * (low + high)
                is_below = w @ given.cdf(middle) < level
                low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
            columns.append(np.floor(high) if self.is_discrete else high)  # which is never below the quantile
        return np.stack(columns, -1)

    @property
    def is_discrete(self) -> bool:
        """Whether y is a count."""
        return False


@dataclass(frozen=True)
class Gaussian(WithQuantiles):
    """y = f plus normal noise: each row is its own site."""

    name, target = "gaussian", "finite numbers"
    noise: float = 1.0

    def distribution(self, f: Tensor) -> Distribution:
        """Normal around f."""
        return Normal(f, math.sqrt(self.noise))

    def expected(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Expected:
        """In closed form."""
        residual = y - f_mean[:, 0]
        value = -0.5 * ((residual.square() + f_var[:, 0]) / self.noise + math.log(2.0 * math.pi * self.noise))
        return Expected(value, residual[:, None] / self.noise, torch.full_like(f_mean, 1.0 / self.noise))

    def frozen(self, f: Array) -> Any:
        """Normal around f."""
        return stats.norm(f, math.sqrt(self.noise))


@dataclass(frozen=True)
class Bernoulli(Classes):
    """Two classes, 0 and 1, by the logistic function."""

    name, target = "bernoulli", "classes 0 and 1"

    def distribution(self, f: Tensor) -> Distribution:
        """Bernoulli with f as its logit."""
        return BernoulliDistribution(logits=f, validate_args=False)

    def log_density(self, y: Tensor, f: Tensor) -> Tensor:
        """Log p(y | f) without rounding at either end."""
        return torch.nn.functional.logsigmoid((2.0 * y - 1.0) * f)

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """0 and 1."""
        return np.isin(y, (0.0, 1.0))

    def linked(self, y: Array) -> Array:
        """Classes as -1 and 1."""
        return 2.0 * y - 1.0

    def constant(self, y: Array, weight: Array) -> Array:
        """The logit of the frequency of class 1, which is kept away from 0 and 1 by half a row."""
        share = (weight @ y + 0.5) / (weight.sum() + 1.0)
        return np.array([self._link(share)])

    def _link(self, share: float) -> float:
        return math.log(share / (1.0 - share))

    def probabilities(self, f_mean: Tensor, f_var: Tensor) -> Tensor:
        """Probabilities of the classes `[n, 2]`."""
        f, weights = _nodes(f_mean, f_var)
        ones = torch.ones_like(f_mean[:, 0])
        return torch.stack([weights @ self.log_density(y, f).exp() for y in (0.0 * ones, ones)], 1)


@dataclass(frozen=True)
class Probit(Bernoulli):
    """Two classes, 0 and 1, by the normal distribution function."""

    name = "probit"

    def log_density(self, y: Tensor, f: Tensor) -> Tensor:
        """Log Phi(f) or log Phi(-f)."""
        found: Tensor = torch.special.log_ndtr((2.0 * y - 1.0) * f)
        return found

    def distribution(self, f: Tensor) -> Distribution:
        """Bernoulli with the probability Phi(f)."""
        return BernoulliDistribution(probs=torch.special.ndtr(f), validate_args=False)

    def _link(self, share: float) -> float:
        return float(stats.norm.ppf(share))


@dataclass(frozen=True)
class Softmax(Classes):
    """Classes 0 to C - 1, each with a latent value of its own."""

    name, target = "categorical", "classes as whole numbers from 0 on"

    num_classes: int = 3

    @property
    def num_latents(self) -> int:
        """One for each class."""
        return self.num_classes

    @property
    def parameters(self) -> tuple[str, ...]:
        """There is nothing to learn."""
        return ()

    def distribution(self, f: Tensor) -> Distribution:
        """Categorical with logits f `[..., n, C]`."""
        return Categorical(logits=f, validate_args=False)

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """Whole numbers below the number of classes."""
        return np.isin(y, np.arange(self.num_classes))

    def linked(self, y: Array) -> Array:
        """Indicators of the classes [n, C], as -1 and 1."""
        return np.asarray(2.0 * (y[:, None] == np.arange(self.num_classes)) - 1.0)

    def constant(self, y: Array, weight: Array) -> Array:
        """Logarithms of the frequencies, each of which has half a row more, around their mean."""
        counts = np.bincount(y.astype(np.int64), weights=weight, minlength=self.num_classes) + 0.5
        logits = np.log(counts / counts.sum())
        return np.asarray(logits - logits.mean())

    def draws(self, f_mean: Tensor, f_var: Tensor, count: int = DRAWS) -> Tensor:
        """Latent values [S, n, C] at fixed quasi-random draws."""
        return f_mean + f_var.sqrt() * _normal_draws(self.num_classes, count).to(f_mean)[:, None]

    def expected(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Expected:
        """Means over the draws; the derivatives of the log density are y - p and p (1 - p)."""
        log_p = self.draws(f_mean, f_var, DRAWS_OF_FIT).log_softmax(-1)  # [S, n, C]
        is_y = torch.nn.functional.one_hot(y.long(), self.num_classes).to(f_mean)  # [n, C]
        p = log_p.exp()
        curvature = (p * (1.0 - p)).mean(0).clamp_min(LEAST_CURVATURE)
        return Expected((log_p.mean(0) * is_y).sum(1), is_y - p.mean(0), curvature)

    def probabilities(self, f_mean: Tensor, f_var: Tensor) -> Tensor:
        """Probabilities of the classes `[n, C]`."""
        return self.draws(f_mean, f_var).softmax(-1).mean(0)

    def log_predictive(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Tensor:
        """The logarithm of the probability of class y."""
        return self.probabilities(f_mean, f_var).gather(1, y.long()[:, None])[:, 0].log()


class _LogLink(WithQuantiles):
    """The mean of y is exp(f), times an exposure whose logarithm callers add to f."""

    @abstractmethod
    def variance_of(self, mean: Tensor, square: Tensor) -> Tensor:
        """The expected variance of y given its mean, from the mean and the expected square of exp(f)."""

    def moments(self, f_mean: Tensor, f_var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """In closed form: exp(f) is log-normal."""
        mean = (f_mean[:, 0] + 0.5 * f_var[:, 0]).clamp_max(LARGEST_LATENT).exp()
        f_variance = mean.square() * f_var[:, 0].clamp_max(LARGEST_LATENT).expm1()
        return mean, f_variance, self.variance_of(mean, mean.square() + f_variance)

    def linked(self, y: Array) -> Array:
        """The logarithm."""
        return np.log(y)

    def constant(self, y: Array, weight: Array) -> Array:
        """The logarithm of the mean."""
        return np.array([math.log(np.average(y, weights=weight))])


class _Count(_LogLink):
    """Whole numbers from 0 on."""

    otherwise = "For rates, give the counts themselves and an exposure; for other numbers, use another likelihood."

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """Whole numbers of at least 0."""
        return np.asarray(np.isfinite(y) & (y >= 0.0) & (y == np.round(y)))

    def linked(self, y: Array) -> Array:
        """The logarithm of the count and a half."""
        return np.log(y + 0.5)

    def constant(self, y: Array, weight: Array) -> Array:
        """The logarithm of the mean."""
        return np.array([math.log((weight @ y + 0.5) / weight.sum())])

    @property
    def is_discrete(self) -> bool:
        """It is."""
        return True


@dataclass(frozen=True)
class Poisson(_Count):
    """Counts of independent events."""

    name, target = "poisson", "counts: whole numbers of at least 0"

    def distribution(self, f: Tensor) -> Distribution:
        """Poisson with the rate exp(f)."""
        return PoissonDistribution(f.clamp_max(LARGEST_LATENT).exp(), validate_args=False)

    def expected(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Expected:
        """In closed form: the expected rate is exp(m + v / 2)."""
        mean, var = f_mean[:, 0], f_var[:, 0]
        rate = (mean + 0.5 * var).clamp_max(LARGEST_LATENT).exp()
        value = y * mean - rate - torch.lgamma(y + 1.0)
        return Expected(value, (y - rate)[:, None], rate[:, None].clamp_min(LEAST_CURVATURE))

    def frozen(self, f: Array) -> Any:
        """Poisson with the rate exp(f)."""
        return stats.poisson(np.exp(np.minimum(f, LARGEST_LATENT)))

    def variance_of(self, mean: Tensor, square: Tensor) -> Tensor:
        """The mean."""
        return mean


@dataclass(frozen=True)
class NegativeBinomial(_Count):
    """Counts that vary more than independent events: the variance is m + m^2 / size."""

    name, target = "negative_binomial", "counts: whole numbers of at least 0"
    size: float = 3.0

    def distribution(self, f: Tensor) -> Distribution:
        """Negative binomial with the mean exp(f)."""
        logits = f.clamp_max(LARGEST_LATENT) - math.log(self.size)
        return NegativeBinomialDistribution(total_count=self.size, logits=logits, validate_args=False)

    def frozen(self, f: Array) -> Any:
        """Negative binomial with the mean exp(f)."""
        return stats.nbinom(self.size, self.size / (self.size + np.exp(np.minimum(f, LARGEST_LATENT))))

    def variance_of(self, mean: Tensor, square: Tensor) -> Tensor:
        """More than the mean by the square over the size."""
        return mean + square / self.size


@dataclass(frozen=True)
class StudentT(WithQuantiles):
    """y = f plus noise with heavy tails."""

    name, target = "student_t", "finite numbers"
    scale: float = 1.0
    degrees: float = 4.0

    def distribution(self, f: Tensor) -> Distribution:
        """Student's t around f."""
        return StudentTDistribution(self.degrees, f, self.scale, validate_args=False)

    def moments(self, f_mean: Tensor, f_var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mean is that of f even where t has none; the variance is infinite up to two degrees of freedom."""
        spread = self.scale**2 * self.degrees / (self.degrees - 2.0) if self.degrees > 2.0 else math.inf
        return f_mean[:, 0], f_var[:, 0], torch.full_like(f_mean[:, 0], spread)

    def unit(self, y: Array) -> float:
        """The median absolute deviation as a standard deviation, or the standard deviation if most y are equal."""
        return float(stats.median_abs_deviation(y, scale="normal") or np.std(y) or 1.0)

    def in_units(self, unit: float) -> Self:
        """The scale is in units of y."""
        return replace(self, scale=self.scale * unit)

    def linked(self, y: Array) -> Array:
        """Without the ends of the tails."""
        middle, reach = np.median(y), 5.0 * self.unit(y)
        return np.clip(y, middle - reach, middle + reach)

    def frozen(self, f: Array) -> Any:
        """Student's t around f."""
        return stats.t(self.degrees, f, self.scale)


@dataclass(frozen=True)
class Gamma(_LogLink):
    """Positive numbers with the mean exp(f) and a standard deviation in proportion to it."""

    name, target = "gamma", "numbers above 0"
    otherwise = "Leave out the others, or use likelihood='gaussian'."
    shape: float = 2.0

    def distribution(self, f: Tensor) -> Distribution:
        """Gamma with the mean exp(f)."""
        rate = self.shape * (-f.clamp(-LARGEST_LATENT, LARGEST_LATENT)).exp()
        return GammaDistribution(self.shape, rate, validate_args=False)

    def check(self, y: Array) -> None:
        """Also raise for numbers whose logarithms are beyond the range of f."""
        super().check(y)
        if np.abs(np.log10(y)).max(initial=0.0) > LARGEST_POWER:
            known = f"1e-{LARGEST_POWER} to 1e{LARGEST_POWER}; got {y.min():g} to {y.max():g}"
            raise InvalidInputError(f"likelihood='gamma' needs numbers from {known}. Give y in another unit.")

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """Above 0."""
        return np.isfinite(y) & (y > 0.0)

    def frozen(self, f: Array) -> Any:
        """Gamma with the mean exp(f)."""
        return stats.gamma(self.shape, scale=np.exp(np.clip(f, -LARGEST_LATENT, LARGEST_LATENT)) / self.shape)

    def variance_of(self, mean: Tensor, square: Tensor) -> Tensor:
        """The square over the shape."""
        return square / self.shape


@dataclass(frozen=True)
class Beta(WithQuantiles):
    """Proportions with the mean sigmoid(f)."""

    name, target = "beta", "proportions between 0 and 1, without both ends"
    otherwise = "Divide percentages by 100, leave out 0 and 1 or move them inside, or use likelihood='gaussian'."
    precision: float = 5.0

    def _concentrations(self, f: Tensor) -> tuple[Tensor, Tensor]:
        tiny = 1e-6  # a concentration of 0 has no density
        return self.precision * f.sigmoid() + tiny, self.precision * (-f).sigmoid() + tiny

    def distribution(self, f: Tensor) -> Distribution:
        """Beta with the mean sigmoid(f)."""
        return BetaDistribution(*self._concentrations(f), validate_args=False)

    def log_density(self, y: Tensor, f: Tensor) -> Tensor:
        """Log p(y | f); torch's own has no second derivative."""
        a, b = self._concentrations(f)
        return torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + (a - 1.0) * y.log() + (b - 1.0) * (-y).log1p()

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """Between 0 and 1."""
        return (y > 0.0) & (y < 1.0)

    def linked(self, y: Array) -> Array:
        """The logit."""
        return np.log(y) - np.log1p(-y)

    def frozen(self, f: Array) -> Any:
        """Beta with the mean sigmoid(f)."""
        return stats.beta(*(part.numpy() for part in self._concentrations(torch.as_tensor(f))))


@dataclass(frozen=True)
class GPyTorchLikelihood(WithQuantiles):
    """Any likelihood of GPyTorch that has one latent value per row; its parameters stay as they are."""

    name, target = "gpytorch", "what the likelihood can give"
    wrapped: ClassVar[Any]  # of an instance: no parameter that is learned

    def __init__(self, wrapped: Any) -> None:
        own = deepcopy(wrapped).double().cpu().requires_grad_(requires_grad=False)
        object.__setattr__(self, "wrapped", own)
        kind, shape = type(wrapped).__name__, (2, 3)
        try:
            given = self.distribution(torch.zeros(shape, dtype=torch.float64))
            is_usable = given.batch_shape == shape and not given.event_shape
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(f"The likelihood {kind} cannot be used for rows of any number: {reason}") from error
        if not is_usable:
            raise InvalidInputError(
                f"The likelihood {kind} is not one of a number per row with one latent value: for f of shape {shape}, "
                f"it gives {given!r}."
            )

    def __repr__(self) -> str:
        raw = {name: tensor.tolist() for name, tensor in self.wrapped.named_parameters()}
        return f"{type(self.wrapped).__name__}({', '.join(f'{name}={value}' for name, value in raw.items())})"

    def distribution(self, f: Tensor) -> Distribution:
        """What the likelihood's `forward` gives."""
        given: Distribution = self.wrapped.forward(f)
        return given

    def is_possible(self, y: Array) -> NDArray[np.bool_]:
        """In the support of the distribution."""
        values = torch.as_tensor(y)
        support: Any = self.distribution(torch.zeros_like(values)).support
        return np.asarray(np.isfinite(y) & support.check(values).numpy())

    def expected(self, y: Tensor, f_mean: Tensor, f_var: Tensor) -> Expected:
        """The second derivative from the first ones (Stein), since the log density may have corners."""
        nodes, weights = _hermite(f_mean)
        sd = f_var[:, 0].clamp_min(SMALLEST_VARIANCE).sqrt()
        with torch.enable_grad():
            f = (f_mean[:, 0] + sd * nodes[:, None]).requires_grad_()  # [S, n]
            value = self.log_density(y, f)
            (slope,) = torch.autograd.grad(value.sum(), f)
        curvature = -(weights * nodes) @ slope / sd
        return Expected(
            weights @ value.detach(), (weights @ slope)[:, None], curvature[:, None].clamp_min(LEAST_CURVATURE)
        )

    def frozen(self, f: Array) -> Any:
        """The distribution with the names of SciPy; torch does not know the quantiles of all."""
        return _Frozen(self.distribution(torch.as_tensor(f)))


class _Frozen(NamedTuple):
    given: Distribution

    def cdf(self, y: Array) -> Array:
        return self._called("cdf", y)

    def ppf(self, level: float) -> Array:
        return self._called("icdf", level)

    def _called(self, name: str, value: Any) -> Array:
        try:
            found: Array = getattr(self.given, name)(torch.as_tensor(value, dtype=torch.float64)).numpy()
        except NotImplementedError as error:
            raise InvalidInputError(
                f"PyTorch does not know the quantiles of {type(self.given).__name__}, so there are no intervals. Use "
                "means, densities and samples."
            ) from error
        return found


LIKELIHOODS: dict[str, type[Likelihood]] = {
    kind.name: kind for kind in (Gaussian, StudentT, Poisson, NegativeBinomial, Gamma, Beta, Bernoulli, Probit)
}


def _hermite(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights [S] of the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return torch.as_tensor(nodes).to(like), torch.as_tensor(weights / weights.sum()).to(like)


def _nodes(f_mean: Tensor, f_var: Tensor) -> tuple[Tensor, Tensor]:
    """Latent values [S, n] at the nodes of normal marginals `[n, 1]`, and the weights [S]."""
    nodes, weights = _hermite(f_mean)
    return f_mean[:, 0] + f_var[:, 0].sqrt() * nodes[:, None], weights


@lru_cache
def _normal_draws(num_latents: int, count: int) -> Tensor:
    """Quasi-random standard normal draws [S, L], symmetric around 0."""
    uniform = SobolEngine(num_latents, scramble=True, seed=0).draw(count // 2, dtype=torch.float64)
    half = torch.special.ndtri(uniform.clamp(1e-6, 1.0 - 1e-6))
    return torch.cat([half, -half])
