r"""The log likelihood of some rows given their neighbours, to be maximised over kernel and noise (§9.7).

With a fixed q(u) = N(m, S), in coordinates of unit prior covariance, the bound on the log marginal likelihood is

.. math:: \sum_i E_q \log N(y_i \mid \phi_i^T u + b_i^T y_N, \; v_i + 1/\rho_i) - KL(q(u) \,\|\, p(u)).

The divergence holds neither kernel nor noise. The sum is over rows, so that a uniform sample of rows, times N over its
size, is an estimate without bias. At the posterior of u its gradient is that of the log marginal likelihood.
"""

from torch import Tensor

from cvgp.gp.neighbours.decorrelated import LocalRows, OrderedRows, given_neighbours
from cvgp.gp.neighbours.global_part import GlobalPart
from cvgp.gp.neighbours.whitened_points import WhitenedPoints


def expected_log_density(points: WhitenedPoints, data: OrderedRows, local: LocalRows, u: GlobalPart) -> Tensor:
    """Sum of E_q log p(y_i | y_N, u) over some rows, in nats; differentiable in all that its arguments are made of.

    Parameters
    ----------
    points
        The kernel, and pseudo-inputs that were whitened with it; none leave all to the neighbours.
    data
        The rows that are touched, made from the present noise.
    local
        Which of them, and their neighbours: rows before each, or any others for a composite likelihood.
    u
        The posterior of the global part, taken as fixed.
    """
    part = given_neighbours(points, data, points.features(data.x), local)
    here = data.take(local.rows)
    num_outputs = here.y.shape[1]
    rho_v = here.precision * part.v
    f_mean = part.b_y + part.phi @ u.mean  # [n, Q]
    f_var = (part.phi @ u.root).square().sum(1)  # [n], from u alone
    squares = (here.y - f_mean).square().sum(1) + num_outputs * f_var
    normaliser = num_outputs * (here.log_normaliser - 0.5 * rho_v.log1p())
    return (normaliser - 0.5 * here.precision / (1.0 + rho_v) * squares).sum()


def global_divergence(u: GlobalPart) -> Tensor:
    """KL(q(u) || N(0, I)) in nats, summed over outputs: what the bound takes off."""
    M, num_outputs = u.mean.shape
    covariance_part = u.root.square().sum() - M - 2.0 * u.root.diagonal().abs().log().sum()
    return 0.5 * (num_outputs * covariance_part + u.mean.square().sum())
