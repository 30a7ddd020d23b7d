"""The GPyTorch parts of a model: kernels by name, the Gaussian likelihood, constraints and priors, and their values.

Stationary kernels take the fused path of :mod:`cvgp.gp.stationary`; GPyTorch evaluates all others.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean, ZeroMean
from gpytorch.priors import NormalPrior, Prior
from gpytorch.settings import lazily_evaluate_kernels
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import functional_call

from cvgp.errors import DivergenceError, InvalidInputError, InvalidTypeError
from cvgp.gp import stationary
from cvgp.gp.stationary import FAMILIES, StationaryKernel
from cvgp.gp.tanimoto import TanimotoKernel

__all__ = ["KERNEL_NAMES", "make_kernel"]

KERNEL_NAMES = ("rbf", "matern12", "matern32", "matern52", "rq", "linear", "periodic", "quasiperiodic", "tanimoto")
"""Names that `kernel` may have, in `cvgp.CVGPRegressor`, `cvgp.CVGP` and `make_kernel`.

``+`` and ``*`` join all but ``tanimoto``, which is for fingerprints and takes its inputs as they are.
"""


def parse_kernel_name(text: str) -> list[list[str]]:
    """The names in a sum of products, as terms of factors: "rbf + matern32*periodic" has two terms."""
    terms = [[name.strip() for name in term.split("*")] for term in text.split("+")]
    unknown = [name for term in terms for name in term if name not in KERNEL_NAMES]
    if unknown:
        where = "" if unknown[0] == text else f" in {text!r}"
        raise InvalidInputError(
            f"Unknown kernel {unknown[0]!r}{where}. Choose one of {', '.join(KERNEL_NAMES)}, join several by + and *, "
            "as in 'rbf+linear', or pass a GPyTorch kernel."
        )
    if "tanimoto" in text and terms != [["tanimoto"]]:
        raise InvalidInputError(
            f"The kernel 'tanimoto' compares inputs as they are, and the others need scaled ones; got {text!r}. Use it "
            "alone, or pass a GPyTorch kernel of your own with standardize=False."
        )
    return terms


def name_of_kernel(kernel: Any) -> str:
    """The text from which the library makes such a kernel; for one that it cannot make, names of GPyTorch's classes."""
    kind = type(kernel).__name__.removesuffix("Kernel")
    if kind == "Scale":
        return name_of_kernel(kernel.base_kernel)
    if kind == "Additive":
        return "+".join(map(name_of_kernel, kernel.kernels))
    if kind == "Product":
        names = map(name_of_kernel, kernel.kernels)
        return "*".join(f"({name})" if "+" in name else name for name in names)
    return f"matern{2 * kernel.nu:.0f}2" if kind == "Matern" else kind.lower()


NOISE_FLOOR = 1e-8  # smallest learned noise variance; GPyTorch's own 1e-4 is too high for near-noiseless data

_MATERN_FAMILY = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}


def log_positive() -> Positive:
    """A positive constraint whose raw parameter is the logarithm: equal steps are equal factors."""
    return Positive(transform=torch.exp, inv_transform=torch.log)


def log_above(floor: float | Tensor) -> GreaterThan:
    """A lower bound in float64, with the logarithm of what is above it as the raw parameter."""
    constraint = GreaterThan(floor, transform=torch.exp, inv_transform=torch.log)
    # GPyTorch rounds a bound to torch's default type, in which 1e-8 may be another number, or zero.
    constraint.lower_bound = torch.as_tensor(floor, dtype=torch.float64, device="cpu").clone()
    return constraint


def make_kernel(name: str, num_dims: int, *, ard: bool = True) -> Kernel:
    """Build a kernel by name, or a sum and product of several, in float64.

    Parameters
    ----------
    name : str
        One of :data:`~cvgp.gp.kernels.KERNEL_NAMES`, or several joined by ``+`` and ``*``. Each term of a sum
        has a scale of its own: an outputscale, or the variances of its linear factors.
    num_dims : int
        The number of input dimensions D.
    ard : bool
        Learn one lengthscale per dimension rather than one for all.

    Returns
    -------
    gpytorch.kernels.Kernel
        Its positive parameters are learned as logarithms.

    Examples
    --------
    >>> from cvgp.gp.kernels import make_kernel
    >>> make_kernel("matern32", 2).base_kernel.lengthscale.shape
    torch.Size([1, 2])
    """
    terms = [_make_term(factors, {"ard_num_dims": num_dims} if ard else {}) for factors in parse_kernel_name(name)]
    return (terms[0] if len(terms) == 1 else AdditiveKernel(*terms)).double()


def _make_term(names: list[str], shared: dict[str, int]) -> Kernel:
    """A product of kernels, with an outputscale unless a linear factor has variances of its own."""
    factors = [_make_factor(name, shared) for name in names]
    product = factors[0] if len(factors) == 1 else ProductKernel(*factors)
    return product if "linear" in names else scale_kernel(product, outputscale_constraint=log_positive())


def _make_factor(name: str, shared: dict[str, int]) -> Kernel:
    if name == "linear":
        return LinearKernel(variance_constraint=log_positive(), **shared)
    if name == "rbf":
        return RBFKernel(lengthscale_constraint=log_positive(), **shared)
    if name == "rq":
        return RQKernel(lengthscale_constraint=log_positive(), alpha_constraint=log_positive(), **shared)
    if name == "tanimoto":
        return TanimotoKernel()
    if name == "periodic":
        return PeriodicKernel(lengthscale_constraint=log_positive(), period_length_constraint=log_positive(), **shared)
    if name == "quasiperiodic":
        return QuasiperiodicKernel(*(_make_factor(factor, shared) for factor in ("matern32", "periodic")))
    smoothness = {family: nu for nu, family in _MATERN_FAMILY.items()}[name]
    return MaternKernel(nu=smoothness, lengthscale_constraint=log_positive(), **shared)


class QuasiperiodicKernel(ProductKernel):  # type: ignore[misc]
    """A periodic kernel times one that decays: cycles that are far apart may differ in shape and size."""


class _NoKernel(nn.Module):
    """Stands where a ScaleKernel expects its base while it is built, and has no batch shape to ask for."""

    active_dims = None


def scale_kernel(base: Kernel, **arguments: Any) -> ScaleKernel:
    """GPyTorch's ScaleKernel without the comparison of batch shapes in its constructor, which loads SymPy."""
    kernel = ScaleKernel(_NoKernel(), active_dims=base.active_dims, **arguments)
    kernel.base_kernel = base
    return kernel


def gaussian_likelihood(noise: float = 0.1, floor: float = NOISE_FLOOR) -> GaussianLikelihood:
    """GPyTorch's Gaussian likelihood in float64, with the logarithm of the noise variance as its parameter."""
    if not floor < noise < math.inf:
        raise InvalidInputError(f"noise is a variance, finite and above the floor of {floor}; got {noise}.")
    likelihood = GaussianLikelihood(noise_constraint=log_above(floor)).double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)  # GPyTorch would round a float to float32
    return likelihood


def stationary_form(kernel: Kernel, num_dims: int) -> StationaryKernel | None:
    """The kernel's fused form, or None where it has none (sums, subsets of columns, batches, other families)."""
    base, outputscale = kernel, None
    if type(kernel) is ScaleKernel and kernel.active_dims is None:
        base, outputscale = kernel.base_kernel, kernel.outputscale
    if base.active_dims is not None or (outputscale is not None and outputscale.ndim > 0):
        return None
    if type(base) is RBFKernel:
        family = FAMILIES["rbf"]
    elif type(base) is MaternKernel:
        family = FAMILIES[_MATERN_FAMILY[base.nu]]
    elif type(base) is RQKernel:
        family = FAMILIES["rq"]
    else:
        return None
    lengthscale = base.lengthscale
    if lengthscale.ndim > 2:
        return None  # a batch of kernels
    lengthscale = lengthscale.reshape(-1)
    if len(lengthscale) not in (1, num_dims):
        raise InvalidInputError(
            f"{type(base).__name__} has {len(lengthscale)} lengthscales for inputs of {num_dims} dimensions; "
            f"build it with ard_num_dims={num_dims}, or with one lengthscale for all."
        )
    inverse_lengthscale = lengthscale.reciprocal().expand(num_dims)
    one = torch.ones((), dtype=inverse_lengthscale.dtype, device=inverse_lengthscale.device)
    return StationaryKernel(
        family,
        inverse_lengthscale,
        one if outputscale is None else outputscale.reshape(()),
        base.alpha.reshape(()) if type(base) is RQKernel else one,
    )


def kernel_matrices(kernel: Kernel, X_c: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K_cc [M, M] in float64, K_cx [M, B] and the diagonal k_xx [B], differentiable in the kernel and X_c."""
    form = stationary_form(kernel, X_c.shape[-1])
    if form is None:
        return square_matrix(kernel, X_c), cross_matrix(kernel, X_c, x), diagonal(kernel, x)
    k_xx = form.outputscale.to(x.dtype).expand(x.shape[:-1])
    return stationary.square_matrix(form, X_c), stationary.cross_matrix(form, X_c, x), k_xx


def square_matrix(kernel: Kernel, X_c: Tensor) -> Tensor:
    """K_cc [M, M] in float64: the pseudo-inputs are promoted before the kernel sees them."""
    form = stationary_form(kernel, X_c.shape[-1])
    if form is not None:
        return stationary.square_matrix(form, X_c)
    if type(kernel) is AdditiveKernel:  # whose terms may have fused forms
        return reduce(torch.add, (square_matrix(term, X_c) for term in kernel.kernels))
    points = X_c.to(torch.float64)
    return evaluate(kernel, points, points)


def cross_matrix(kernel: Kernel, X_c: Tensor, x: Tensor) -> Tensor:
    """K_cx [..., M, B] in the precision of x."""
    form = stationary_form(kernel, X_c.shape[-1])
    if form is not None:
        return stationary.cross_matrix(form, X_c, x)
    if type(kernel) is AdditiveKernel:
        return reduce(torch.add, (cross_matrix(term, X_c, x) for term in kernel.kernels))
    return evaluate(kernel, X_c.to(x.dtype).expand(*x.shape[:-2], *X_c.shape), x)


def diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """The prior variance k(x_i, x_i) at each point [..., B]."""
    form = stationary_form(kernel, x.shape[-1])
    if form is not None:
        return form.outputscale.to(x.dtype).expand(x.shape[:-1])
    return evaluate(kernel, x, diag=True)


def evaluate(kernel: Kernel, *points: Tensor, diag: bool = False) -> Tensor:
    """GPyTorch's own values of a kernel, `[..., B1, B2]` or the diagonal `[..., B1]`, in the points' precision."""
    # GPyTorch adds low-rank matrices through a factorization, which a singular term breaks: so term by term.
    if type(kernel) is AdditiveKernel:
        return reduce(torch.add, (evaluate(part, *points, diag=diag) for part in kernel.kernels))
    if type(kernel) in (ProductKernel, QuasiperiodicKernel):
        return reduce(torch.mul, (evaluate(part, *points, diag=diag) for part in kernel.kernels))
    if type(kernel) is ScaleKernel and kernel.base_kernel.active_dims is None:
        seen = points if kernel.active_dims is None else tuple(x[..., kernel.active_dims] for x in points)
        outputscale: Tensor = kernel.outputscale
        outputscale = outputscale[..., None] if diag else outputscale[..., None, None]
        return outputscale.to(points[0].dtype) * evaluate(kernel.base_kernel, *seen, diag=diag)
    # The values must exist before functional_call puts the parameters back.
    with lazily_evaluate_kernels(False):
        values = functional_call(kernel, parameters_as(points[0].dtype, kernel), points, {"diag": diag})
    dense: Tensor = values if diag else values.to_dense()
    return dense


def prior_mean(mean: Mean, x: Tensor, outputs: Tensor) -> Tensor:
    """The mean function at x `[..., B, D]` in the precision of x, in a shape that broadcasts against the outputs."""
    if isinstance(mean, ZeroMean):  # the usual case, in every training step
        return torch.zeros((), dtype=x.dtype, device=x.device)
    values: Tensor = functional_call(mean, parameters_as(x.dtype, mean), (x,))
    return values if outputs.ndim < x.ndim else values.unsqueeze(-1)


def parameters_as(dtype: torch.dtype, module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and buffers in one precision: many GPyTorch modules cannot mix theirs with the inputs'."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors}


def check_inputs(x: Tensor, X_c: Tensor) -> None:
    """Raise unless x is a tensor [..., B, D] that fits the pseudo-inputs [M, D]."""
    if not isinstance(x, Tensor):
        raise InvalidTypeError(f"x must be a torch.Tensor; got {type(x).__name__}. Convert it with torch.as_tensor.")
    D = X_c.shape[1]
    if x.ndim < 2 or x.shape[-1] != D:
        raise InvalidInputError(f"x must be [..., B, {D}], as the pseudo-inputs are; got {tuple(x.shape)}.")
    if x.device != X_c.device or not x.is_floating_point():
        raise InvalidInputError(
            f"x must be a floating-point tensor on {X_c.device}, where the pseudo-inputs are; "
            f"got {x.dtype} on {x.device}. Convert it with x.to(...)."
        )


def check_finite(name: str, values: Tensor) -> None:
    """Raise if any of the values is NaN or infinite."""
    if math.isfinite(values.sum().item()):
        return  # one that is not would show in the sum
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise InvalidInputError(f"{name} holds {bad} NaN or infinite values; drop or impute those rows first.")


def check_rows(x: Tensor, y: Tensor, X_c: Tensor, y_c: Tensor) -> None:
    """Raise unless x `[B, D]` and y `[B]` or `[B, Q]` fit each other and the coreset."""
    check_inputs(x, X_c)
    if not isinstance(y, Tensor):
        raise InvalidTypeError(f"y must be a torch.Tensor; got {type(y).__name__}. Convert it with torch.as_tensor.")
    expected = (len(x), *y_c.shape[1:])
    if x.ndim != 2 or len(x) == 0 or tuple(y.shape) != expected:
        raise InvalidInputError(
            f"x must be [B, D] with B >= 1 and y {list(expected)}; got {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if y.dtype != x.dtype or y.device != x.device:
        raise InvalidInputError(
            f"x and y must share dtype and device; got {x.dtype} on {x.device} and {y.dtype} on {y.device}. "
            "Convert one of them with .to(...)."
        )


STEP = 0.1  # the distance over which slopes are measured, for inputs of standard deviation one


@torch.no_grad()
def typical_slopes(kernel: Kernel, num_dims: int, step: float = STEP) -> Tensor:
    """The root mean square of (f(x + step) - f(x)) / step along each input `[D]` under the prior, in float64."""
    x = torch.ones(1, num_dims, dtype=torch.float64, device=next(kernel.parameters()).device)
    moved = x + step * torch.eye(num_dims, dtype=x.dtype, device=x.device)  # [D, D]
    squares = diagonal(kernel, x) + diagonal(kernel, moved) - 2.0 * cross_matrix(kernel, x, moved)[0]
    return squares.clamp_min(0.0).sqrt() / step


HELD_AROUND, HELD_ABOVE = "held_around", "held_above"  # names of the priors that a fit adds and removes
MARGIN = 0.01  # distance from a bound, as a share of the interval: at the bound itself the raw parameter is infinite


class RegisteredPrior(NamedTuple):
    """A prior, and the value that it is a density of."""

    name: str
    module: nn.Module
    prior: Prior
    value_of: Callable[[Any], Tensor]


def registered_priors(*parts: Any) -> list[RegisteredPrior]:
    """All priors of some GPyTorch modules and of the modules inside them."""
    found = (prior for part in parts for prior in part.named_priors())
    return [RegisteredPrior(name, module, prior, value_of) for name, module, prior, value_of, _ in found]


def log_density(priors: list[RegisteredPrior], like: Tensor) -> Tensor:
    """The sum of the log densities of all priors at the present values, in nats; float64, where `like` is."""
    total = torch.zeros((), dtype=torch.float64, device=like.device)
    for name, module, prior, value_of in priors:
        try:
            total = total + prior.log_prob(value_of(module)).sum()
        except ValueError as error:
            raise DivergenceError(
                f"{name} has no density at the present value, which is outside its support; start from a value "
                "inside, and keep it there with a constraint such as gpytorch.constraints.Interval"
            ) from error
    return total


@torch.no_grad()
def multiply_inside(module: Any, name: str, factor: Tensor | float) -> None:
    """Multiply a constrained parameter, such as `lengthscale`, by a factor, as far as its constraint allows."""
    value, constraint = getattr(module, name) * factor, module.constraint_for_parameter_name(f"raw_{name}")
    if constraint is not None:
        value = inside(value, constraint.lower_bound, constraint.upper_bound)
    setattr(module, name, value)


def inside(value: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The nearest value at least a margin away from both bounds, for those that are beyond it."""
    lower, upper = lower.to(value), upper.to(value)
    width = upper - lower
    # With one bound alone, the margin is a share of that bound.
    margin = MARGIN * torch.where(torch.isfinite(width), width, torch.where(torch.isfinite(lower), lower, upper).abs())
    return torch.where(value <= lower, lower + margin, torch.where(value >= upper, upper - margin, value))


class InverseHalfCauchy(Prior):  # type: ignore[misc]
    """Prior of a positive value whose inverse is half-Cauchy: log p = -log(1 + (typical / value)^2) + constant."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, typical: Tensor) -> None:
        nn.Module.__init__(self)
        Distribution.__init__(self, validate_args=False)
        self.register_buffer("typical", typical)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of each value, in nats."""
        return -torch.log1p((self.typical / value).square())


class SimilarLengthscales(Prior):  # type: ignore[misc]
    """Prior of log lengthscales [..., D]: a Cauchy distribution around their own mean, up to a constant.

    Columns are alike unless the rows say otherwise, and a few that differ much cost little. The mean is free, and
    lengthscales are measured in typical widths [D] of their columns.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, width: Tensor) -> None:
        nn.Module.__init__(self)
        Distribution.__init__(self, validate_args=False)
        self.register_buffer("log_width", width.log())

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of each value, in nats."""
        relative = value - self.log_width
        return -torch.log1p((relative - relative.mean(-1, keepdim=True)).square())


def add_similarity_prior(kernel: Kernel, width: Tensor) -> None:
    """Add a prior under which lengthscales are similar in units of `width` [D]."""
    for part in with_lengthscale(kernel):
        part.register_prior(HELD_AROUND, SimilarLengthscales(width.to(part.lengthscale)), _log_lengthscale)


def add_log_normal_prior(kernel: Kernel, typical: Tensor, spread: float) -> None:
    """Add a normal prior on the logarithm of each lengthscale, around that of the typical one `[D]`."""
    for part in with_lengthscale(kernel):
        like = part.lengthscale[0]
        prior = NormalPrior(typical.log().to(like), torch.full_like(like, spread))
        part.register_prior(HELD_AROUND, prior, _log_lengthscale)


def add_lower_prior(kernel: Kernel, typical: Tensor, f_sd: Tensor) -> None:
    """Add priors against lengthscales far below `typical` [D], and against a variance of f far above `f_sd`^2."""
    for part in with_lengthscale(kernel):
        part.register_prior(HELD_ABOVE, InverseHalfCauchy(typical.to(part.lengthscale)), _lengthscale)
    for part in kernel.modules():
        if isinstance(part, ScaleKernel) and part.raw_outputscale.requires_grad:
            part.register_prior(HELD_ABOVE, InverseHalfCauchy(1.0 / f_sd.to(part.outputscale)), _inverse_f_sd)


def is_held(module: nn.Module) -> bool:
    """Whether any part of a module has a prior of a fit."""
    return any(name in _priors(part) for part in module.modules() for name in (HELD_AROUND, HELD_ABOVE))


def release(*modules: nn.Module) -> None:
    """Remove the priors of a fit, if there are any."""
    for part in (part for module in modules for part in module.modules()):
        for name in {HELD_AROUND, HELD_ABOVE} & set(_priors(part)):
            del _priors(part)[name], part._modules[name]


class TiedLogs:
    """Logarithms of lengthscales [..., D] of which those of some columns are one: their mean."""

    def __init__(self, columns: Sequence[int]) -> None:
        self.columns = list(columns)

    def exp(self, raw: Tensor) -> Tensor:
        """The lengthscales of logarithms."""
        return self._tied(raw).exp()

    def log(self, lengthscale: Tensor) -> Tensor:
        """The logarithms of lengthscales."""
        return self._tied(lengthscale.log())

    def _tied(self, logs: Tensor) -> Tensor:
        tied = logs.clone()
        tied[..., self.columns] = logs[..., self.columns].mean(-1, keepdim=True)
        return tied


def tie_lengthscales(kernel: Kernel, columns: Sequence[int]) -> None:
    """Give some columns one lengthscale in each part of a kernel, in place."""
    tied = TiedLogs(columns)
    for part in with_lengthscale(kernel):
        constraint = Positive(transform=tied.exp, inv_transform=tied.log)
        part.register_constraint("raw_lengthscale", constraint.to(part.raw_lengthscale))


def with_lengthscale(kernel: Kernel) -> list[Kernel]:
    """The parts of a kernel that have a lengthscale."""
    return [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]


def _priors(part: nn.Module) -> Any:
    return getattr(part, "_priors", {})


# Functions that can be pickled, as priors need them.
def _lengthscale(kernel: Any) -> Any:
    return kernel.lengthscale


def _log_lengthscale(kernel: Any) -> Any:
    return kernel.lengthscale.log()


def _inverse_f_sd(kernel: Any) -> Any:
    return kernel.outputscale.rsqrt()
