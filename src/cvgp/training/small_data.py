"""A coreset that is the data itself: kernel, mean and noise by the exact marginal likelihood.

On few rows this is both the best and the fastest fit: there are no pseudo-inputs to search over, and one evaluation
is one factorisation.
"""

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp import bounds
from cvgp.gp.kernels import prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.objectives.exact import ExactObjective
from cvgp.optim.stopping import Result
from cvgp.training.checkpoint import Checkpoint
from cvgp.training.initialise import initial_coreset
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.monitor import Watch
from cvgp.training.size import LARGEST_BY_DEFAULT, needed_points

BEARABLE = 5.0
"""The largest coreset by default may leave this many times more unexplained than another: .025 nats per row."""


def holds_the_data(model: CVGP, source: DataSource) -> bool:
    """Whether each row is a pseudo-point, so that the bound can be the marginal likelihood itself."""
    if len(model.X_c) != source.num_rows:
        return False
    rows = all_rows(source)
    return model.X_c.shape == rows.x.shape and torch.equal(model.X_c, rows.x) and torch.equal(model.y_c, rows.y)


def fit_exact(
    model: CVGP, source: DataSource, watch: Watch, checkpoint: Checkpoint | None, *, max_evaluations: int, tol: float
) -> Result:
    """Maximise the log marginal likelihood over kernel, mean and noise; the sites become the observations.

    A row that a table holds several times counts once while these are learned. Taken for separate measurements, copies
    are proof of a noise of zero, and the likelihood then prefers it (wine, 500 rows: -27 nats per test row, and -.65
    with this rule). In the posterior every copy counts. Each process of a group has all rows and does the same.
    """
    rows = all_rows(source)
    data = distinct_rows(rows)
    result = maximise_by_lbfgs(
        ExactObjective(model, data),
        len(data.x) if data.sample_weight is None else data.sample_weight.sum().item(),
        watch,
        max_evaluations=max_evaluations,
        tol=tol,
        group=source.group,
        checkpoint=checkpoint,
    )
    take_observations(model, rows)
    return result


@torch.no_grad()
def exact_bound(model: CVGP, source: DataSource) -> float:
    """The log marginal likelihood in nats, copies of rows counted: every bound is that, where each row is a point."""
    rows = all_rows(source)
    residual, noise = rows.y - prior_mean(model.mean, rows.x, rows.y), model.total_noise(rows.noise_variance)
    K_xx = square_matrix(model.kernel, rows.x)
    return bounds.log_marginal(K_xx, residual, noise, sample_weight=rows.sample_weight).item()


def distinct_rows(rows: Rows[Tensor]) -> Rows[Tensor]:
    """Rows with no copies: a weight beyond one counts as one."""
    return rows if rows.sample_weight is None else rows._replace(sample_weight=rows.sample_weight.clamp_max(1.0))


def smaller_coreset(model: CVGP, source: DataSource, rng: np.random.Generator) -> CVGP | None:
    """A model whose greedy points explain the inputs as well; None where half of the rows are too few for that.

    It has no more points than a coreset has by default, unless that many leave too much unexplained: then it is None
    too. The model's weights and pseudo-outputs are still to be solved for.
    """
    rows = all_rows(source)
    x, y = rows.x.cpu().numpy(), rows.y.cpu().numpy()
    size = _points_to_keep(model.kernel, source.harmonic_noise(model.noise.item()), x)
    if size is None:
        return None
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    coreset = initial_coreset("greedy", x, y, size, rng, sample_weight=weight, kernel=model.kernel)
    return model.with_coreset(coreset)


def _points_to_keep(kernel: Kernel, noise: float, x: NDArray[np.float64]) -> int | None:
    """How many points explain the inputs, or nearly do; None if all rows are to be kept."""
    limit = min(len(x) // 2, LARGEST_BY_DEFAULT)
    size = needed_points(kernel, noise, x, limit)
    if size is None and limit == LARGEST_BY_DEFAULT and needed_points(kernel, BEARABLE * noise, x, limit):
        return limit
    return size


def all_rows(source: DataSource) -> Rows[Tensor]:
    """Every row of a source that has few."""
    return source.sample(source.num_rows, np.random.default_rng(0))  # takes all, and draws none


@torch.no_grad()
def take_observations(model: CVGP, data: Rows[Tensor]) -> None:
    """Make each observation a site of its own precision."""
    noise, like = model.total_noise(data.noise_variance), data.y.new_empty(len(data.x))
    precision = bounds.weigh(noise, like, sample_weight=data.sample_weight).precision
    model.set_sites(data.y - prior_mean(model.mean, data.x, data.y), precision)
