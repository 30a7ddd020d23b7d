"""Twenty weighted points instead of a thousand, and noise that depends on x.

The data are the paper's synthetic 3, a cosine whose noise grows with the cube of x. The paper's coreset learns where
its pseudo-points lie, what they say and how much they count; the exact GP sees every observation. Both have one noise
level for all x. The estimator `CVGPRegressor` with its defaults learns how the noise depends on x.

Run it with ``python examples/synthetic3.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import matplotlib
import torch

import cvgp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

M = 20


def synthetic3(num_data: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw x [N, 1] and y [N] as the paper's appendix defines them."""
    x = 2.0 * torch.rand(num_data, 1, dtype=torch.float64, generator=generator)
    noise = torch.randn(num_data, dtype=torch.float64, generator=generator)
    return x, torch.cos(2.0 * torch.pi * x[:, 0]) + noise * x[:, 0] ** 3


def exact_gp(model: cvgp.CVGP, x: torch.Tensor, y: torch.Tensor) -> cvgp.CVGP:
    """An exact GP is the coreset posterior whose points are the data, each with weight one."""
    everything = cvgp.Coreset(x, y, torch.ones(len(x)))
    return cvgp.CVGP(everything, model.kernel, likelihood=model.likelihood)


def draw(axis: plt.Axes, model: cvgp.CVGP, grid: torch.Tensor, title: str) -> None:
    """Mean and two standard deviations of f, with the noise as the outer band."""
    with torch.no_grad():
        prediction = model.posterior(grid)
        mean, f_sd = prediction.mean, prediction.stddev
        y_sd = (prediction.variance + model.noise).sqrt()
    t = grid[:, 0]
    axis.fill_between(t, mean - 2 * y_sd, mean + 2 * y_sd, color="tab:blue", alpha=0.12, lw=0, label="±2 sd of y")
    axis.fill_between(t, mean - 2 * f_sd, mean + 2 * f_sd, color="tab:blue", alpha=0.35, lw=0, label="±2 sd of f")
    axis.plot(t, torch.cos(2 * torch.pi * t), "k--", lw=1, label="truth")
    axis.plot(t, mean, color="tab:blue", label="mean")
    axis.set(title=title, xlabel="x", xlim=(t[0], t[-1]), ylim=(-7, 7))


def draw_regressor(axis: plt.Axes, regressor: cvgp.CVGPRegressor, grid: torch.Tensor) -> None:
    """The same bands, from the estimator."""
    mean, y_sd = regressor.predict(grid.numpy(), return_std=True)
    _, f_sd = regressor.predict(grid.numpy(), return_std=True, include_noise=False)
    t = grid[:, 0]
    axis.fill_between(t, mean - 2 * y_sd, mean + 2 * y_sd, color="tab:green", alpha=0.12, lw=0, label="±2 sd of y")
    axis.fill_between(t, mean - 2 * f_sd, mean + 2 * f_sd, color="tab:green", alpha=0.35, lw=0, label="±2 sd of f")
    axis.plot(t, torch.cos(2 * torch.pi * t), "k--", lw=1, label="truth")
    axis.plot(t, mean, color="tab:green", label="mean")
    axis.set(title=f"CVGPRegressor(): {regressor.noise_} noise", xlabel="x", xlim=(t[0], t[-1]))


def report_coverage(name: str, inside: torch.Tensor, x: torch.Tensor) -> None:
    """Print the share of new observations inside a band, in the quiet and in the noisy half of the data."""
    quiet = x[:, 0] < 1.0
    quiet_share, noisy_share = inside[quiet].double().mean(), inside[~quiet].double().mean()
    print(f"{name}: ±2 sd hold {quiet_share:.1%} of new observations at x < 1, and {noisy_share:.1%} beyond")


def main(folder: Path) -> None:
    """Fit, compare, draw."""
    generator = torch.Generator().manual_seed(0)
    x, y = synthetic3(1000, generator)
    model = cvgp.CVGP(cvgp.Coreset.from_data(x, y, M))
    cvgp.maximize(model, x, y)
    exact = exact_gp(model, x, y)

    with torch.no_grad():
        print(f"coreset of {M}: bound {model.elbo(x, y):.2f} nats, KL from the prior {model.kl():.2f}")
        print(f"exact GP, {len(x)} points: log p(y) {exact.elbo(x, y):.2f}")
    print(model.coreset.prune(1e-3).to_frame(["x"]).round(3).to_string(index=False))

    regressor = cvgp.CVGPRegressor(random_state=0).fit(x.numpy(), y.numpy())
    x_new, y_new = synthetic3(10_000, generator)
    with torch.no_grad():
        prediction = model.posterior(x_new)
        inside = (y_new - prediction.mean).abs() < 2 * (prediction.variance + model.noise).sqrt()
    report_coverage(f"coreset of {M}", inside, x_new)
    mean, sd = (torch.as_tensor(values) for values in regressor.predict(x_new.numpy(), return_std=True))
    report_coverage("CVGPRegressor()", (y_new - mean).abs() < 2 * sd, x_new)

    grid = torch.linspace(-0.5, 3.0, 400, dtype=torch.float64)[:, None]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.2), sharey=True, layout="constrained")
    for axis in (left, middle, right):
        axis.scatter(x[:, 0], y, s=3, color="0.6", lw=0, label="data")
    draw(left, model, grid, f"CVGP: {M} weighted pseudo-points")
    draw(middle, exact, grid, f"exact GP: {len(x)} points")
    draw_regressor(right, regressor, grid)
    coreset = model.coreset.prune(1e-3)
    points = left.scatter(coreset.X[:, 0], coreset.y, c=coreset.beta, s=45, cmap="viridis", ec="k", lw=0.6, zorder=3)
    figure.colorbar(points, ax=left, label="weight beta")
    right.legend(loc="lower left", fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "synthetic3.png", dpi=120)
    print(f"picture: {folder / 'synthetic3.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
