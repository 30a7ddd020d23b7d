"""An optimum that moves: the model conditions on each observation as it comes, in closed form and without a fit.

The best x drifts with time. A model of x and time is fitted once, to observations of the first ten units of time. From
then on it sees one observation per step. Each step asks for the x that is best now, by an upper bound on the posterior
at the present time, observes there and conditions. A model that is not told what comes loses the track.

Run it with ``python examples/moving_target.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from matplotlib.figure import Figure

from cvgp.adapters.botorch import CVGPModel

NOISE, BEFORE, STEPS, LENGTH = 0.1, 10.0, 120, 0.25
GRID = torch.linspace(0, 1, 201, dtype=torch.float64)


def best_place(t: torch.Tensor) -> torch.Tensor:
    """Where the optimum is at a time."""
    return 0.5 + 0.35 * torch.sin(0.4 * t)


def value(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The function, whose optimum is one."""
    return torch.exp(-0.5 * ((x - best_place(t)) / 0.12) ** 2) + 0.2 * torch.cos(7 * x)


def first_model() -> CVGPModel:
    """A model of what was seen before."""
    x, t = torch.rand(300, dtype=torch.float64), BEFORE * torch.rand(300, dtype=torch.float64)
    y = value(x, t) + NOISE * torch.randn(300, dtype=torch.float64)
    names = {"feature_names": ["x", "t"], "outcome_names": ["y"]}
    data = SupervisedDataset(torch.stack([x, t], -1), y[:, None], **names)
    model = CVGPModel(**CVGPModel.construct_inputs(data))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


@torch.no_grad()
def follow(model: CVGPModel, *, conditions: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Times, what was chosen at each, and what was missing to the optimum."""
    times = BEFORE + LENGTH * torch.arange(1, STEPS + 1, dtype=torch.float64)
    chosen, missing = [], []
    for t in times:
        posterior = model.posterior(torch.stack([GRID, t.expand_as(GRID)], -1))
        best = (posterior.mean + 2.0 * posterior.variance.sqrt()).argmax()
        x = GRID[best]
        chosen.append(x)
        missing.append(value(GRID, t).max() - value(x, t))
        if conditions:
            y = value(x, t) + NOISE * torch.randn((), dtype=torch.float64)
            model = model.condition_on_observations(torch.stack([x, t])[None], y.reshape(1, 1))
    return times, torch.stack(chosen), torch.stack(missing)


def main(folder: Path) -> None:
    """Follow the optimum and draw."""
    torch.manual_seed(0)
    model = first_model()
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    track, regret = figure.subplots(1, 2)
    time = torch.linspace(BEFORE, BEFORE + STEPS * LENGTH, 200, dtype=torch.float64)
    track.contourf(time, GRID, value(GRID[:, None], time), 20, cmap="Blues")
    for name, conditions, style in (("conditioned on what comes", True, "o"), ("as it was", False, "x")):
        times, chosen, missing = follow(model, conditions=conditions)
        track.plot(times, chosen, style, ms=3, label=name)
        regret.plot(times, missing.cumsum(0), label=name)
        print(f"{name}: {missing.mean():.3f} is missing per step")
    track.set(title="where the optimum is, and what was chosen", xlabel="time", ylabel="x")
    regret.set(title="missing to the optimum, summed up", xlabel="time")
    track.legend(loc="upper center", ncols=2, fontsize="small")
    regret.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "moving_target.png", dpi=100)
    print(f"picture: {folder / 'moving_target.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
