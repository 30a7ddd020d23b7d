"""Two tasks that share latent functions: GPyTorch's LMC wrapper around the coreset strategy.

One task has no rows in the middle. What is known of the other helps there.

Run it with ``python examples/gpytorch_multitask.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import gpytorch
import torch
from gpytorch.variational import LMCVariationalStrategy
from matplotlib.figure import Figure

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy

M, LATENTS, TASKS, STEPS = 20, 2, 2, 500


class MultitaskGP(gpytorch.models.ApproximateGP):
    """The model of GPyTorch's example of SVGP multitask regression."""

    def __init__(self) -> None:
        batch = torch.Size([LATENTS])
        inducing_points = torch.linspace(0, 1, M)[:, None].repeat(LATENTS, 1, 1)
        sites = CoresetVariationalDistribution(M, batch_shape=batch)
        strategy = CoresetVariationalStrategy(self, inducing_points, sites)
        super().__init__(LMCVariationalStrategy(strategy, num_tasks=TASKS, num_latents=LATENTS))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        base = gpytorch.kernels.RBFKernel(batch_shape=batch)
        base.lengthscale = 0.15
        self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=batch)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior of the latent functions."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def truth(x: torch.Tensor) -> torch.Tensor:
    """Both tasks, [..., 2]."""
    wave = torch.sin(2 * torch.pi * 1.5 * x)
    return torch.stack([wave + 0.5 * x, 0.8 * wave - 0.5], -1)


def main(folder: Path) -> None:
    """Train with one task per row, draw both tasks everywhere."""
    torch.manual_seed(1)
    x, task = torch.rand(300), (torch.rand(300) < 0.5).long()
    kept = ~((task == 1) & (x > 0.35) & (x < 0.7))
    x, task = x[kept], task[kept]
    y = truth(x).gather(-1, task[:, None])[:, 0] + 0.1 * torch.randn(len(x))

    model, likelihood = MultitaskGP(), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.03)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = -objective(model(x[:, None], task_indices=task), y)
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f} nats per row")

    model.eval()
    grid = torch.linspace(0, 1, 200)
    with torch.no_grad():
        prediction = model(grid[:, None])
        mean, sd = prediction.mean, (prediction.variance + likelihood.noise).sqrt()
    error = (mean - truth(grid)).square().mean(0).sqrt()
    print(f"RMSE of f: {error[0]:.3f} and {error[1]:.3f}, noise sd {likelihood.noise.sqrt().item():.3f}")

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for i, axis in enumerate(figure.subplots(1, TASKS)):
        low, high = mean[:, i] - 2 * sd[:, i], mean[:, i] + 2 * sd[:, i]
        axis.fill_between(grid, low, high, color="tab:blue", alpha=0.2, lw=0, label="±2 sd of y")
        axis.plot(grid, truth(grid)[:, i], "k--", lw=1, label="truth")
        axis.plot(grid, mean[:, i], color="tab:blue", label="mean")
        axis.scatter(x[task == i], y[task == i], s=8, color="0.5", lw=0, label="rows")
        axis.set(title=f"task {i + 1}" + (", with a gap" if i else ""), xlabel="x", xlim=(0, 1))
    axis.legend(loc="lower left", fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "gpytorch_multitask.png", dpi=110)
    print(f"picture: {folder / 'gpytorch_multitask.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
