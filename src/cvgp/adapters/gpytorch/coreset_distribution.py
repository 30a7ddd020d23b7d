"""The sites of a coreset as GPyTorch's variational parameters."""

import math

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational._variational_distribution import _VariationalDistribution
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from cvgp.errors import InvalidInputError


class CoresetVariationalDistribution(_VariationalDistribution):  # type: ignore[misc]
    """Pseudo-targets and their precisions, the parameters of `CoresetVariationalStrategy`.

    Parameters
    ----------
    num_inducing_points : int
        How many points M.
    batch_shape : torch.Size
        That of a batch of processes.
    mean_init_std : float
        The standard deviation of what is added to the prior mean where the pseudo-targets start.
    init_precision : float
        Where the precisions start: one over the noise variance of each pseudo-target.

    Attributes
    ----------
    pseudo_targets : torch.nn.Parameter of shape [..., M]
        y_c, in the units of the targets: the prior mean is included.
    log_precision : torch.nn.Parameter of shape [..., M]
        Logarithms of the precisions.

    Raises
    ------
    InvalidInputError
        If a number is out of its range.

    Examples
    --------
    >>> from cvgp.adapters.gpytorch import CoresetVariationalDistribution
    >>> sites = CoresetVariationalDistribution(3)
    >>> sites.pseudo_targets.shape
    torch.Size([3])
    >>> [round(w, 3) for w in sites.precision.tolist()]
    [10.0, 10.0, 10.0]
    """

    def __init__(
        self,
        num_inducing_points: int,
        batch_shape: torch.Size = torch.Size([]),  # noqa: B008  (a Size cannot change)
        mean_init_std: float = 1e-3,
        init_precision: float = 10.0,
    ) -> None:
        if num_inducing_points < 1:
            raise InvalidInputError(f"num_inducing_points must be at least 1; got {num_inducing_points}.")
        if not 0.0 <= mean_init_std < math.inf:
            raise InvalidInputError(f"mean_init_std is a standard deviation of at least 0; got {mean_init_std}.")
        if not 0.0 < init_precision < math.inf:
            raise InvalidInputError(
                f"init_precision is one over a variance, positive and finite; got {init_precision}."
            )
        batch_shape = torch.Size(batch_shape)
        super().__init__(num_inducing_points, batch_shape, mean_init_std)
        start = torch.zeros(*batch_shape, num_inducing_points)
        self.register_parameter("pseudo_targets", torch.nn.Parameter(start))
        self.register_parameter("log_precision", torch.nn.Parameter(start + math.log(init_precision)))

    @property
    def precision(self) -> Tensor:
        """Precisions `[..., M]`."""
        precision: Tensor = self.log_precision.exp()
        return precision

    def forward(self) -> MultivariateNormal:
        """Return what each point says by itself: a normal distribution around its pseudo-target.

        The posterior at the points also needs the kernel; it is
        `CoresetVariationalStrategy.variational_distribution`.

        Returns
        -------
        gpytorch.distributions.MultivariateNormal
            Independent, with the pseudo-targets as means and one over the precisions as variances.

        Raises
        ------
        InvalidInputError
            Never.

        Examples
        --------
        >>> from cvgp.adapters.gpytorch import CoresetVariationalDistribution
        >>> CoresetVariationalDistribution(3, init_precision=4.0)().variance.tolist()
        [0.25, 0.25, 0.25]
        """
        return MultivariateNormal(self.pseudo_targets, DiagLinearOperator((-self.log_precision).exp()))

    @torch.no_grad()
    def initialize_variational_distribution(self, prior_dist: MultivariateNormal) -> None:
        """Put the pseudo-targets on the prior mean, plus a little noise; the precisions stay.

        Parameters
        ----------
        prior_dist : gpytorch.distributions.MultivariateNormal
            The prior at the points.

        Raises
        ------
        InvalidInputError
            If it has batch dimensions that `batch_shape` lacks.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.distributions import MultivariateNormal
        >>> from cvgp.adapters.gpytorch import CoresetVariationalDistribution
        >>> sites = CoresetVariationalDistribution(2, mean_init_std=0.0)
        >>> sites.initialize_variational_distribution(MultivariateNormal(torch.ones(2), torch.eye(2)))
        >>> sites.pseudo_targets.tolist()
        [1.0, 1.0]
        """
        mean = prior_dist.mean
        own = self.pseudo_targets.shape
        if mean.ndim > len(own) or any(
            n not in (1, m) for n, m in zip(reversed(mean.shape), reversed(own), strict=False)
        ):
            raise InvalidInputError(
                f"The prior mean at the points is {tuple(mean.shape)}, and the pseudo-targets are {tuple(own)}: give "
                "CoresetVariationalDistribution the batch_shape of the mean."
            )
        noise = torch.randn_like(self.pseudo_targets)
        self.pseudo_targets.copy_(mean.expand(own) + self.mean_init_std * noise)
