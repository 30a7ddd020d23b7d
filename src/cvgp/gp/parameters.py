"""What a CVGP learns: a GPyTorch mean, kernel and likelihood, and the coreset, as parameters of a torch module."""

from typing import Any, Literal, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor, nn

from cvgp.coreset import Coreset
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp.hyperparameters import log_density, registered_priors
from cvgp.gp.kernels import gaussian_likelihood, make_kernel, prior_mean

SMALLEST_SHARE = 1e-12
"""A weight of zero, which no positive transform reaches, starts as this share of the largest one."""


class Parameters(nn.Module):
    """The learnable parts of :class:`cvgp.CVGP`, which documents the arguments."""

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
        _check_type("coreset", coreset, Coreset, "a cvgp.Coreset")
        _check_type("kernel", kernel, (str, Kernel), "a name or a gpytorch.kernels.Kernel")
        _check_type("mean", mean, (Mean, type(None)), "a gpytorch.means.Mean")
        _check_type(
            "likelihood", likelihood, (GaussianLikelihood, type(None)), "a gpytorch.likelihoods.GaussianLikelihood"
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
        # What the noise of the sites has beyond the learned constant: zero, unless the data carry noise of their own.
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

    @property
    def num_outputs(self) -> int:
        """How many outputs share the kernel."""
        return 1 if self.y_c.ndim == 1 else self.y_c.shape[1]

    def with_coreset(self, coreset: Coreset) -> Self:
        """A model with another coreset that shares this one's kernel, mean and likelihood.

        Parameters
        ----------
        coreset : Coreset
            Pseudo-inputs, pseudo-outputs and weights, in the units of this model's.

        Returns
        -------
        CVGP
            On the device of this model.

        Examples
        --------
        >>> import cvgp
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[1.0, 1.0]))
        >>> smaller = model.with_coreset(cvgp.Coreset(X=[[0.5]], y=[0.5], beta=[2.0]))
        >>> len(smaller.X_c), smaller.kernel is model.kernel
        (1, True)
        """
        other = type(self)(
            coreset, self.kernel, mean=self.mean, likelihood=self.likelihood, beta_transform=self.beta_transform
        ).to(self.X_c.device)
        other.site_noise_offset.copy_(self.site_noise_offset)
        return other

    def total_noise(self, noise_variance: Tensor | None) -> Tensor:
        """The noise variance of some rows: the learned one, plus what is known of each row.

        Parameters
        ----------
        noise_variance : Tensor of shape [B] or None
            Known noise variances.

        Returns
        -------
        Tensor of shape [] or [B]
            The learned variance alone if `noise_variance` is None.

        Raises
        ------
        InvalidInputError
            If a variance is negative, or on another device than the model.

        Examples
        --------
        >>> import cvgp, torch
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0]], y=[0.0], beta=[1.0]))
        >>> [round(v, 2) for v in model.total_noise(torch.tensor([0.0, 0.5])).tolist()]
        [0.1, 0.6]
        """
        if noise_variance is None:
            return self.noise
        if noise_variance.device != self.X_c.device:
            raise InvalidInputError(
                f"noise_variance must be on {self.X_c.device}, where the model is; got {noise_variance.device}."
            )
        if bool((noise_variance < 0).any()):
            raise InvalidInputError("noise_variance holds variances, which are not negative; square the deviations.")
        return self.noise + noise_variance

    def log_prior(self) -> Tensor:
        """The log density of kernel, mean and noise under the GPyTorch priors that are registered on them.

        A fit maximises the bound plus this. The bounds themselves leave it out: add it in a training loop of your own.

        Returns
        -------
        Tensor of shape []
            Nats, differentiable in the parameters; zero without priors.

        Raises
        ------
        DivergenceError
            If a value is outside the support of its prior.

        Examples
        --------
        >>> import cvgp
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.priors import NormalPrior
        >>> kernel = RBFKernel(lengthscale_prior=NormalPrior(1.0, 0.1)).double()
        >>> kernel.lengthscale = 1.0
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0]], y=[0.0], beta=[1.0]), kernel)
        >>> round(model.log_prior().item(), 3)  # -log(0.1 sqrt(2 pi))
        1.384
        """
        return log_density(registered_priors(self.kernel, self.mean, self.likelihood), self.X_c)

    @torch.no_grad()
    def set_sites(self, y_c: Tensor, w: Tensor, *, jitter: float = 0.0) -> None:
        """Replace the pseudo-outputs and the weights by sites that were solved for K_cc + jitter.

        The jitter and the variance 1/w of a site enter A = (K_cc + jitter + 1/w)^-1 as one sum. So sites with the
        variance 1/w + jitter give the same predictions without a jitter, and the bound can only rise.

        Parameters
        ----------
        y_c : Tensor of shape [M] or [M, Q]
            Pseudo-outputs minus the prior mean.
        w : Tensor of shape [M]
            Site precisions, beta / site_noise.
        jitter : float
            What was added to the diagonal of K_cc.

        Examples
        --------
        >>> import cvgp, torch
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0]], y=[0.0], beta=[1.0]))
        >>> model.set_sites(torch.tensor([2.0]), torch.tensor([30.0], dtype=torch.float64))
        >>> model.y_c.item(), round(model.beta.item(), 6)  # the noise variance is 0.1
        (2.0, 3.0)
        """
        absorbed = w / (1.0 + jitter * w)
        self.y_c.copy_(y_c.reshape(self.y_c.shape) + prior_mean(self.mean, self.X_c, self.y_c))
        self.raw_beta.copy_(self._inverse_transform(absorbed * self.site_noise))

    @torch.no_grad()
    def set_site_noise_offset(self, offset: float) -> None:
        """Change the noise that a weight of one stands for, and scale the weights so that the posterior stays.

        Parameters
        ----------
        offset : float
            What `site_noise` shall have beyond the learned noise: usually the harmonic mean of the known noise
            variances.

        Examples
        --------
        >>> import cvgp
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0]], y=[0.0], beta=[1.0]))
        >>> model.set_site_noise_offset(0.1)  # twice the noise, so twice the weight for the same precision
        >>> round(model.beta.item(), 6)
        2.0
        """
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


def _check_type(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kinds):
        raise InvalidTypeError(f"{name} must be {expected}; got {type(value).__name__}.")
