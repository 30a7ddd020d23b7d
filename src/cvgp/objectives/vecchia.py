"""The log likelihood of rows given their neighbours, estimated from the rows of one step."""

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.kernels import prior_mean
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.conditionals import local_rows, no_points, order_rows, whiten_points
from cvgp.gp.neighbours.densities import expected_log_density
from cvgp.gp.neighbours.prediction import InducingPosterior, inducing_prior


class VecchiaObjective:
    """The sum over all rows of E_q log p(y_i | y_N, u), as a function of kernel, mean and noise.

    Parameters
    ----------
    model
        Its kernel, mean and noise receive the gradient. Its pseudo-inputs are used as they are.
    rows
        All rows, in the order that `neighbours` numbers.
    neighbours
        Neighbours of each row `[N, k]`, or -1: rows before it, or any others for a composite likelihood. They are those
        of some earlier kernel: any are valid.
    u
        The posterior of u, held fixed; None for a model without pseudo-inputs, in which neighbours explain all of f.
    """

    batch: Tensor
    """The rows of the present step [n], to be set before each evaluation: a uniform sample of all."""

    def __init__(self, model: CVGP, rows: Rows[Tensor], neighbours: Tensor, u: InducingPosterior | None = None) -> None:
        sites = ("X_c", "y_c", "raw_beta")
        self.parameters = [p for name, p in model.named_parameters() if name not in sites and p.requires_grad]
        self.model = model
        self.rows = rows
        self.neighbours = neighbours
        self.u = u

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the estimate; `scale` times its gradient is added to `grad` of the parameters."""
        model, local = self.model, local_rows(self.batch, self.neighbours[self.batch])
        rows = self.rows.take(local.touched)
        x = rows.x.to(torch.float64)
        data = order_rows(
            x,
            rows.y.to(torch.float64) - prior_mean(model.mean, x, rows.y),
            model.total_noise(rows.noise_variance),
            sample_weight=rows.sample_weight,
        )
        if self.u is None:
            points = no_points(model.kernel, x)
        else:
            points = whiten_points(model.kernel, model.X_c.detach(), model.jittered_covariance())
        u = inducing_prior(points, data.y.shape[1]) if self.u is None else self.u
        weight = scale * len(self.rows.x) / len(self.batch)
        value = weight * expected_log_density(points, data, local, u)
        value.backward()
        return value.item()
