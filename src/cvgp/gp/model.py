"""CVGP as a torch module: its parameters, its bounds, its best coreset in closed form and its posterior."""

from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor, nn

from cvgp.coreset import Coreset
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp import bounds, sites
from cvgp.gp.kernels import (
    check_finite,
    check_rows,
    cross_matrix,
    diagonal,
    gaussian_likelihood,
    kernel_matrices,
    log_density,
    make_kernel,
    prior_mean,
    registered_priors,
    square_matrix,
)
from cvgp.gp.linalg import JITTER, add_jitter
from cvgp.gp.posterior import factorize

if TYPE_CHECKING:
    from cvgp.gp.process import CoresetProcess, Prediction


SMALLEST_SHARE = 1e-12  # a weight of zero, which no positive transform reaches, starts as this share of the largest one


class CVGP(nn.Module):
    """A variational GP whose posterior is an exact GP on M weighted pseudo-observations.

    Parameters
    ----------
    coreset : Coreset
        Where learning starts: pseudo-inputs, pseudo-outputs and weights.
    kernel : str or gpytorch.kernels.Kernel
        One of :data:`cvgp.gp.kernels.KERNEL_NAMES`, several joined by ``+`` and ``*``, or any GPyTorch kernel.
    mean : gpytorch.means.Mean or None
        The prior mean; zero by default.
    likelihood : gpytorch.likelihoods.GaussianLikelihood or None
        By default one with a low noise floor.
    beta_transform : {"log", "softplus"}
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
        for name, value, kinds, expected in (
            ("coreset", coreset, Coreset, "a cvgp.Coreset"),
            ("kernel", kernel, str | Kernel, "a name or a gpytorch.kernels.Kernel"),
            ("mean", mean, Mean | None, "a gpytorch.means.Mean"),
            ("likelihood", likelihood, GaussianLikelihood | None, "a gpytorch.likelihoods.GaussianLikelihood"),
        ):
            if not isinstance(value, kinds):
                raise InvalidTypeError(f"{name} must be {expected}; got {type(value).__name__}.")
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
        # The noise of the sites in excess of the learned constant: zero unless the data come with known noise.
        self.site_noise_offset: Tensor
        self.register_buffer("site_noise_offset", torch.zeros((), dtype=torch.float64))

    @property
    def noise(self) -> Tensor:
        """Learned noise variance `[]`."""
        noise: Tensor = self.likelihood.noise
        return noise.reshape(())

    @property
    def site_noise(self) -> Tensor:
        """The noise variance of a site of weight one `[]`."""
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

    @property
    def num_outputs(self) -> int:
        """How many outputs share the kernel."""
        return 1 if self.y_c.ndim == 1 else self.y_c.shape[1]

    def with_coreset(self, coreset: Coreset) -> Self:
        """A model with another coreset, on the same device, that shares this one's kernel, mean and likelihood."""
        other = type(self)(
            coreset, self.kernel, mean=self.mean, likelihood=self.likelihood, beta_transform=self.beta_transform
        ).to(self.X_c.device)
        other.site_noise_offset.copy_(self.site_noise_offset)
        return other

    def total_noise(self, noise_variance: Tensor | None) -> Tensor:
        """The noise variance of some rows: the learned one `[]`, plus the known one of each row `[B]` if any."""
        if noise_variance is None:
            return self.noise
        if bool((noise_variance < 0).any()):
            raise InvalidInputError("noise_variance holds variances, which are not negative; square the deviations.")
        return self.noise + noise_variance

    def log_prior(self) -> Tensor:
        """The log density of kernel, mean and noise under their GPyTorch priors, in nats; zero without priors.

        A fit maximizes the bound plus this. The bounds themselves leave it out: add it in a training loop of your own.
        """
        return log_density(registered_priors(self.kernel, self.mean, self.likelihood), self.X_c)

    @torch.no_grad()
    def set_sites(self, y_c: Tensor, w: Tensor, *, jitter: float = 0.0) -> None:
        """Replace y_c (the prior mean subtracted) and the weights by sites of precision w, solved for K_cc + jitter."""
        absorbed = w / (1.0 + jitter * w)  # jitter and 1/w enter A = (K_cc + jitter + 1/w)^-1 as one sum
        self.y_c.copy_(y_c.reshape(self.y_c.shape) + prior_mean(self.mean, self.X_c, self.y_c))
        self.raw_beta.copy_(self._inverse_transform(absorbed * self.site_noise))

    @torch.no_grad()
    def set_site_noise_offset(self, offset: float) -> None:
        """Set `site_noise` minus the learned noise, and scale the weights so that the posterior stays as it is."""
        w = self.site_precision
        self.site_noise_offset.fill_(offset)
        self.raw_beta.copy_(self._inverse_transform(w * self.site_noise))

    def _inverse_transform(self, beta: Tensor) -> Tensor:
        largest = beta.max()
        if not bool(largest > 0):
            raise InvalidInputError("At least one weight beta must be positive; all are zero.")
        # A positive weight is kept, however small: the smaller it is, the larger is the y_c that was solved with it.
        beta = torch.where(beta > 0, beta, SMALLEST_SHARE * largest)
        return beta.log() if self.beta_transform == "log" else beta + (-torch.expm1(-beta)).log()

    def elbo(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None = None,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The paper's lower bound on log p(y) in nats, from all data or from a minibatch without bias.

        Parameters
        ----------
        x : Tensor of shape [B, D]
            Inputs.
        y : Tensor of shape [B] or [B, Q]
            Outputs; as many as the pseudo-outputs have.
        num_data : float or None
            N, where x and y are a uniform sample of N rows; B if None.
        sample_weight : Tensor of shape [B] or None
            How often each row counts; once if None.
        noise_variance : Tensor of shape [B] or None
            Known noise variances, added to the learned one.

        Examples
        --------
        >>> import cvgp, torch
        >>> coreset = cvgp.Coreset(X=[[0.0]], y=[1.0], beta=[1.0])
        >>> model = cvgp.CVGP(coreset)
        >>> x, y = torch.tensor(coreset.X), torch.tensor(coreset.y)
        >>> round(model.elbo(x, y).item(), 4)  # log N(1 | 0, outputscale + noise): the coreset is the data
        -1.4211
        """
        return self._bound(x, y, num_data, sample_weight, noise_variance)

    def tight_elbo(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None = None,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The tighter bound of Titsias (2025); arguments, result and errors as for :meth:`elbo`."""
        return self._bound(x, y, num_data, sample_weight, noise_variance, tight=True)

    def _bound(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None,
        sample_weight: Tensor | None,
        noise_variance: Tensor | None,
        *,
        tight: bool = False,
    ) -> Tensor:
        check_rows(x, y, self.X_c, self.y_c)
        K_cc, K_cx, k_xx = kernel_matrices(self.kernel, self.X_c, x)
        K_cc = add_jitter(K_cc, JITTER) if tight else K_cc
        noise = self.total_noise(noise_variance)
        counts: dict[str, Any] = {"sample_weight": sample_weight, "num_data": num_data}
        residual, residual_c = y - prior_mean(self.mean, x, y), self._residual_c()
        value = bounds.elbo(
            K_cc, K_cx, k_xx, residual, residual_c, self.beta, noise, site_noise=self.site_noise, **counts
        )
        if tight:
            value = value + bounds.tightening(K_cc, K_cx, k_xx, noise, num_outputs=self.num_outputs, **counts)
        if not bool(torch.isfinite(value)):  # looking at the inputs only now keeps the check free
            check_finite("x", x)
            check_finite("y", y)
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
        """Set y_c and beta to their optimum at the present kernel and pseudo-inputs, and return the bound there.

        Arguments and errors are those of :meth:`elbo`. For data that come in parts see :meth:`gather`.
        """
        L_K_inv = bounds.whitener(self.jittered_covariance())
        options = {"sample_weight": sample_weight, "noise_variance": noise_variance}
        return self.adopt_optimum(self.gather(L_K_inv, x, y, **options))

    def jittered_covariance(self) -> Tensor:
        """K_cc [M, M] with the jitter of the bounds that factorize it."""
        return add_jitter(square_matrix(self.kernel, self.X_c), JITTER)

    @torch.no_grad()
    def gather(
        self,
        L_K_inv: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> bounds.Statistics:
        """Statistics of some rows, from which :meth:`adopt_optimum` solves the best coreset after all are merged.

        `L_K_inv` [M, M] is `cvgp.gp.bounds.whitener` of :meth:`jittered_covariance`, formed once for all data.

        Examples
        --------
        >>> import cvgp, torch
        >>> from cvgp.gp.bounds import whitener
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 0.0], beta=[1.0, 1.0]))
        >>> x = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
        >>> L_K_inv = whitener(model.jittered_covariance())
        >>> parts = [model.gather(L_K_inv, part, part[:, 0]) for part in x.split(3)]
        >>> bound = model.adopt_optimum(parts[0].merge(parts[1]).merge(parts[2]))
        >>> round(bound.item(), 4) == round(model.elbo(x, x[:, 0]).item(), 4)
        True
        """
        check_rows(x, y, self.X_c, self.y_c)
        check_finite("x", x)
        check_finite("y", y)
        k_xx, noise = diagonal(self.kernel, x), self.total_noise(noise_variance)
        residual = (y - prior_mean(self.mean, x, y)).reshape(len(x), -1)
        K_cx = cross_matrix(self.kernel, self.X_c, x)
        weighting = bounds.weigh(noise, k_xx, sample_weight=sample_weight)
        return bounds.gather(L_K_inv, K_cx, k_xx, residual, weighting.precision, weighting.log_normalizer)

    @torch.no_grad()
    def adopt_optimum(self, statistics: bounds.Statistics) -> Tensor:
        """Set y_c and beta to the optimum that the statistics of all data imply, and return the bound."""
        K_cc = square_matrix(self.kernel, self.X_c)
        best = sites.best_coreset(add_jitter(K_cc, JITTER), statistics, self.site_precision)
        self.set_sites(best.y_c, best.w, jitter=JITTER * K_cc.diagonal().mean().item())
        return best.value

    def process(self) -> "CoresetProcess":
        """The posterior over functions at the present parameters."""
        from cvgp.gp.process import CoresetProcess  # a fit needs no posterior over functions

        K_cc = square_matrix(self.kernel, self.X_c)
        factor = factorize(K_cc, self.site_precision, self._residual_c())
        return CoresetProcess(self.kernel, self.mean, self.X_c, factor)

    def posterior(self, x: Tensor) -> "Prediction":
        """The posterior of f at x `[..., B, D]`: mean, variance, covariance_matrix, sample."""
        return self.process()(x)

    def forward(self, x: Tensor) -> "Prediction":
        """Same as :meth:`posterior`."""
        return self.posterior(x)

    def kl(self) -> Tensor:
        """KL(q(f_c) || p(f_c)) in nats."""
        return self.process().kl()

    def _residual_c(self) -> Tensor:
        return self.y_c - prior_mean(self.mean, self.X_c, self.y_c)
