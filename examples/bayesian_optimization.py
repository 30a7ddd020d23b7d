"""Bayesian optimization of Branin and Hartmann-6 with CVGPModel, beside BoTorch's SingleTaskGP.

Both models are fitted again after each observation, by ``fit_gpytorch_mll``. The picture shows how far the best value
so far is from the optimum, and where Branin was evaluated.

Run it with ``python examples/bayesian_optimization.py [FOLDER] [SEEDS] [ITERATIONS]``; the picture lands in FOLDER
(``demo`` by default). The default is one seed and a few iterations. ``python -m experiments botorch`` measures ten
seeds.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.exceptions.warnings import OptimizationWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin, Hartmann, SyntheticTestFunction
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cvgp.adapters.botorch import CVGPModel

FUNCTIONS = {"Branin": Branin, "Hartmann-6": Hartmann}
SMALLEST_REGRET = 1e-6
"""What is drawn as the end of the scale."""


def coreset_model(X: torch.Tensor, Y: torch.Tensor) -> CVGPModel:
    """A model of rows, in which a fit keeps as many points as it needs."""
    names = [f"x{i}" for i in range(X.shape[-1])]
    data = SupervisedDataset(X, Y, feature_names=names, outcome_names=["y"])
    return CVGPModel(**CVGPModel.construct_inputs(data))


def exact_model(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
    """BoTorch's default."""
    return SingleTaskGP(X, Y, input_transform=Normalize(d=X.shape[-1]))


MODELS = {"CVGPModel": coreset_model, "SingleTaskGP": exact_model}


def optimize(make_model: Any, function: SyntheticTestFunction, iterations: int, seed: int) -> tuple[torch.Tensor, Any]:
    """Where the function was evaluated, and what it was there."""
    torch.manual_seed(seed)
    bounds = function.bounds
    X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(2 * len(bounds[0]), len(bounds[0]), dtype=torch.float64)
    Y = function(X)[:, None]
    for _ in range(iterations):
        model = make_model(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        improvement = qLogExpectedImprovement(model, best_f=Y.max())
        x, _value = optimize_acqf(improvement, bounds, q=1, num_restarts=4, raw_samples=64)
        X, Y = torch.cat([X, x]), torch.cat([Y, function(x)[:, None]])
    return X, Y


def draw_regret(axis: Axes, title: str, regrets: dict[str, torch.Tensor]) -> None:
    """The median over seeds of what is missing to the optimum, by the number of observations."""
    for (name, values), style in zip(regrets.items(), ("-", "--"), strict=True):
        axis.plot(
            range(1, values.shape[1] + 1), values.quantile(0.5, dim=0).clamp_min(SMALLEST_REGRET), style, label=name
        )
    axis.set(title=title, xlabel="observations", ylabel="regret", yscale="log")
    axis.legend()


def draw_places(axis: Axes, function: SyntheticTestFunction, X: torch.Tensor) -> None:
    """The function, and where it was evaluated."""
    low, high = function.bounds
    grid = [torch.linspace(low[i].item(), high[i].item(), 80, dtype=torch.float64) for i in range(2)]
    mesh = torch.stack(torch.meshgrid(*grid, indexing="xy"), -1)
    axis.contourf(*grid, -torch.log1p(-function(mesh)), 20, cmap="Blues")
    axis.scatter(*X.mT, c=range(len(X)), cmap="autumn", s=18, edgecolors="k", linewidths=0.4)
    axis.scatter(*torch.tensor(function._optimizers).mT, marker="x", c="k", label="optima")
    axis.set(title="Branin, evaluated by CVGPModel", xlabel="x0", ylabel="x1")
    axis.legend()


def main(folder: Path, seeds: int = 1, iterations: int = 4) -> None:
    """Optimize and draw."""
    warnings.simplefilter("ignore", OptimizationWarning)  # of searches that stopped at their limit
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, (title, kind) in zip(axes, FUNCTIONS.items(), strict=False):
        function = kind(negate=True, dtype=torch.float64)
        regrets = {}
        for name, make_model in MODELS.items():
            runs = [optimize(make_model, function, iterations, seed) for seed in range(seeds)]
            best = torch.stack([Y[:, 0].cummax(0).values for _, Y in runs])
            regrets[name] = function.optimal_value - best
            print(
                f"{title}, {name}: median regret {regrets[name][:, -1].median():.3g} after {best.shape[1]} observations"
            )
            if title == "Branin" and name == "CVGPModel":
                draw_places(axes[2], function, runs[0][0])
        draw_regret(axis, f"{title}, {seeds} seed{'s' * (seeds > 1)}", regrets)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "bayesian_optimization.png", dpi=100)
    print(f"picture: {folder / 'bayesian_optimization.png'}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0] if arguments else "demo"),
        int(arguments[1]) if len(arguments) > 1 else 1,
        int(arguments[2]) if len(arguments) > 2 else 4,
    )
