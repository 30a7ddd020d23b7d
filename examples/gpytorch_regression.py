"""GPyTorch's SVGP regression with the strategy line changed, and what the change brings: conditioning in closed form.

Run it with ``python examples/gpytorch_regression.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import gpytorch
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy

M, STEPS, BATCH = 15, 300, 256


class GPModel(gpytorch.models.ApproximateGP):
    """The model of GPyTorch's SVGP example."""

    def __init__(self, inducing_points: torch.Tensor) -> None:
        # Was: CholeskyVariationalDistribution and VariationalStrategy.
        variational_distribution = CoresetVariationalDistribution(inducing_points.size(0))
        variational_strategy = CoresetVariationalStrategy(self, inducing_points, variational_distribution)
        super().__init__(variational_strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train(model: GPModel, likelihood: gpytorch.likelihoods.Likelihood, x: torch.Tensor, y: torch.Tensor) -> None:
    """Adam on minibatches of the bound, and the best pseudo-targets and precisions at the end."""
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=y.size(0))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.03)
    for step in range(STEPS):
        rows = torch.randint(len(x), (BATCH,))
        optimizer.zero_grad()
        loss = -objective(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f} nats per row")
    model.variational_strategy.initialize_from_data(x, y, likelihood.noise.item())


def draw(axis: Axes, model: gpytorch.models.GP, likelihood: gpytorch.likelihoods.Likelihood, title: str) -> None:
    """Mean and two standard deviations of a new observation."""
    grid = torch.linspace(-0.5, 12.5, 300)
    with torch.no_grad():
        prediction = likelihood(model(grid))
    low, high = prediction.mean - 2 * prediction.stddev, prediction.mean + 2 * prediction.stddev
    axis.fill_between(grid, low, high, color="tab:blue", alpha=0.2, lw=0, label="±2 sd of y")
    axis.plot(grid, prediction.mean, color="tab:blue", label="mean")
    axis.set(title=title, xlabel="x", xlim=(-0.5, 12.5), ylim=(-3.0, 3.5))


def main(folder: Path) -> None:
    """Train, condition, draw."""
    torch.manual_seed(0)
    x = torch.cat([5 * torch.rand(1000, 1), 7 + 5 * torch.rand(1000, 1)])
    y = torch.sin(x[:, 0]) + 0.1 * x[:, 0] + 0.3 * torch.randn(2000)
    model, likelihood = GPModel(x[torch.randperm(2000)[:M]]), gpytorch.likelihoods.GaussianLikelihood()
    train(model, likelihood, x, y)
    model.eval()
    likelihood.eval()

    model.likelihood = likelihood  # where conditioning finds the noise
    x_new = torch.linspace(5.4, 6.6, 8)[:, None]
    y_new = 2.2 + 0.3 * torch.randn(8)
    after = model.get_fantasy_model(x_new, y_new)

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axis in (left, right):
        axis.scatter(x, y, s=2, color="0.7", lw=0)
    draw(left, model, likelihood, f"{M} points of a coreset, trained in GPyTorch")
    sites = model.variational_strategy
    targets = sites.variational_distribution.mean.detach()
    size = 12 + 8 * sites.site_precision.detach().sqrt()
    points = sites.inducing_points.detach()
    left.scatter(points, targets, s=size, color="tab:orange", ec="k", lw=0.6, zorder=3, label="points, by precision")
    draw(right, after, likelihood, "the same, given eight more rows in closed form")
    right.scatter(x_new, y_new, s=40, color="tab:red", ec="k", lw=0.6, zorder=3, label="new rows")
    left.legend(loc="lower left", fontsize=8)
    right.legend(loc="lower left", fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "gpytorch_regression.png", dpi=110)
    print(f"picture: {folder / 'gpytorch_regression.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
