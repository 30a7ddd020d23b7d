"""The posterior as GPyTorch's MultivariateNormal; that at the pseudo-inputs knows its KL from the prior."""

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator, LinearOperator, MatmulLinearOperator, SumLinearOperator
from torch import Tensor
from torch.distributions.kl import kl_divergence, register_kl

from cvgp.adapters.gpytorch.joint_prior import JointPrior
from cvgp.gp import posterior
from cvgp.gp.posterior import Factor

ROUNDING_STEPS = 10.0

SAME = 1e-5
"""Two evaluations of one kernel agree to this share, also in float32."""


def posterior_at(factor: Factor, at: JointPrior, jitter: float | None = None) -> MultivariateNormal:
    """The joint posterior of f at x; its covariance waits to be evaluated, as that of many points may never be.

    In float32 a covariance of near points is positive definite to rounding only, so that rounding is added to its
    diagonal, or `jitter` where it is given.
    """
    dtype = at.mean_x.dtype
    at.promote_if_digits_are_lost(factor.w.detach() * factor.K_cc.detach().diagonal(dim1=-2, dim2=-1))
    mean = at.mean_x + posterior.mean(factor, at.K_cx)[..., 0].to(dtype)
    TK = (factor.T.to(at.K_cx.dtype) @ at.K_cx).to(dtype)  # [..., M, B]
    K_xx = at.K_xx
    if dtype != torch.float64:
        k_xx = at.k_xx.to(dtype)
        added = ROUNDING_STEPS * torch.finfo(dtype).eps * k_xx if jitter is None else torch.full_like(k_xx, jitter)
        K_xx = SumLinearOperator(K_xx, DiagLinearOperator(added))
    return MultivariateNormal(mean, SumLinearOperator(K_xx, MatmulLinearOperator(-TK.mT, TK)))


class CoresetNormal(MultivariateNormal):  # type: ignore[misc]
    """q(f_c), with the factor that it is made of.

    GPyTorch's wrappers take the KL from two distributions. From their matrices alone that would need the inverse of
    K_cc, which may be singular.

    What is made of it by indexing or arithmetic is an ordinary normal distribution without a factor.
    """

    factor: Factor | None = None
    prior_mean: Tensor
    kl: Tensor | None = None

    @classmethod
    def of(cls, factor: Factor, prior_mean: Tensor, kl: Tensor | None = None) -> "CoresetNormal":
        """The posterior of factorised sites.

        Parameters
        ----------
        factor
            With pseudo-outputs [..., M, 1] minus the prior mean.
        prior_mean
            At the pseudo-inputs [..., M]; its precision is that of the distribution.
        kl
            The KL [...] from the prior, if it is known already.
        """
        dtype = prior_mean.dtype
        f_c = (factor.K_cc @ factor.alpha)[..., 0].to(dtype)  # [..., M]
        K_cc, T = factor.K_cc.to(dtype), factor.T.to(dtype)
        q = cls(prior_mean + f_c, to_linear_operator(K_cc) + _minus_squares(K_cc, T))
        q.factor, q.prior_mean, q.kl = factor, prior_mean, kl
        return q

    def is_posterior_of(self, prior: MultivariateNormal) -> bool:
        """Whether `prior` is the distribution that the sites were added to."""
        if self.factor is None or prior.event_shape != self.event_shape:
            return False
        own, other = self.factor.K_cc, prior.lazy_covariance_matrix.to_dense().to(torch.float64)
        same_mean = torch.allclose(prior.mean, self.prior_mean, rtol=SAME, atol=SAME)
        return same_mean and torch.allclose(other, own, rtol=SAME, atol=SAME * own.abs().max().item())


def _minus_squares(K_cc: Tensor, T: Tensor) -> LinearOperator:
    """-(T K_cc)^T (T K_cc), not evaluated before someone asks for it."""
    right = MatmulLinearOperator(T, K_cc)
    return MatmulLinearOperator(right.mT, right).mul(-1.0)


@register_kl(CoresetNormal, MultivariateNormal)  # type: ignore[untyped-decorator]
def _kl_of_coreset(q: CoresetNormal, p: MultivariateNormal) -> Tensor:
    """The stable formula where p is the prior of q, and GPyTorch's own elsewhere."""
    if q.factor is not None and q.is_posterior_of(p):
        kl = posterior.kl_divergence(q.factor) if q.kl is None else q.kl
        return kl.to(q.loc.dtype)
    plain = MultivariateNormal(q.loc, q.lazy_covariance_matrix)
    divergence: Tensor = kl_divergence(plain, p)
    return divergence
