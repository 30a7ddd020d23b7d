"""What the nearest training rows add to the predictions of a model, in the model's units."""

from functools import cached_property

import torch
from torch import Tensor

from cvgp.gp.kernels import prior_mean
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.local_prediction import NeighbourProcess
from cvgp.training.neighbour_rows import NeighbourRows


class LocalPart:
    """Predictions of a model that consults training rows.

    Parameters
    ----------
    model
        The fitted model.
    kept
        The rows that it consults.
    """

    def __init__(self, model: CVGP, kept: NeighbourRows) -> None:
        self.model = model
        self.kept = kept

    @cached_property
    def process(self) -> NeighbourProcess:
        """The posterior of f minus its prior mean, prepared once."""
        return self.kept.process(self.model)

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `[n, Q]` and variance `[n]` of f at x `[n, D]`, each point given its nearest rows."""
        f_mean, f_var = self.process.moments(x)
        return f_mean + prior_mean(self.model.mean, x.to(f_mean.dtype), f_mean), f_var

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        """Covariance of f `[n, n]` at x `[n, D]`.

        Its correlations are those of the joint posterior, in which points are each other's neighbours too. Its
        variances are those of :meth:`moments`, which no other point has a part in.
        """
        joint = self.process.joint(x).f_covariance
        f_var = self.process.moments(x)[1]
        ratio = (f_var / joint.diagonal().clamp_min(torch.finfo(joint.dtype).tiny)).sqrt()  # [n]
        C = ratio[:, None] * joint * ratio
        C.diagonal().copy_(f_var)
        return C
