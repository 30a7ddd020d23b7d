"""How far the bound is from the exact log marginal likelihood, on so few rows that the latter can be computed."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.errors import InvalidInputError
from cvgp.estimators.inputs import array_source, canonical
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.transformed_rows import sum_of_log_slopes, transformed
from cvgp.gp.bounds import log_marginal
from cvgp.gp.kernels import prior_mean, square_matrix
from cvgp.parallel.group import ALONE
from cvgp.plots.course import settled_range, training_course
from cvgp.report.markup import figure, grid, paragraph, section, table
from cvgp.report.svg import Axis, Chart
from cvgp.training.grow import grow_model
from cvgp.training.neighbour_rows import adopt_neighbours, in_random_order

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

MOST_ROWS = 400
CURVE = 300
"""Iterations that the chart of training shows."""


class Tightness(NamedTuple):
    """Nats per row, for y in its own units."""

    num_rows: int
    of_the_fit: bool
    """Whether the rows are of the fit, or else those that are evaluated."""
    exact: float
    bound: float

    @property
    def gap(self) -> float:
        """How far the bound is below the exact value."""
        return self.exact - self.bound


@torch.no_grad()
def tightness(rows: Evaluated) -> Tightness | None:
    """Compare on some rows of the fit, or else of the evaluated ones; None where the model excludes their y."""
    model, gp = rows.model, rows.model.gp_
    x, y = (rows.x, rows.y) if rows.train is None else rows.train
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(len(x))[:MOST_ROWS])
    data = canonical(Rows(x[chosen], y[chosen]))
    if gp.outliers is not None:
        data = Predictive.at(gp, data.x).regular(data)
    try:
        described = transformed(gp.target, data)
    except InvalidInputError:
        return None  # the logarithm of values that are not above 0
    source = gp.weighed(array_source(described, gp.scaling, model.model_.X_c.device, ALONE))
    assert isinstance(source, MemorySource), "the rows are in memory"
    own, few = model.model_, source.data
    exact = log_marginal(
        square_matrix(own.kernel, few.x),
        few.y - prior_mean(own.mean, few.x, few.y),
        own.total_noise(few.noise_variance),
        sample_weight=few.sample_weight,
    ).item()
    if gp.local is None:
        # The sums of all rows give the paper's bound to many digits, also where the prior variance is far above the
        # noise. The tighter one is a sum over rows, which would lose them there.
        bound = grow_model(own, source, len(own.X_c), rng).bound
    else:
        count = gp.local.kept.num_neighbours
        bound = adopt_neighbours(deepcopy(own), in_random_order(few, 0), count)[1]
    total = source.total_weight
    offset = sum_of_log_slopes(gp.target, data) / total - float(np.log(gp.scaling.y_scale).sum())
    return Tightness(len(chosen), rows.train is not None, exact / total + offset, bound / total + offset)


def training_section(rows: Evaluated, found: Tightness | None) -> str:
    """The course of training, and how tight the bound is."""
    return section("training", "Training and the bound", grid([_course(rows), *_tightness(found)]))


def _course(rows: Evaluated) -> str:
    iteration, bound, validation = training_course(rows.model)
    shown = np.unique(np.linspace(0, len(bound) - 1, min(CURVE, len(bound))).round().astype(np.int64))
    at, values = iteration[shown].astype(np.float64), bound[shown]
    chart = Chart(
        "course",
        "Training",
        f"The bound over {len(bound)} iterations of {rows.model.solver_}: at the end {bound[-1]:.4f} nats per row.",
        Axis.around("iteration", at),
        Axis("bound (nats per row)", *settled_range(bound)),
    )
    chart.line(at, values, "blue")
    if len(at) == 1:
        chart.circles(at, values, "blue")
    step = max(1, len(shown) // 20)
    kept = np.append(np.arange(0, len(shown) - 1, step), len(shown) - 1)
    checked = validation[shown]
    numbers = [
        [f"{at[i]:.0f}", f"{values[i]:.4f}", f"{checked[i]:.4f}" if np.isfinite(checked[i]) else "none"] for i in kept
    ]
    ended = "converged" if rows.model.converged_ else "stopped before it converged"
    caption = (
        f"Training by {rows.model.solver_}, for y in standardised units: {rows.model.n_iter_} iterations, {ended}."
    )
    head = ["iteration", "bound", "validation RMSE"]
    return figure(chart.svg(), caption, table("Training", head, numbers))


def _tightness(found: Tightness | None) -> list[str]:
    if found is None:
        return [paragraph("The exact marginal likelihood was not computed: the model cannot describe these rows.")]
    values = {"exact": found.exact, "bound": found.bound}
    names, heights = list(values), np.array(list(values.values()))
    chart = Chart(
        "gap",
        "Bound and exact marginal likelihood",
        f"The bound is {found.gap:.3f} nats per row below the exact log marginal likelihood.",
        Axis.around("nats per row", heights, heights.max() + np.array([-0.5, 0.0])),
        Axis.of_names("", names)._replace(low=len(names) - 0.5, high=-0.5),
    )
    every = np.arange(float(len(names)))
    chart.errors(every, np.minimum(heights, heights[0]), np.full(len(names), heights[0]), "grey thick", flat=True)
    chart.circles(heights[:1], every[:1], "orange", 5.0)
    chart.circles(heights[1:], every[1:], "blue", 5.0)
    whose = "of the fit" if found.of_the_fit else "that are evaluated here"
    caption = (
        f"On {found.num_rows} rows {whose}, at the kernel, the noise and the pseudo-inputs of the model, the "
        f"bound is {found.gap:.3f} nats per row below the exact log marginal likelihood. A small gap means that the "
        "coreset loses little."
    )
    numbers = [[name, f"{value:.4f}", f"{found.exact - value:.4f}"] for name, value in values.items()]
    head = ["quantity", "nats per row", "below exact"]
    return [figure(chart.svg(), caption, table("Bound and exact marginal likelihood", head, numbers))]
