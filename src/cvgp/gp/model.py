"""CVGP as a torch module: its bounds, its best coreset in closed form and its posterior."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cvgp.gp import bounds, sites
from cvgp.gp.kernels import (
    check_finite,
    check_rows,
    cross_matrix,
    diagonal,
    kernel_matrices,
    prior_mean,
    square_matrix,
)
from cvgp.gp.linalg import add_jitter
from cvgp.gp.parameters import Parameters
from cvgp.gp.posterior import factorise

if TYPE_CHECKING:
    from cvgp.gp.process import CoresetProcess, Prediction

JITTER = 1e-8
"""Multiple of the mean diagonal that is added to K_cc in the bounds that factorise it (tight, collapsed, Titsias')."""


class CVGP(Parameters):
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

        Returns
        -------
        Tensor of shape []
            The bound, differentiable in the model's parameters.

        Raises
        ------
        InvalidInputError
            If shapes, types or devices do not fit, or a value is not finite.

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

    def power_evidence(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None = None,
        *,
        power: float = 0.5,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The estimate of log p(y) by power EP, which is no lower bound, with a `power` above 0 and at most 1.

        The other arguments, result and errors are those of :meth:`elbo`.
        """
        return self._bound(x, y, num_data, sample_weight, noise_variance, power=power)

    def _bound(
        self,
        x: Tensor,
        y: Tensor,
        num_data: float | None,
        sample_weight: Tensor | None,
        noise_variance: Tensor | None,
        *,
        tight: bool = False,
        power: float | None = None,
        collapsed: bool = False,
    ) -> Tensor:
        check_rows(x, y, self.X_c, self.y_c)
        if collapsed:  # where a NaN would stop the factorisation of the statistics, far from its cause
            check_finite("x", x)
            check_finite("y", y)
        K_cc, K_cx, k_xx = kernel_matrices(self.kernel, self.X_c, x)
        K_cc = add_jitter(K_cc, JITTER) if tight or collapsed or power is not None else K_cc
        noise = self.total_noise(noise_variance)
        counts: dict[str, Any] = {"sample_weight": sample_weight, "num_data": num_data}
        rows = K_cx, k_xx, y - prior_mean(self.mean, x, y)
        sites = self._residual_c(), self.beta, noise
        if collapsed:
            del counts["num_data"]
            value = bounds.collapsed_bound(K_cc, *rows, self.beta, noise, site_noise=self.site_noise, **counts)
        elif power is not None:
            value = bounds.power_evidence(K_cc, *rows, *sites, power, site_noise=self.site_noise, **counts)
        else:
            value = bounds.elbo(K_cc, *rows, *sites, site_noise=self.site_noise, **counts)
        if tight:
            value = value + bounds.tightening(K_cc, K_cx, k_xx, noise, num_outputs=self.num_outputs, **counts)
        if not bool(torch.isfinite(value)):  # looking at the inputs only now keeps the check free
            check_finite("x", x)
            check_finite("y", y)
        return value

    def collapsed_elbo(
        self,
        x: Tensor,
        y: Tensor,
        *,
        tight: bool = False,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
    ) -> Tensor:
        """The bound on all data at the best pseudo-outputs; the model's own y_c stay as they are.

        Arguments, result and errors are those of :meth:`elbo`, and `tight` chooses the tighter bound.
        """
        return self._bound(x, y, None, sample_weight, noise_variance, tight=tight, collapsed=True)

    @torch.no_grad()
    def solve_coreset(
        self,
        x: Tensor,
        y: Tensor,
        *,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
        power: float | None = None,
    ) -> Tensor:
        """Set y_c and beta to their optimum at the present kernel and pseudo-inputs, and return the bound there.

        Arguments and errors are those of :meth:`elbo`, and `power` is that of :meth:`gather`, also for data in parts.
        """
        L_K_inv = bounds.whitener(self.jittered_covariance())
        options = {"sample_weight": sample_weight, "noise_variance": noise_variance}
        return self.adopt_optimum(self.gather(L_K_inv, x, y, **options, power=power))

    def jittered_covariance(self) -> Tensor:
        """K_cc [M, M] with the jitter of the bounds that factorise it; see :meth:`gather` for an example."""
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
        power: float | None = None,
    ) -> bounds.Statistics:
        """The sums over some rows that the best coreset is solved from; those of other rows can be merged with them.

        Parameters
        ----------
        L_K_inv : Tensor of shape [M, M]
            `cvgp.gp.bounds.whitener` of :meth:`jittered_covariance`, formed once for all parts of the data.
        x, y, sample_weight, noise_variance : Tensor
            As for :meth:`elbo`.
        power : float or None
            That of :meth:`power_evidence`, if the coreset is to maximise it rather than the bound.

        Returns
        -------
        cvgp.gp.bounds.Statistics
            Sums that hold for the present kernel, noise and pseudo-inputs.

        Raises
        ------
        InvalidInputError
            If shapes, types or devices do not fit, or a value is not finite.

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
        if power is not None:
            psi = L_K_inv.to(K_cx.dtype) @ K_cx
            return bounds.gather_power(psi, k_xx, residual, noise, power, sample_weight=sample_weight)
        weighting = bounds.weigh(noise, k_xx, sample_weight=sample_weight)
        return bounds.gather(L_K_inv, K_cx, k_xx, residual, weighting.precision, weighting.log_normaliser)

    @torch.no_grad()
    def adopt_optimum(self, statistics: bounds.Statistics) -> Tensor:
        """Set y_c and beta to the optimum that statistics imply, and return the bound; :meth:`gather` has an example.

        Parameters
        ----------
        statistics : cvgp.gp.bounds.Statistics
            Of all data, gathered at the present kernel, noise and pseudo-inputs.
        """
        K_cc = square_matrix(self.kernel, self.X_c)
        best = sites.best_coreset(add_jitter(K_cc, JITTER), statistics, self.site_precision)
        self.set_sites(best.y_c, best.w, jitter=JITTER * K_cc.diagonal().mean().item())
        return best.value

    def process(self) -> "CoresetProcess":
        """The posterior over functions at the present parameters."""
        from cvgp.gp.process import CoresetProcess  # a fit needs no posterior over functions

        K_cc = square_matrix(self.kernel, self.X_c)
        factor = factorise(K_cc, self.site_precision, self._residual_c())
        return CoresetProcess(self.kernel, self.mean, self.X_c, factor)

    def posterior(self, x: Tensor) -> "Prediction":
        """The posterior of f at x `[..., B, D]`: mean, variance, covariance_matrix, sample, distribution."""
        return self.process()(x)

    def forward(self, x: Tensor) -> "Prediction":
        """Same as :meth:`posterior`."""
        return self.posterior(x)

    def kl(self) -> Tensor:
        """KL(q(f_c) || p(f_c)) in nats."""
        return self.process().kl()

    def _residual_c(self) -> Tensor:
        """The pseudo-outputs minus the prior mean at the pseudo-inputs."""
        return self.y_c - prior_mean(self.mean, self.X_c, self.y_c)
