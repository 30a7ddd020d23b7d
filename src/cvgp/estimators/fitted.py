"""A posterior in the user's units, or of T(y) if y was transformed: a model, its scaling and training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.scaling import Scaling, no_scaling
from cvgp.data.source import DataSource
from cvgp.data.transforms import IDENTITY, TargetTransform
from cvgp.errors import InvalidInputError
from cvgp.fitting.neighbors import NeighborRows, whitened
from cvgp.fitting.outputs import make_outputs, model_of, rows_of
from cvgp.fitting.prepare import check_fingerprints
from cvgp.gp.bounds import Statistics
from cvgp.gp.calibration import Calibration
from cvgp.gp.kernels import cross_matrix, diagonal, multiply_inside, name_of_kernel, prior_mean, stationary_form
from cvgp.gp.likelihoods import Likelihood
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Contamination, InputNoise, Tails
from cvgp.gp.outputs import Outputs
from cvgp.gp.process import CoresetProcess
from cvgp.gp.stationary import Placed
from cvgp.gp.vecchia import NeighborProcess
from cvgp.progress import tell
from cvgp.tables.encode import DRAWS, Inputs

if TYPE_CHECKING:
    from cvgp.estimators.importance import SobolIndices

Array = NDArray[np.float64]

CHUNK_ROWS = 4096  # predicted at once, which bounds the memory
ROWS_THAT_SHARE = 32_768  # of means alone: rows with the same neighbors share their work
LARGEST = float(np.finfo(np.float64).max)
FARTHEST = 1e15  # standard deviations; inputs farther away count as this far, since their squares would overflow


class Support(NamedTuple):
    """What the mean of T(y) is made of at an input: `num_points` pseudo-points, and then the nearest training rows."""

    X: Array  # [n, D]
    y: Array  # [n, Q], values of f if the likelihood is not Gaussian
    weight: Array  # [n], of each residual
    residual: Array  # [n, Q], T(y) minus its prior mean
    prior: Array  # [Q], the prior mean of T(y) at the input
    num_points: int


@dataclass(eq=False)
class FittedGP:
    """Predictions of a `CVGP` in the units of its data; the model must not change afterwards."""

    model: CVGP
    scaling: Scaling
    dtype: torch.dtype = torch.float64  # of predictions by the coreset; those with neighbors are in float64
    kept: NeighborRows | None = None  # the training rows that predictions use
    noise: InputNoise | None = None  # in the model's units; None if it is the model's constant
    target: TargetTransform = IDENTITY
    outliers: Contamination | None = None  # in the units of T(y)
    calibration: Calibration | None = None
    rare_share: float = 0.0  # of observations with errors far beyond those seen, which count where outliers do
    likelihood: Likelihood | None = (
        None  # of y given f, unless y is f plus noise; predictions above are then those of f
    )
    outputs: Outputs | None = None  # several with noise of their own
    mixing: Array | None = None  # [Q, Q], A of outputs y = z A, where z are those of the model
    exposure: str | None = None  # the column of the fit's exposures, empty if that was an array; None without exposures
    indices_of_fit: SobolIndices | None = None
    indices_of_held_rows: SobolIndices | None = None  # by rows or points that the model holds, once asked for

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what can be made again

    @cached_property
    def process(self) -> CoresetProcess:
        """The posterior over functions by the coreset alone, factorized once."""
        with torch.no_grad():
            return self.model.process()

    @cached_property
    def _neighbors(self) -> NeighborProcess:
        assert self.kept is not None, "asked only of a model with neighbors"
        return self.kept.process(self.model)

    @cached_property
    @torch.no_grad()
    def _parts(self) -> list[FittedGP]:
        """Predictions of each output by itself, of outputs with noise of their own."""
        assert self.outputs is not None, "asked only of outputs with noise of their own"
        found = list[FittedGP]()
        processes = [] if self.kept else self.outputs.processes(self.model, whitened(self.model).L_K_inv)
        for q, c in enumerate(self.outputs.factor):
            scaling = self.scaling._replace(y_mean=self.scaling.y_mean[[q]], y_scale=self.scaling.y_scale[[q]])
            noise = self.noise and self.noise.times(c)
            part = FittedGP(model_of(self.model, q, c), scaling, self.dtype, noise=noise)
            if self.kept is None:
                part.process = processes[q]
            else:
                part.kept = NeighborRows(rows_of(self.kept.rows, q, c), self.kept.num_neighbors, self.outputs.sums[q])
                if found:  # what does not depend on outputs is shared
                    near, first = part._neighbors, found[0]._neighbors
                    near.index, near._table = first.index, first._table
            found.append(part)
        return found

    @cached_property
    def _noise_centers(self) -> Placed | None:
        return None if self.noise is None else self.noise.placed(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return self.dtype if self.kept is None else torch.float64

    def mean(self, x: Array | Inputs) -> Array:
        """Posterior mean [n, Q]."""
        if isinstance(x, Inputs):
            return mixed_mean(self.mean, x)
        if self.outputs is not None:
            return self._mix(np.hstack([part.mean(x) for part in self._parts]))
        if self.kept is not None:
            parts = [_columns(self._neighbor_mean(chunk)) for chunk in self._chunks(x, ROWS_THAT_SHARE)]
        else:
            process = self.process  # made outside: it may serve autograd later
            with torch.inference_mode():
                parts = [_columns(process(chunk).mean) for chunk in self._chunks(x)]
        return self._checked(self.scaling.unscale_y(np.concatenate(parts)))

    def mean_and_variance(self, x: Array | Inputs) -> tuple[Array, Array]:
        """Posterior mean [n, Q] and variance of f [n, Q]."""
        if isinstance(x, Inputs):
            mean, variance = (np.array(values) for values in self.mean_and_variance(x.x))
            for rows, draws in _draws(x):
                f_means, f_vars = (_by_draw(values) for values in self.mean_and_variance(draws))
                mean[rows] = f_means.mean(axis=1)
                variance[rows] = f_vars.mean(axis=1) + f_means.var(axis=1)
            return mean, variance
        return self.moments(x)[:2]

    def moments(self, x: Array | Inputs) -> tuple[Array, Array, Array]:
        """Posterior mean, variance of f, and learned noise variance of observations at x, each [n, Q]."""
        if isinstance(x, Inputs):
            return *self.mean_and_variance(x), self.noise_at(x)
        if self.outputs is not None:
            mean, f_var, noise = map(np.hstack, zip(*(part.moments(x) for part in self._parts), strict=True))
            return self._mix(mean), self._mix(f_var, 2), self._mix(noise, 2)
        Q = len(self.scaling.y_mean)
        found = np.concatenate([as_array(self._moments(chunk)) for chunk in self._chunks(x)])
        variances = [self._checked(found[:, q : q + 1] * self.scaling.y_scale**2) for q in range(Q, found.shape[1])]
        f_var, noise = variances if self.noise is not None else (*variances, self.noise_at(x))
        return self._checked(self.scaling.unscale_y(found[:, :Q])), f_var, noise

    def _moments(self, x: Tensor) -> Tensor:
        """Columns at x `[n, D]` in the model's units: Q means of f, its variance, and the noise if it depends on x."""
        f_mean, f_var = self._f_moments(x)
        with torch.inference_mode():
            columns = [f_mean.reshape(len(x), -1), f_var[:, None]]
            if self.noise is not None:
                columns[1] = columns[1] * self.noise.f_factor(columns[1])
                columns.append(self.noise.variance(x, self._noise_centers)[:, None])
            return torch.cat(columns, 1)

    def _f_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `[n]` or `[n, Q]` and variance `[n]` of f at x `[n, D]`, in the model's units."""
        if self.kept is not None:
            f_mean, f_var = self._neighbors.moments(x)
            with torch.inference_mode():
                return f_mean + prior_mean(self.model.mean, x, f_mean), f_var
        process = self.process
        with torch.inference_mode():
            prediction = process(x)
            return prediction.mean, prediction.variance

    def _neighbor_mean(self, x: Tensor) -> Tensor:
        f_mean = self._neighbors.mean(x)
        with torch.inference_mode():
            return f_mean + prior_mean(self.model.mean, x, f_mean)

    def covariance(self, x: Array | Inputs) -> Array:
        """Joint posterior covariance of f, [n, n, Q]; rows with cells that are not known have their own variances."""
        if isinstance(x, Inputs):
            joint, every = self.covariance(x.x), np.arange(len(x))
            joint[every, every] = np.maximum(joint[every, every], self.mean_and_variance(x)[1])
            return joint
        if self.outputs is not None:
            return self._mix(np.concatenate([part.covariance(x) for part in self._parts], axis=2), 2)
        with torch.no_grad():
            points = self._tensor(x)
            C = self.process(points).covariance_matrix if self.kept is None else self._neighbors.covariance(points)
            if self.noise is not None:
                root = self.noise.f_factor(C.diagonal()).sqrt()  # [n]
                C = root[:, None] * C * root
        return self._checked(C.to(torch.float64).cpu().numpy()[:, :, None] * self.scaling.y_scale**2)

    def support(self, x: Array, q: int = 0) -> Support:
        """What the mean of an output of f is made of at an input, or on average over several [n, D] (§2.1, §9.3)."""
        points, factor, own, scaling = self._tensor(x).double(), self.process.factor, self.coreset, self.scaling
        values = [(own.X, own.y.reshape(len(own), -1), _columns(factor.y_c))]
        with torch.no_grad():
            prior = as_array(prior_mean(self.model.mean, points, points)).mean()
            if self.kept is None:
                K, of_rows = cross_matrix(self.model.kernel, self.model.X_c, points), points.new_zeros(0)
            else:
                nearest = self._neighbors if self.outputs is None else self._parts[q]._neighbors
                near, eta, phi = nearest.weights(points)
                K = torch.linalg.solve_triangular(nearest.points.L_K_inv, phi.mT, upper=False)  # [M, n]
                rows, places = near.unique(return_inverse=True)
                of_rows = torch.bincount(places.reshape(-1), eta.reshape(-1)) / len(points)
                held = self.in_user_units(self.kept.rows.take(rows))
                values.append((held.x, held.y, _columns(self._neighbors.data.y[rows])))
            weight = as_array(torch.cat([(factor.T.mT @ (factor.T @ K)).mean(1), of_rows]))  # of the points, A K
        X, y, residual = map(np.concatenate, zip(*values, strict=True))
        residual, prior = self._mix(residual * scaling.y_scale), self._mix(scaling.unscale_y(prior))
        return Support(X, y, weight, residual, prior, len(own))

    def with_model(self, model: CVGP, kept: NeighborRows | None = None, sums: Statistics | None = None) -> FittedGP:
        """Predictions of another model, with the same units, noise and calibration; `sums` are those of its rows."""
        outputs = self.outputs
        if outputs is not None and sums is not None:
            outputs = make_outputs(model, sums, outputs.factor, kept)
        return replace(self, model=model, kept=kept, outputs=outputs, indices_of_fit=None, indices_of_held_rows=None)

    def noise_at(self, x: Array | Inputs) -> Array:
        """Learned noise variance of observations at x, [n, Q]."""
        if isinstance(x, Inputs):
            found = mixed_mean(self.noise_at, x)
            for rows, draws in _draws(x.filled):  # at least that of a complete row, plus what unknown cells change
                complete = _by_draw(self.noise_at(draws)).mean(axis=1) + _by_draw(self.mean(draws)).var(axis=1)
                found[rows] = np.maximum(found[rows], complete)
            return found
        if self.noise is None:
            return np.broadcast_to(self.noise_variance, (len(x), len(self.noise_variance)))
        if self.outputs is not None:
            return np.hstack([part.noise_at(x) for part in self._parts])
        with torch.inference_mode():
            parts = [_columns(self.noise.variance(chunk, self._noise_centers)) for chunk in self._chunks(x)]
        return self._checked(np.concatenate(parts) * self.scaling.y_scale**2)

    @cached_property
    def noise_variance(self) -> Array:
        """Learned noise variance [Q]; where it depends on x, what a constant would be."""
        own = self.model.noise if self.noise is None else self.noise.constant
        factor = 1.0 if self.outputs is None else as_array(self.outputs.factor)
        return self._mix(np.asarray(factor * own.item() * self.scaling.y_scale**2), 2)

    @cached_property
    def unmixed(self) -> FittedGP:
        """Predictions of independent outputs z, of which y is a mixture; those of y if it is none."""
        return self if self.mixing is None else replace(self, mixing=None, calibration=None)

    def output_covariances(self) -> tuple[Array, Array]:
        """Prior covariance of f, on average over the points, and that of the noise between outputs, each [Q, Q]."""
        if (A := self.mixing) is None:
            raise AttributeError("Covariances of outputs are learned with output_covariance='learned'.")
        with torch.no_grad():
            f_var = diagonal(self.model.kernel, self.model.X_c).mean().item() * self.scaling.y_scale**2
        return (A.T * f_var) @ A, (A.T * self.unmixed.noise_variance) @ A

    def _mix(self, z: Array, power: int = 1) -> Array:
        """Values [..., Q] for y, of values for z; of variances and covariances, with the squares of the mixture."""
        return z if self.mixing is None else z @ self.mixing**power

    @property
    def tails(self) -> Tails | None:
        """The shape of new observations around their mean, of variance one, where it is not normal."""
        return None if self.noise is None or self.noise.tails.is_normal else self.noise.tails

    @property
    def weighs_rows(self) -> bool:
        """Whether each row counts by its own noise."""
        return self.noise is not None and bool(self.noise.base > 0)

    def weighed(self, source: DataSource) -> DataSource:
        """Rows in the model's units, with the noise by which the model weighs them."""
        if self.noise is None or not self.weighs_rows:
            return source
        return source.with_noise(self.noise.beyond_base)

    @property
    def y_spread(self) -> Array:
        """How far y is from its middle, typically [Q]."""
        middle, scale = self.scaling.y_mean, self.scaling.y_scale
        spread = 0.5 * (self.target.invert(middle + scale) - self.target.invert(middle - scale))
        return spread if self.mixing is None else np.sqrt(self._mix(spread**2, 2))

    @property
    def coreset(self) -> Coreset:
        """The coreset in the user's units; its y are those whose transforms are the model's pseudo-outputs."""
        own = self.model.coreset
        y = self._mix(self.target.invert(self.scaling.unscale_y(own.y.reshape(len(own), -1))))
        # A point of little weight may be very far away, and its exponential beyond the range of floats.
        y = np.clip(y, -LARGEST, LARGEST).reshape(own.y.shape)
        return Coreset(self.scaling.unscale_x(own.X), y, own.beta)

    @property
    def kernel(self) -> Kernel:
        """A copy of the kernel in the user's units."""
        own = self.scaling
        return kernel_in_units(self.model.kernel, own, no_scaling(len(own.x_mean), len(own.y_mean)))

    @property
    def lengthscales(self) -> Array | None:
        """Lengthscales [D] of a stationary kernel in the user's units, those of warped columns at their middles."""
        with torch.no_grad():
            form = stationary_form(self.model.kernel, self.model.X_c.shape[1])
            if form is None:
                return None
            inverse = form.inverse_lengthscale.to(torch.float64).cpu().numpy() * self.scaling.varies  # [D]
        widths: Array = np.divide(self.scaling.x_scale, inverse, out=np.full_like(inverse, np.inf), where=inverse > 0.0)
        for d, path in self.scaling.warp.paths().items():
            low, high = path.invert(self.scaling.x_mean[d] + np.array([-0.5, 0.5]) * widths[d])
            widths[d] = high - low
        return widths

    @property
    def one_exposure(self) -> float | None:
        """One unit of exposure if the model needs exposures, under which counts are rates."""
        return None if self.exposure is None else 1.0

    def in_user_units(self, rows: Rows[Tensor]) -> Rows[Array]:
        """Inputs, outputs and weights of rows that are in the model's units."""
        x = self.scaling.unscale_x(as_array(rows.x))
        y = self._mix(self.target.invert(self.scaling.unscale_y(as_array(rows.y).reshape(len(x), -1))))
        return Rows(x, y, None if rows.sample_weight is None else as_array(rows.sample_weight))

    def expected(self, f: Array) -> Array:
        """Outputs of given values of the model's function, in the user's units."""
        if self.likelihood is None:
            return self.target.invert(f)
        return self.likelihood.distribution(torch.as_tensor(f)).mean.numpy()

    def need_gaussian(self, what: str, *, alike: bool = False, complete: bool = True) -> None:
        """Raise if observations are not f plus noise; or if outputs are not `alike`, or had missing targets."""
        own, is_mixed = self.outputs, self.mixing is not None
        if own is not None and (alike or (complete and (is_mixed or (self.kept is None and len(own.sums) > 1)))):
            why = "a learned covariance" if is_mixed else "noise of their own" if alike else "other rows"
            raise InvalidInputError(
                f"{what} is not for this model, whose outputs have {why}. "
                "Fit it again with all rows, or a model for each output (sklearn.multioutput.MultiOutputRegressor)."
            )
        if self.likelihood is not None:
            raise InvalidInputError(
                f"{what} is for likelihood='gaussian', and this model was fitted with likelihood="
                f"{self.likelihood.name!r}. It predicts means, intervals, quantiles, densities and samples; "
                "to change it, fit it again with all rows."
            )

    def _checked(self, values: Array) -> Array:
        if not np.isfinite(values).all():
            raise InvalidInputError(
                f"The predictions are beyond the range of {str(self.dtype).removeprefix('torch.')}. Fit with "
                "standardize=True and dtype='float64', or give X and y in other units."
            )
        return values

    def _tensor(self, x: Array) -> Tensor:
        check_fingerprints(x, name_of_kernel(self.model.kernel))
        scaled = np.clip(self.scaling.scale_x(x), -FARTHEST, FARTHEST)
        return torch.as_tensor(scaled, dtype=self._dtype, device=self.model.X_c.device)

    def _chunks(self, x: Array, size: int = CHUNK_ROWS) -> Iterator[Tensor]:
        for start in range(0, len(x), size):
            yield self._tensor(x[start : start + size])
            tell("predict", min(start + size, len(x)), len(x))


@torch.no_grad()
def kernel_in_units(kernel: Kernel, own: Scaling, other: Scaling) -> Kernel:
    """A copy of a kernel with lengthscales and scale in other units; those of a constant column stay as they are."""
    kernel = deepcopy(kernel).cpu()
    known = own.varies & other.varies
    ratio = torch.as_tensor(np.divide(own.x_scale, other.x_scale, out=np.ones_like(own.x_scale), where=known))  # [D]
    common = ratio[torch.as_tensor(known)].log().sum().div(max(int(known.sum()), 1)).exp()
    y_ratio = float(np.exp(np.log(own.y_scale / other.y_scale).mean()))
    for part in kernel.modules():
        if isinstance(part, ScaleKernel):
            multiply_inside(part, "outputscale", y_ratio**2)
        elif isinstance(part, PeriodicKernel) and part.active_dims is None:  # its lengthscale is one of angles
            multiply_inside(part, "period_length", ratio if part.period_length.shape[-1] == len(ratio) else common)
        elif isinstance(part, LinearKernel) and part.active_dims is None:
            width = ratio if part.variance.shape[-1] == len(ratio) else common
            multiply_inside(part, "variance", y_ratio**2 / width**2)
        elif isinstance(part, Kernel) and part.has_lengthscale and part.active_dims is None:
            multiply_inside(part, "lengthscale", ratio if part.lengthscale.shape[-1] == len(ratio) else common)
    return kernel


def as_array(values: Tensor) -> Array:
    """A tensor of any device and precision in NumPy, without its gradient."""
    return values.detach().to("cpu", torch.float64).numpy()


def _columns(values: Tensor) -> Array:
    return as_array(values).reshape(len(values), -1)


# Rows with unknown cells: mixtures over the values that the cells may have (§14 of the mathematics).


def mixed_mean(function: Callable[[Array], Array], inputs: Inputs) -> Array:
    """The mean over draws [n, Q] of a function of features."""
    found = np.array(function(inputs.x))
    for rows, draws in _draws(inputs):
        found[rows] = _by_draw(function(draws)).mean(axis=1)
    return found


def _draws(inputs: Inputs) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Uncertain rows [k], and the features [k DRAWS, D] of all their draws."""
    uncertain = inputs.uncertain_rows
    for start in range(0, len(uncertain), CHUNK_ROWS):
        rows = uncertain[start : start + CHUNK_ROWS]
        draws = inputs.take(rows).draws()
        yield rows, draws.reshape(-1, draws.shape[-1])


def _by_draw(values: Array) -> Array:
    return values.reshape(-1, DRAWS, values.shape[1])
