"""Optimization that begins with many observations: seconds per iteration of a coreset and of an exact GP.

Noisy observations of Hartmann-6 are there at the start. The coreset is learned from them once. Each iteration then
optimizes an acquisition function, observes and conditions in closed form. SingleTaskGP conditions too. It gets the
hyperparameters of the coreset model, so that its own fit is not counted.

Run it with ``python examples/many_observations.py [FOLDER] [ROWS] [ITERATIONS]``; the picture lands in FOLDER (``demo``
by default). The default is a few hundred rows. With 5000 the exact GP takes minutes.
"""

import sys
import time
import warnings
from pathlib import Path

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.figure import Figure

from cvgp.adapters.botorch import CVGPModel

NOISE = 0.1


def coreset_model(X: torch.Tensor, Y: torch.Tensor) -> CVGPModel:
    """A coreset that was learned from all rows."""
    names = [f"x{i}" for i in range(X.shape[-1])]
    data = SupervisedDataset(X, Y, feature_names=names, outcome_names=["y"])
    model = CVGPModel(**CVGPModel.construct_inputs(data))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def exact_model(X: torch.Tensor, Y: torch.Tensor, learned: CVGPModel) -> SingleTaskGP:
    """An exact GP of all rows, with hyperparameters that are known already."""
    modules = {"covar_module": learned.covar_module, "mean_module": learned.mean_module}
    model = SingleTaskGP(X, Y, likelihood=learned.likelihood, input_transform=Normalize(d=6), **modules).eval()
    model.posterior(X[:1])  # factorizes
    return model


def iterate(model: Model, X: torch.Tensor, Y: torch.Tensor, iterations: int) -> tuple[list[float], list[float]]:
    """Seconds on the processor and the true value of what was chosen, by iteration."""
    function = Hartmann(negate=True, dtype=torch.float64)
    torch.manual_seed(1)
    seconds, values = [], []
    for _ in range(iterations):
        begin = time.process_time()
        improvement = qLogNoisyExpectedImprovement(model, X_baseline=X[Y[:, 0].topk(20).indices])
        x, _value = optimize_acqf(improvement, function.bounds, q=1, num_restarts=2, raw_samples=32)
        y = function(x)[:, None] + NOISE * torch.randn(1, 1, dtype=torch.float64)
        model = model.condition_on_observations(x, y)
        model.posterior(x)
        seconds.append(time.process_time() - begin)
        values.append(function(x).item())
        X, Y = torch.cat([X, x]), torch.cat([Y, y])
    return seconds, values


def main(folder: Path, num_rows: int = 300, iterations: int = 3) -> None:
    """Optimize with both and draw."""
    warnings.simplefilter("ignore", BotorchWarning)  # of searches that stopped at their limit, and of known scales
    torch.manual_seed(0)
    function = Hartmann(negate=True, dtype=torch.float64)
    X = torch.rand(num_rows, 6, dtype=torch.float64)
    Y = function(X)[:, None] + NOISE * torch.randn(num_rows, 1, dtype=torch.float64)
    begin = time.process_time()
    coreset = coreset_model(X, Y)
    print(f"learned {len(coreset.X_c)} points from {num_rows} rows in {time.process_time() - begin:.1f} s")
    models = {"CVGPModel": coreset, "SingleTaskGP": exact_model(X, Y, coreset)}

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    of_seconds, of_values = figure.subplots(1, 2)
    for name, model in models.items():
        seconds, values = iterate(model, X, Y, iterations)
        print(f"{name}: {sorted(seconds)[iterations // 2]:.2f} s per iteration, best value {max(values):.3f}")
        steps = range(1, iterations + 1)
        of_seconds.plot(steps, seconds, "o-", label=name)
        of_values.plot(steps, values, "o-", label=name)
    of_seconds.set(title=f"{num_rows} observations at the start", xlabel="iteration", ylabel="seconds", yscale="log")
    of_values.axhline(function.optimal_value, color="k", lw=0.8, ls=":", label="optimum")
    of_values.axhline(function(X).max(), color="tab:gray", lw=0.8, label="best of the start")
    of_values.set(title="what was chosen", xlabel="iteration", ylabel="value without noise")
    of_seconds.legend()
    of_values.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "many_observations.png", dpi=100)
    print(f"picture: {folder / 'many_observations.png'}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0] if arguments else "demo"),
        int(arguments[1]) if len(arguments) > 1 else 300,
        int(arguments[2]) if len(arguments) > 2 else 3,
    )
