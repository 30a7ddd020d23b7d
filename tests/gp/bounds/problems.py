"""Small regression problems in NumPy, and each bound of them: by cvgp and by the naive reference."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgp.gp import bounds
from tests import reference as ref

LENGTHSCALE = np.array([0.7, 1.6])


@dataclass(frozen=True)
class Problem:
    """Kernel matrices, data, a coreset and how the data count."""

    K_cc: ref.Array
    K_cx: ref.Array
    K_xx: ref.Array
    y: ref.Array
    y_c: ref.Array
    beta: ref.Array
    noise: ref.Noise
    site_noise: float | None = None
    sample_weight: ref.Array | None = None
    num_data: int | None = None

    @property
    def num_outputs(self) -> int:
        return self.y.size // len(self.y)

    @property
    def w(self) -> ref.Array:
        return self.beta / (self.noise if self.site_noise is None else self.site_noise)

    def rows(self, index: ref.Array, **changes: Any) -> "Problem":
        """The problem that holds the observations of the index only."""
        return replace(
            self,
            K_cx=self.K_cx[:, index],
            K_xx=self.K_xx[np.ix_(index, index)],
            y=self.y[index],
            noise=self.noise if np.ndim(self.noise) == 0 else self.noise[index],
            sample_weight=None if self.sample_weight is None else self.sample_weight[index],
            **changes,
        )


def make_problem(*, outputs: int | None = None, N: int = 12, M: int = 4, seed: int = 7, **changes: Any) -> Problem:
    rng = np.random.default_rng(seed)
    X, X_c = rng.normal(size=(N, 2)), rng.normal(size=(M, 2))
    columns = () if outputs is None else (outputs,)
    return replace(
        Problem(
            K_cc=ref.rbf(X_c, X_c, LENGTHSCALE, 1.4),
            K_cx=ref.rbf(X_c, X, LENGTHSCALE, 1.4),
            K_xx=ref.rbf(X, X, LENGTHSCALE, 1.4),
            y=rng.normal(size=(N, *columns)),
            y_c=rng.normal(size=(M, *columns)),
            beta=rng.uniform(0.5, 4.0, size=M),
            noise=0.3,
        ),
        **changes,
    )


SAMPLE_WEIGHT = np.linspace(0.1, 3.0, 12)
POINT_NOISE = np.linspace(0.2, 0.9, 12)

FULL_DATA = {
    "full data": make_problem(),
    "sample weights": make_problem(sample_weight=SAMPLE_WEIGHT),
    "noise by point": make_problem(noise=POINT_NOISE, site_noise=0.5),
    "site noise of its own": make_problem(site_noise=0.5),
    "two outputs": make_problem(outputs=2),
    "one output in a column": make_problem(outputs=1),
    "all of it": make_problem(outputs=2, noise=POINT_NOISE, site_noise=0.5, sample_weight=SAMPLE_WEIGHT),
}
MINIBATCH = {
    "minibatch": make_problem(num_data=100),
    "all of it, minibatch": replace(FULL_DATA["all of it"], num_data=100),
}


def tensor(array: ref.Noise, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.as_tensor(array, dtype=dtype)


def data_side(p: Problem, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """K_cx, k_xx and y."""
    return tensor(p.K_cx, dtype), tensor(np.diag(p.K_xx).copy(), dtype), tensor(p.y, dtype)


def site_noise(p: Problem) -> Tensor | None:
    return None if p.site_noise is None else tensor(p.site_noise)


def how_data_count(p: Problem) -> dict[str, Any]:
    weight = None if p.sample_weight is None else tensor(p.sample_weight)
    return {"sample_weight": weight, "num_data": p.num_data}


def elbo(p: Problem, dtype: torch.dtype = torch.float64) -> float:
    coreset = tensor(p.y_c), tensor(p.beta), tensor(p.noise)
    value = bounds.elbo(tensor(p.K_cc), *data_side(p, dtype), *coreset, site_noise=site_noise(p), **how_data_count(p))
    return value.item()


def tightening(p: Problem, dtype: torch.dtype = torch.float64) -> float:
    K_cx, k_xx, _ = data_side(p, dtype)
    outputs = {"num_outputs": p.num_outputs}
    return bounds.tightening(tensor(p.K_cc), K_cx, k_xx, tensor(p.noise), **outputs, **how_data_count(p)).item()


def tight(p: Problem, dtype: torch.dtype = torch.float64) -> float:
    return elbo(p, dtype) + tightening(p, dtype)


def statistics(p: Problem, dtype: torch.dtype = torch.float64) -> bounds.Statistics:
    K_cx, k_xx, y = data_side(p, dtype)
    weighting = bounds.weigh(tensor(p.noise), k_xx, **how_data_count(p))
    columns = y.reshape(len(y), -1)
    return bounds.gather(
        bounds.whitener(tensor(p.K_cc)), K_cx, k_xx, columns, weighting.precision, weighting.log_normalizer
    )


def reference_elbo(p: Problem) -> float:
    options = {"noise_site": p.site_noise, "sample_weight": p.sample_weight, "num_data": p.num_data}
    return ref.elbo(p.K_cc, p.K_cx, p.K_xx, p.y_c, p.beta, p.noise, p.y, **options)


def reference_tight(p: Problem) -> float:
    m, S = ref.coreset_q(p.K_cc, p.y_c, p.w, 1.0)
    options = {"sample_weight": p.sample_weight, "num_data": p.num_data}
    return ref.tight_bound(m, S, p.K_cc, p.K_cx, p.K_xx, p.y, p.noise, **options)


def reference_best_outputs(p: Problem) -> ref.Array:
    options = {"noise_site": p.site_noise, "sample_weight": p.sample_weight}
    return ref.collapsed_optimum(p.K_cc, p.K_cx, p.beta, p.noise, p.y, **options)
