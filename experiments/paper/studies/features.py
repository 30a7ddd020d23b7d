"""`features`: the weight-space view as interpretation: which inputs matter, and how sure the posterior is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, RFFKernel, ScaleKernel
from numpy.typing import NDArray

from cvgp.gp.kernels import make_kernel
from experiments.figures import STYLES, page_grid, shared_legend
from experiments.markdown import markdown_table, number
from experiments.paper.methods import CVGP
from experiments.paper.study import (
    VALIDATION,
    Plan,
    Results,
    Scope,
    Study,
    chosen_records,
    product_keys,
    recipe_of,
    rows_of,
    split_of,
    with_rates,
)
from experiments.paper.weight_space import FeatureMap, WeightPosterior, feature_map, weight_posterior
from experiments.scores import score
from experiments.store import Key, Outcome, Record, Store

Array = NDArray[np.float64]

WINE_INPUTS = (
    "fixed acidity",
    "volatile acidity",
    "citric acid",
    "residual sugar",
    "chlorides",
    "free sulfur dioxide",
    "total sulfur dioxide",
    "density",
    "pH",
    "sulfates",
    "quality",
)
"""By the statistics of its columns, the collection's wine file predicts alcohol, and quality is an input."""

COEFFICIENTS = (2.0, -1.0, 0.5, 0.0, 0.0, 0.0)
ROWS, NOISE_SD = 1000, 0.5
NUM_FREQUENCIES, DRAWS, SLOPE_ROWS = 100, 200, 200


class Problem(NamedTuple):
    """Standardized rows, names, and what the answer should be where it is known."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    validation: tuple[Array, Array]
    names: tuple[str, ...]
    truth: Array  # [D], NaN where unknown: coefficients, or root mean square slopes


GENERATED = {
    "generated-linear": "y = 2 x0 - x1 + x2 / 2 + noise, three inputs without effect",
    "generated-waves": "y = sin(2 x0) + x1^2 / 2 + noise, four inputs without effect",
}


def _keys(plan: Plan, store: Store) -> list[Key]:
    kernels = {"generated-linear": ("linear",), "generated-waves": ("random features",)}
    keys = [
        key | {"kernel": kernel}
        for key in product_keys(plan)
        for kernel in kernels.get(str(key["dataset"]), ("linear", "random features"))
    ]
    return with_rates(plan, store, keys)


def _run(key: Key) -> Outcome:
    dataset, seed = str(key["dataset"]), int(key["fold"] or 0)
    problem = _generate(dataset, rows_of(key) or ROWS, seed) if dataset in GENERATED else _real(key)
    num_dims = problem.x.shape[1]
    linear = key["kernel"] == "linear"
    kernel = make_kernel("linear", num_dims, ard=False) if linear else _random_kernel(num_dims, seed)
    model = CVGP(int(key["size"] or 1), kernel=kernel, recipe=recipe_of(key), seed=seed)
    model.fit(problem.x, problem.y, validation=problem.validation)
    features = feature_map(model.prior_kernel, num_dims)
    with torch.no_grad():
        posterior = weight_posterior(features(model.model.X_c), model.model.site_precision, model.model.y_c)
    if linear:
        mean = (features.scale * posterior.mean).detach().numpy()
        sd = (features.scale * posterior.covariance.diagonal().clamp_min(0.0).sqrt()).detach().numpy()
    else:
        mean, sd = _slopes(features, posterior, problem.x_test[:SLOPE_ROWS], seed)
    known = ~np.isnan(problem.truth)
    return Outcome(
        {
            **score(model, problem.x_test, problem.y_test),
            VALIDATION: score(model, *problem.validation)["log_likelihood"],
            "worst_error": float(np.abs(mean - problem.truth)[known].max()) if known.any() else None,
        },
        {"names": np.array(problem.names), "mean": mean, "sd": sd, "truth": problem.truth},
    )


def _random_kernel(num_dims: int, seed: int) -> Kernel:
    """Random Fourier features with a lengthscale for each input."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # GPyTorch draws the frequencies from torch's own generator
        base = RFFKernel(NUM_FREQUENCIES, num_dims=num_dims, ard_num_dims=num_dims)
    base.lengthscale = float(np.sqrt(num_dims))
    return ScaleKernel(base).double()


def _slopes(features: FeatureMap, posterior: WeightPosterior, x: Array, seed: int) -> tuple[Array, Array]:
    """Root mean square slope of f along each input over rows x, and its spread under q(v): both [D]."""
    points = torch.as_tensor(x)
    jacobian = torch.func.vmap(torch.func.jacfwd(lambda row: features(row[None])[0]))(points).detach()  # [n, F, D]
    generator = torch.Generator().manual_seed(seed)
    values, vectors = torch.linalg.eigh(posterior.covariance)
    root = vectors * values.clamp_min(0.0).sqrt()
    noise = torch.randn(DRAWS, len(values), generator=generator, dtype=torch.float64)
    draws = posterior.mean + noise @ root.mT  # [S, F]
    slopes = torch.einsum("sf,nfd->snd", draws, jacobian).square().mean(1).sqrt()  # [S, D]
    return slopes.mean(0).numpy(), slopes.std(0).numpy()


def _generate(dataset: str, rows: int, seed: int) -> Problem:
    rng = np.random.default_rng([seed, 3])
    x, y = _draw(dataset, 2 * rows, rng)
    center, spread = y[:rows].mean(), y[:rows].std()
    y = (y - center) / spread
    x_validation, y_validation = _draw(dataset, rows, rng)
    slope = np.zeros_like(x)
    slope[:, 0], slope[:, 1] = 2 * np.cos(2 * x[:, 0]), x[:, 1]  # of the waves
    truth = np.array(COEFFICIENTS) / spread if dataset == "generated-linear" else np.sqrt((slope**2).mean(0)) / spread
    names = tuple(f"x{d}" for d in range(x.shape[1]))
    validation = x_validation, (y_validation - center) / spread
    return Problem(x[:rows], y[:rows], x[rows:], y[rows:], validation, names, truth)


def _draw(dataset: str, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.standard_normal((count, len(COEFFICIENTS)))
    linear = dataset == "generated-linear"
    f = x @ np.array(COEFFICIENTS) if linear else np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2
    return x, f + NOISE_SD * rng.standard_normal(count)


def _real(key: Key) -> Problem:
    split = split_of(key)
    num_dims = split.x.shape[1]
    names = WINE_INPUTS if key["dataset"] == "wine" else tuple(f"x{d}" for d in range(num_dims))
    return Problem(split.x, split.y, split.x_test, split.y_test, split.validation, names, np.full(num_dims, np.nan))


def _shown(results: Results) -> list[Record]:
    """The first fold of each problem and kernel."""
    pairs = dict.fromkeys((r.task["dataset"], r.task["kernel"]) for r in results.records)
    return [chosen_records(results, dataset=dataset, kernel=kernel)[0] for dataset, kernel in pairs]


def _table(results: Results) -> str:
    rows = []
    for r in _shown(results):
        arrays = results.arrays(r)
        for i in np.argsort(-np.abs(arrays["mean"]) / arrays["sd"]):
            mean, sd, truth = (float(arrays[name][i]) for name in ("mean", "sd", "truth"))
            what = [str(r.task["dataset"]), str(r.task["kernel"]), str(arrays["names"][i])]
            rows.append([*what, number(mean, "+.3f"), number(sd), number(abs(mean) / sd, ".1f"), number(truth, "+.3f")])
    header = ["set", "kernel", "input", "effect", "sd", "effect / sd", "true effect"]
    notes = "; ".join(f"`{name}`: {text}" for name, text in GENERATED.items())
    about = (
        "Linear kernel: the coefficient of the standardized input. Random features: the root mean square slope of f "
        f"along the input, which is never negative and not zero even for an input without effect. {notes}."
    )
    return "\n\n".join([markdown_table(header, rows, num_text=3), about, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    records = _shown(results)
    figure, axes = page_grid((len(records) + 1) // 2, 2, 2.0)
    for ax in axes.flat[len(records) :]:
        ax.set_axis_off()
    for ax, r in zip(axes.flat, records, strict=False):
        arrays = results.arrays(r)
        y = np.arange(len(arrays["names"]))[::-1]
        style = {"fmt": "o", "color": STYLES["CVGP"].color, "ms": 4, "capsize": 2, "label": "posterior, ±2 sd"}
        ax.errorbar(arrays["mean"], y, xerr=2 * arrays["sd"], **style)
        if not np.isnan(arrays["truth"]).all():
            ax.scatter(arrays["truth"], y, s=20, marker="x", color="#D55E00", zorder=3, label="truth, where known")
        ax.axvline(0.0, color="0.6", lw=0.8)
        ax.set_yticks(y, arrays["names"])
        what = "coefficient" if r.task["kernel"] == "linear" else "root mean square slope"
        ax.set(title=f"{r.task['dataset']}, {r.task['kernel']}", xlabel=what)
    shared_legend(figure, list(axes.flat))
    return {"features": figure}


STUDIES = (
    Study(
        "features",
        "which inputs matter, in weight space",
        Scope((*GENERATED, "wine"), ("CVGP",), (50,), folds=1),
        Scope(tuple(GENERATED), ("CVGP",), (12,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
        "Effect of each input with two posterior standard deviations. Where the truth is known, it should lie within "
        "the bars; a slope is never negative, so an input without effect lies near zero but not at it.",
    ),
)
