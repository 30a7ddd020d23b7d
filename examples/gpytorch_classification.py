"""A GPyTorch classifier with a deep kernel and the coreset strategy: any kernel, and a likelihood that is not Gaussian.

Run it with ``python examples/gpytorch_classification.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import gpytorch
import torch
from matplotlib.figure import Figure

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy

M, STEPS = 20, 300


class Classifier(gpytorch.models.ApproximateGP):
    """A GP of the inputs, or of features that a small network learns of them."""

    def __init__(self, inducing_points: torch.Tensor, features: torch.nn.Module) -> None:
        sites = CoresetVariationalDistribution(len(inducing_points))
        super().__init__(CoresetVariationalStrategy(self, inducing_points, sites))
        self.features = features
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior."""
        z = self.features(x)
        return gpytorch.distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))


def moons(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two half circles, with labels."""
    angle, label = torch.pi * torch.rand(n), (torch.rand(n) < 0.5).float()
    x = torch.stack([torch.cos(angle) + label, torch.sin(angle) * (1 - 2 * label) + 0.5 * label], 1)
    return x + 0.15 * torch.randn(n, 2), label


def train(model: Classifier, likelihood: gpytorch.likelihoods.Likelihood, x: torch.Tensor, label: torch.Tensor) -> None:
    """Adam on all rows."""
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = -objective(model(x), label)
        loss.backward()
        optimizer.step()
    print(f"bound {-loss.item():.3f} nats per row")


def main(folder: Path) -> None:
    """Train both, compare, draw."""
    torch.manual_seed(0)
    (x, label), (x_new, label_new) = moons(400), moons(2000)
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    across, up = torch.meshgrid(torch.linspace(-1.7, 2.7, 90), torch.linspace(-1.3, 1.8, 70), indexing="xy")
    grid = torch.stack([across.reshape(-1), up.reshape(-1)], 1)

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, name, features in zip(axes, ("RBF kernel", "deep kernel"), (torch.nn.Identity(), network), strict=True):
        model = Classifier(x[:M], features)
        train(model, likelihood, x, label)
        model.eval()
        with torch.no_grad():
            probability = likelihood(model(grid)).mean.reshape(across.shape)
            right = ((likelihood(model(x_new)).mean > 0.5) == label_new.bool()).float().mean()
        shown = axis.contourf(across, up, probability, levels=torch.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.7)
        axis.contour(across, up, probability, levels=[0.5], colors="k", linewidths=1)
        axis.scatter(*x.T, c=label, cmap="RdBu_r", s=6, lw=0)
        points = model.variational_strategy.inducing_points.detach()
        axis.scatter(*points.T, marker="x", color="k", s=25, lw=1.2)
        axis.set(xlim=(-1.7, 2.7), ylim=(-1.3, 1.8), xlabel="first input", ylabel="second input")
        axis.set_title(f"{name}: {right:.1%} of new rows are right")
        print(f"{name}: {right:.1%}")
    figure.colorbar(shown, ax=axes, label="probability of class 1")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "gpytorch_classification.png", dpi=110)
    print(f"picture: {folder / 'gpytorch_classification.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
