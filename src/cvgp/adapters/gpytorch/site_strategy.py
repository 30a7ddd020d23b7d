"""A variational strategy that has sites: what they are, and what they are set to."""

from typing import Any

import torch
from gpytorch.variational._variational_strategy import _VariationalStrategy
from torch import Tensor

from cvgp.adapters.gpytorch.coreset_distribution import CoresetVariationalDistribution
from cvgp.adapters.gpytorch.site_values import (
    best_sites,
    check_parts,
    largest_precision,
    limited_log,
    raw_log_precision,
    site_values,
)


class SiteStrategy(_VariationalStrategy):  # type: ignore[misc]
    """The parameters of `CoresetVariationalStrategy`, which documents the arguments."""

    def __init__(
        self,
        model: Any,
        inducing_points: Tensor,
        variational_distribution: CoresetVariationalDistribution,
        learn_inducing_locations: bool = True,
        jitter_val: float | None = None,
    ) -> None:
        check_parts(inducing_points, variational_distribution, jitter_val)
        super().__init__(model, inducing_points, variational_distribution, learn_inducing_locations, jitter_val)

    @property
    def site_precision(self) -> Tensor:
        """The precisions of the sites `[..., M]` in float64, none above one over `jitter_val`."""
        return self.log_site_precision.exp()

    def set_sites(self, y_c: Tensor, w: Tensor) -> None:
        """Replace the pseudo-targets and the precisions of the sites.

        Parameters
        ----------
        y_c : Tensor of shape [..., M]
            Pseudo-targets in the units of the targets: the prior mean is included.
        w : Tensor of shape [..., M]
            What `site_precision` shall be.

        Raises
        ------
        InvalidInputError
            If a shape does not fit, a value is not finite, or a precision is negative.

        Warns
        -----
        CVGPWarning
            If a precision is above one over `jitter_val`, the largest that the strategy can have.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> model = CoresetGP(torch.zeros(1, 1), torch.ones(1), torch.ones(1), RBFKernel())
        >>> model.variational_strategy.set_sites(torch.tensor([2.0]), torch.tensor([3.0]))
        >>> round(model(torch.zeros(1, 1)).mean.item(), 4)  # 2 / (1 + 1/3)
        1.5
        """
        sites = self._variational_distribution
        y_c, w = site_values(y_c, w, sites.shape())
        with torch.no_grad():
            sites.pseudo_targets.copy_(y_c)
            sites.log_precision.copy_(raw_log_precision(w, self.jitter_val))
            self.variational_params_initialized.fill_(1)

    @torch.no_grad()
    def initialize_from_data(self, x: Tensor, y: Tensor, noise: Tensor | float) -> None:
        """Set the sites to what is best for some data, at the present kernel, mean and pseudo-inputs.

        That is the maximum of the bound of a Gaussian likelihood, in closed form but for a few steps in the precisions.
        One pass over the rows is made.

        Parameters
        ----------
        x : Tensor of shape [..., N, D]
            Inputs.
        y : Tensor of shape [..., N]
            Targets.
        noise : float or Tensor of shape [] or [..., N]
            Their noise variances.

        Raises
        ------
        InvalidInputError
            If shapes do not fit, or a noise is not positive.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> x = torch.linspace(0, 6, 50)[:, None]
        >>> model = CoresetGP(x[::6], torch.zeros(9), torch.ones(9), RBFKernel())
        >>> model.variational_strategy.initialize_from_data(x, torch.sin(x[:, 0]), noise=0.01)
        >>> [round(mean, 1) for mean in model(torch.tensor([[1.6], [4.7]])).mean.tolist()]
        [1.0, -1.0]
        """
        shape, highest = self._variational_distribution.shape(), largest_precision(self.jitter_val)
        best = best_sites(self.model, self.inducing_points, x, y, noise, shape, highest)
        self.set_sites(best.y_c, best.w)

    def start_sites(self) -> None:
        """Put the pseudo-targets on the prior mean, unless they have values already; the first call does it.

        Raises
        ------
        InvalidInputError
            If the prior mean has batch dimensions that the pseudo-targets lack.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> strategy = CoresetGP(torch.zeros(1, 1), torch.ones(1), torch.ones(1), RBFKernel()).variational_strategy
        >>> strategy.start_sites()  # they have values
        >>> strategy._variational_distribution.pseudo_targets.tolist()
        [1.0]
        """
        if self.variational_params_initialized.item():
            return
        if not bool(self._variational_distribution.pseudo_targets.any()):  # all zero: nobody has set them
            self._variational_distribution.initialize_variational_distribution(self.prior_distribution)
        self.variational_params_initialized.fill_(1)

    @property
    def log_site_precision(self) -> Tensor:
        """Logarithms of `site_precision`."""
        return limited_log(self._variational_distribution.log_precision.to(torch.float64), self.jitter_val)
