"""Several outputs with one kernel and common pseudo-inputs, each with noise of its own (§17); and their covariances.

Output q has c_q times the noise that is common to all of them. With one eigendecomposition Phi = V diag(l) V^T, its
bound takes O(M) operations, and its posterior has a site of precision l / c_q for each element of V^T u.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from cvgp.files import SQUARABLE, Fields, State
from cvgp.gp.bounds.statistics import Statistics
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import Factor
from cvgp.gp.process import CoresetProcess
from cvgp.gp.vecchia import inducing_posterior

Array = NDArray[np.float64]

POINTS, ROUNDS = 24, 4  # of a search: a bracket is divided into this many parts, this many times
STEPS, GAIN = 2000, 1e-7  # of the EM algorithm, and nats per row that a step must gain
LEAST_NOISE = 1e-6  # of each output, as a share of its variance


class Spectrum(NamedTuple):
    """Sums in the basis of the eigenvectors of Phi, in which outputs differ by numbers alone."""

    V: Tensor  # [M, M]
    values: Tensor  # [M, 1], the eigenvalues of Phi
    b: Tensor  # [M, Q], V^T b
    unexplained: Tensor  # [], the sum of rho times the prior variance that u leaves
    log_normalizer: Tensor  # []

    @classmethod
    def of(cls, sums: Statistics) -> "Spectrum":
        """One eigendecomposition, in O(M^3)."""
        values, V = torch.linalg.eigh(sums.Phi)
        return cls(V, values.clamp_min(0.0)[:, None], V.mT @ sums.b, sums.kk - sums.Phi.trace(), sums.log_normalizer)

    def bound(self, factor: Tensor, squares: Tensor, weight: float) -> Tensor:
        """Titsias' bound of each output [Q], from its sum of rho y^2 [Q] and the weight of its rows (§17)."""
        fit = (self.b.square() / (factor * (factor + self.values))).sum(0) - (squares + self.unexplained) / factor
        return self.log_normalizer + 0.5 * (fit - (self.values / factor).log1p().sum(0) - weight * factor.log())


class Outputs(NamedTuple):
    """The noise of each output, and sums over its rows."""

    factor: Tensor  # [Q], c_q
    sums: tuple[Statistics, ...]  # one of all outputs at the common noise; or one for each, at its own noise

    def to_state(self) -> State:
        """Values for a file, which has sums of all outputs already."""
        own = self.sums if len(self.sums) > 1 else ()
        return {"factor": self.factor, "sums": {str(q): sums._asdict() for q, sums in enumerate(own)}}

    @classmethod
    def from_state(cls, state: Fields, sums: Statistics, read: Callable[[Fields], Statistics]) -> "Outputs":
        """From a file that need not be trusted, with the sums of all outputs."""
        Q, own = sums.b.shape[1], Fields(state.take("sums"), f"{state.where}.sums")
        parts = tuple(own.part(str(q), read) for q in range(Q)) if own.values else (sums,)
        own.close()
        return cls(torch.tensor(state.array("factor", (Q,), limits=SQUARABLE)), parts)

    @property
    def u_mean(self) -> Tensor:
        """The posterior means of u [M, Q]."""
        if len(self.sums) > 1:
            return torch.cat([inducing_posterior(sums).mean for sums in self.sums], 1)
        spectrum = Spectrum.of(self.sums[0])
        return spectrum.V @ (spectrum.b / (self.factor + spectrum.values))

    def processes(self, model: CVGP, L_K_inv: Tensor) -> list["OutputProcess"]:
        """The posterior over functions of each output, from sites for the elements of V^T u."""
        found, are_own = list[OutputProcess](), len(self.sums) > 1
        for sums, factor in zip(self.sums, self.factor.split(1 if are_own else len(self.factor)), strict=True):
            spectrum = Spectrum.of(sums)
            values, G = spectrum.values[:, 0], spectrum.V.mT @ L_K_inv
            for c, b in zip(torch.ones_like(factor) if are_own else factor, spectrum.b.mT, strict=True):
                known, w, y = values / (c + values), values / c, torch.where(values > 0.0, b / values, 0.0)
                roots = (1.0 - known).sqrt().diag(), known.sqrt().diag()
                sites = Factor(torch.eye(len(w)).to(w), w, y, *roots, b / (c + values), w.log1p().sum())
                found.append(OutputProcess(model, sites, G))
        return found


class OutputProcess(CoresetProcess):
    """The posterior of one output, from sites for V^T u, whose covariance with f(x) is G k_cx."""

    def __init__(self, model: CVGP, factor: Factor, G: Tensor) -> None:
        super().__init__(model.kernel, model.mean, model.X_c, factor)
        self.G = G

    def _cross_matrix(self, x: Tensor) -> Tensor:
        return self.G.to(x.dtype) @ super()._cross_matrix(x)


def best_factor(density: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """The factors [Q] between two limits at which each of Q densities is largest."""
    low, high = low.log(), high.log()
    best = low
    for _ in range(ROUNDS):
        step = (high - low) / POINTS
        values = torch.stack([density((low + place * step).exp()) for place in range(POINTS + 1)])  # [POINTS + 1, Q]
        best = low + values.argmax(0) * step
        low, high = torch.maximum(low, best - step), torch.minimum(high, best + step)
    return best.exp()


def unmix(B: Array, S: Array) -> tuple[Array, Array]:
    """W [Q, Q] and values [Q]: outputs Y W with covariances B and S have independent ones, of these values and one."""
    values, W = eigh(B, S)
    return W, np.maximum(values, 0.0)


def covariance_density(s: Array, Y: Array, B: Array, S: Array) -> float:
    """Mean log density of rows of Y [n, Q] that are N(0, s_i B + S) and independent."""
    W, values = unmix(B, S)
    variance = s[:, None] * values + 1.0
    terms = np.log(2.0 * np.pi * variance) + (Y @ W) ** 2 / variance
    return float(np.linalg.slogdet(W)[1] - 0.5 * terms.sum(axis=1).mean())


def learn_covariances(s: Array, Y: Array, *, steps: int = STEPS) -> tuple[Array, Array]:
    """The B and S [Q, Q] under which independent rows N(0, s_i B + S) are most likely, by EM (§17)."""
    total = Y.T @ Y / len(Y)
    floor = LEAST_NOISE * np.diag(total.diagonal())
    B, S, density = 0.5 * total / s.mean(), 0.5 * total + floor, -np.inf
    for _ in range(steps):
        before, density = density, covariance_density(s, Y, B, S)
        if density - before < GAIN:
            break
        W, values = unmix(B, S)
        A, z, variance = np.linalg.inv(W), Y @ W, s[:, None] * values + 1.0
        per_s = values * z / variance  # posterior means of f W, over s
        noise = z / variance  # of the noise, which is the rest
        B = A.T @ ((per_s.T * s) @ per_s / len(s) + np.diag((values / variance).mean(axis=0))) @ A
        S = A.T @ (noise.T @ noise / len(s) + np.diag((s[:, None] * values / variance).mean(axis=0))) @ A + floor
    return B, S
