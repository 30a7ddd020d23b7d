"""CVGP as a torch module: a mean, a GPyTorch kernel, a Gaussian likelihood and a coreset, all learnable."""

from typing import Literal

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor, nn

from cvgp.coreset import Coreset
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp import bounds, sites
from cvgp.gp.checks import check_finite, check_rows
from cvgp.gp.kernels import cross_matrix, diagonal, kernel_matrices, make_kernel, square_matrix
from cvgp.gp.likelihoods import gaussian_likelihood
from cvgp.gp.linalg import add_jitter
from cvgp.gp.posterior import factorise
from cvgp.gp.process import CoresetProcess, Prediction, prior_mean

__all__ = ["CVGP", "JITTER"]

JITTER = 1e-8
"""Multiple of the mean diagonal that joins K_cc in the bounds that factorise it (tight and collapsed)."""

SMALLEST_SHARE = 1e-12
"""A weight of zero, which no positive transform reaches, starts as this share of the largest one."""


class CVGP(nn.Module):
    r"""A variational GP whose posterior is an exact GP on M weighted pseudo-observations.

    Parameters
    ----------
    coreset
        Where learning starts: pseudo-inputs, pseudo-outputs and weights.
    kernel
        One of :data:`cvgp.gp.kernels.KERNEL_NAMES`, or any GPyTorch kernel.
    mean
        A GPyTorch mean; zero by default.
    likelihood
        A GPyTorch ``GaussianLikelihood``; by default one with a low noise floor.
    beta_transform
        How weights are kept positive: ``log``, or ``softplus`` as in the paper.

    Examples
    --------
    >>> import cvgp, torch
    >>> start = cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[1.0, 1.0])
    >>> model = cvgp.CVGP(start, kernel="rbf")
    >>> x, y = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None], torch.linspace(0, 1, 9, dtype=torch.float64)
    >>> loss = -model.elbo(x, y)
    >>> loss.backward()
    """

    def __init__(
        self,
        coreset: Coreset,
        kernel: str | Kernel = "rbf",
        *,
        mean: Mean | None = None,
        likelihood: GaussianLikelihood | None = None,
        beta_transform: Literal["log", "softplus"] = "log",
    ) -> None:
        super().__init__()
        if not isinstance(coreset, Coreset):
            raise InvalidTypeError(f"coreset must be a cvgp.Coreset; got {type(coreset).__name__}.")
        if not isinstance(kernel, str | Kernel):
            raise InvalidTypeError(f"kernel must be a name or a gpytorch.kernels.Kernel; got {type(kernel).__name__}.")
        if mean is not None and not isinstance(mean, Mean):
            raise InvalidTypeError(f"mean must be a gpytorch.means.Mean; got {type(mean).__name__}.")
        if likelihood is not None and not isinstance(likelihood, GaussianLikelihood):
            raise InvalidTypeError(
                f"likelihood must be a gpytorch.likelihoods.GaussianLikelihood; got {type(likelihood).__name__}."
            )
        if likelihood is not None and likelihood.noise.numel() != 1:
            raise InvalidInputError(
                f"likelihood must have one noise variance, without batch_shape; got {likelihood.noise.numel()}."
            )
        if beta_transform not in ("log", "softplus"):
            raise InvalidInputError(f"beta_transform must be 'log' or 'softplus'; got {beta_transform!r}.")
        self.kernel = make_kernel(kernel, coreset.num_dims) if isinstance(kernel, str) else kernel
        self.mean = ZeroMean() if mean is None else mean
        self.likelihood = gaussian_likelihood() if likelihood is None else likelihood
        self.beta_transform = beta_transform
        self.X_c = nn.Parameter(torch.tensor(coreset.X))
        self.y_c = nn.Parameter(torch.tensor(coreset.y))
        self.raw_beta = nn.Parameter(self._inverse_transform(torch.tensor(coreset.beta)))
        # What the sites' noise has beyond the learned constant: nothing, unless the data carry noise of their own.
        self.site_noise_offset: Tensor
        self.register_buffer("site_noise_offset", torch.zeros((), dtype=torch.float64))

    @property
    def noise(self) -> Tensor:
        """Learned noise variance `[]`."""
        noise: Tensor = self.likelihood.noise
        return noise.reshape(())

    @property
    def site_noise(self) -> Tensor:
        """The noise variance that a weight of one stands for `[]`."""
        return self.noise + self.site_noise_offset

    @property
    def beta(self) -> Tensor:
        """Weights `[M]`."""
        if self.beta_transform == "log":
            return self.raw_beta.exp()
        return nn.functional.softplus(self.raw_beta)

    @property
    def site_precision(self) -> Tensor:
        """Precisions w = beta / site_noise `[M]`, in float64."""
        return self.beta.to(torch.float64) / self.site_noise.to(torch.float64)

    @property
    def coreset(self) -> Coreset:
        """The current coreset, as a value."""
        return Coreset(self.X_c.detach(), self.y_c.detach(), self.beta.detach())

    def elbo(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None = None,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The paper's lower bound on log p(y) in nats, from all data or an unbiased minibatch of `num_data` points.

        Parameters
        ----------
        x, y
            Inputs `[B, D]` and outputs `[B]` (or `[B, T]`, as the pseudo-outputs are).
        num_data
            N, where x and y are a uniform sample of it; B if None.
        sample_weight
            How often each observation counts `[B]`.
        noise_variance
            Known noise variances `[B]`, added to the learned one.
        """
        return self._bound(x, y, num_data, sample_weight, noise_variance, tight=False)

    def tight_elbo(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None = None,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The tighter bound of Titsias (2025); arguments as for :meth:`elbo`."""
        return self._bound(x, y, num_data, sample_weight, noise_variance, tight=True)

    def _bound(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None,
        sample_weight: Tensor | None,
        noise_variance: Tensor | None,
        *,
        tight: bool,
    ) -> Tensor:
        check_rows(x, y, self.X_c, self.y_c)
        K_cc, K_cx, k_xx = kernel_matrices(self.kernel, self.X_c, x)
        if tight:
            K_cc = add_jitter(K_cc, JITTER)
        residual, residual_c = self._residuals(x, y)
        noise = self.total_noise(noise_variance)
        value = bounds.elbo(
            K_cc,
            K_cx,
            k_xx,
            residual,
            residual_c,
            self.beta,
            noise,
            site_noise=self.site_noise,
            sample_weight=sample_weight,
            num_data=num_data,
        )
        if tight:
            value = value + bounds.tightening(
                K_cc,
                K_cx,
                k_xx,
                noise,
                num_outputs=self._num_outputs,
                sample_weight=sample_weight,
                num_data=num_data,
            )
        return self._finite(value, x, y)

    def collapsed_elbo(
        self,
        x: Tensor,
        y: Tensor,
        *,
        tight: bool = False,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The bound on all data at the best pseudo-outputs, which stay as they are; see :meth:`solve_coreset`."""
        check_rows(x, y, self.X_c, self.y_c)
        # A NaN would stop the factorisation of the statistics, far from its cause.
        check_finite("x", x)
        check_finite("y", y)
        K_cc, K_cx, k_xx = kernel_matrices(self.kernel, self.X_c, x)
        K_cc = add_jitter(K_cc, JITTER)
        residual, _ = self._residuals(x, y)
        noise = self.total_noise(noise_variance)
        value = bounds.collapsed_bound(
            K_cc,
            K_cx,
            k_xx,
            residual,
            self.beta,
            noise,
            site_noise=self.site_noise,
            sample_weight=sample_weight,
        )
        if tight:
            value = value + bounds.tightening(
                K_cc, K_cx, k_xx, noise, num_outputs=self._num_outputs, sample_weight=sample_weight
            )
        return value

    @torch.no_grad()
    def solve_coreset(
        self,
        x: Tensor,
        y: Tensor,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """Set y_c and beta to their optimum at the present kernel and pseudo-inputs; returns the bound there."""
        L_inv = bounds.whitener(self.jittered_covariance())
        return self.adopt_optimum(self.gather(L_inv, x, y, sample_weight=sample_weight, noise_variance=noise_variance))

    def jittered_covariance(self) -> Tensor:
        """K_cc with the jitter of the bounds that factorise it `[M, M]`."""
        return add_jitter(square_matrix(self.kernel, self.X_c), JITTER)

    @torch.no_grad()
    def gather(
        self,
        L_inv: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> bounds.Statistics:
        """Statistics of some rows, whitened by the inverse factor of :meth:`jittered_covariance`."""
        check_rows(x, y, self.X_c, self.y_c)
        check_finite("x", x)
        check_finite("y", y)
        k_xx = diagonal(self.kernel, x)
        weighting = bounds.weigh(self.total_noise(noise_variance), k_xx, sample_weight=sample_weight)
        residual = (y - prior_mean(self.mean, x, y)).reshape(len(x), -1)
        K_cx = cross_matrix(self.kernel, self.X_c, x)
        return bounds.gather(L_inv, K_cx, k_xx, residual, weighting.precision, weighting.log_normaliser)

    @torch.no_grad()
    def adopt_optimum(self, statistics: bounds.Statistics) -> Tensor:
        """Set y_c and beta to the optimum that whitened statistics at the present kernel imply; returns the bound."""
        K_cc = square_matrix(self.kernel, self.X_c)
        best = sites.best_coreset(add_jitter(K_cc, JITTER), statistics, self.site_precision)
        self.set_sites(best.y_c, best.w, jitter=JITTER * K_cc.diagonal().mean().item())
        return best.value

    @torch.no_grad()
    def set_sites(self, y_c: Tensor, w: Tensor, *, jitter: float = 0.0) -> None:
        """Take over pseudo-outputs (less the prior mean) and site precisions that were solved for K_cc + jitter.

        A jitter on K_cc and the sites' own variance enter A = (K_cc + jitter + 1/w)^-1 in one sum, so 1/w + jitter
        gives the same predictions without it, and the bound can only rise.
        """
        absorbed = w / (1.0 + jitter * w)
        self.y_c.copy_(y_c.reshape(self.y_c.shape) + prior_mean(self.mean, self.X_c, self.y_c))
        self.raw_beta.copy_(self._inverse_transform(absorbed * self.site_noise))

    @torch.no_grad()
    def set_site_noise_offset(self, offset: float) -> None:
        """Change what a weight of one stands for, and the weights with it: the posterior stays the same."""
        w = self.site_precision
        self.site_noise_offset.fill_(offset)
        self.raw_beta.copy_(self._inverse_transform(w * self.site_noise))

    def process(self) -> CoresetProcess:
        """The posterior over functions at the present parameters."""
        K_cc = square_matrix(self.kernel, self.X_c)
        y_c = self.y_c - prior_mean(self.mean, self.X_c, self.y_c)
        return CoresetProcess(self.kernel, self.mean, self.X_c, factorise(K_cc, self.site_precision, y_c))

    def posterior(self, x: Tensor) -> Prediction:
        """The posterior of f at x `[..., B, D]`: mean, variance, covariance_matrix, sample, distribution."""
        return self.process()(x)

    def forward(self, x: Tensor) -> Prediction:
        """Same as :meth:`posterior`."""
        return self.posterior(x)

    def kl(self) -> Tensor:
        """KL(q(f_c) || p(f_c)) in nats."""
        return self.process().kl()

    @property
    def _num_outputs(self) -> int:
        return 1 if self.y_c.ndim == 1 else self.y_c.shape[1]

    def _inverse_transform(self, beta: Tensor) -> Tensor:
        largest = beta.max()
        if not bool(largest > 0):
            raise InvalidInputError("At least one weight beta must be positive; all are zero.")
        # A positive weight is kept, however small: the y_c that was solved for it is as large as it is small.
        beta = torch.where(beta > 0, beta, SMALLEST_SHARE * largest)
        return beta.log() if self.beta_transform == "log" else beta + (-torch.expm1(-beta)).log()

    def total_noise(self, noise_variance: Tensor | None) -> Tensor:
        """Learned noise variance, plus what is known of each point: `[]` or `[B]`."""
        if noise_variance is None:
            return self.noise
        if noise_variance.device != self.X_c.device:
            raise InvalidInputError(
                f"noise_variance must be on {self.X_c.device}, where the model is; got {noise_variance.device}."
            )
        if bool((noise_variance < 0).any()):
            raise InvalidInputError("noise_variance holds variances, which are not negative; square the deviations.")
        return self.noise + noise_variance

    def _residuals(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return y - prior_mean(self.mean, x, y), self.y_c - prior_mean(self.mean, self.X_c, self.y_c)

    def _finite(self, value: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the bound, or say which input spoilt it. Looking only afterwards keeps the check free."""
        if not bool(torch.isfinite(value)):
            check_finite("x", x)
            check_finite("y", y)
        return value
