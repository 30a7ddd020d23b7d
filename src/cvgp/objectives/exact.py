"""The log marginal likelihood of an exact GP, plus priors: the objective where each row is a pseudo-point."""

from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.kernels import prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.objectives import PriorObjective
from cvgp.runtime import threads_for


class ExactObjective:
    """log p(y) of some rows, plus the log density of priors, as a function of kernel, mean and noise.

    Parameters
    ----------
    model
        Its kernel, mean and noise receive the gradient; its coreset is not looked at.
    rows
        All rows.
    """

    def __init__(self, model: CVGP, rows: Rows[Tensor]) -> None:
        self.model = model
        self.rows = rows
        self._prior = PriorObjective(model)
        sites = ("X_c", "y_c", "raw_beta")
        self.parameters = [p for name, p in model.named_parameters() if name not in sites and p.requires_grad]

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        model, rows = self.model, self.rows
        with threads_for(len(rows.x) ** 3):
            value = scale * bounds.log_marginal(
                square_matrix(model.kernel, rows.x),
                rows.y - prior_mean(model.mean, rows.x, rows.y),
                model.total_noise(rows.noise_variance),
                sample_weight=rows.sample_weight,
            )
            value.backward()
        return value.item() + self._prior.value_and_backward(scale)
