"""`stability`: how often the matrices that each system factorizes have no Cholesky factor, and what jitter mends it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgp.gp.kernels import evaluate, make_kernel
from experiments.figures import grid
from experiments.markdown import markdown_table, number
from experiments.paper.study import Plan, Results, Scope, Study, base_key
from experiments.store import Key, Outcome, Store

NOISES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
LENGTHSCALES = (0.1, 0.3, 1.0, 3.0, 10.0)
DUPLICATES = (0.0, 0.2)
"""Share of the inducing inputs that are copies of others."""
LADDER = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Jitter that is tried in turn, as a multiple of the mean diagonal."""
FAILED = 1.0
ROWS, INPUTS, SEEDS = 500, 2, 3

Matrix = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""From K_zz [M, M], K_zx [M, N], K_xx [N, N] and the noise to what is factorized."""


def _coreset_precision(K_zz: Tensor, K_zx: Tensor, noise: float) -> Tensor:
    """Site precisions w = beta / noise at equal weights."""
    return torch.full((len(K_zz),), K_zx.shape[1] / len(K_zz) / noise, dtype=K_zz.dtype)


def _b_matrix(K_zz: Tensor, K_zx: Tensor, K_xx: Tensor, noise: float) -> Tensor:
    root = _coreset_precision(K_zz, K_zx, noise).sqrt()
    return torch.eye(len(K_zz), dtype=K_zz.dtype) + root[:, None] * K_zz * root


def _whitened(K_zz: Tensor, K_zx: Tensor, K_xx: Tensor, noise: float) -> Tensor:
    """I + Phi, given a factor of K_zz, which is taken with the smallest jitter that it needs."""
    jitter = smallest_jitter(K_zz)
    shift = max(jitter, 0.0) * K_zz.diagonal().mean() * torch.eye(len(K_zz), dtype=K_zz.dtype)
    L, _ = torch.linalg.cholesky_ex(K_zz + shift)
    psi: Tensor = torch.linalg.solve_triangular(L, K_zx, upper=False)
    return torch.eye(len(K_zz), dtype=K_zz.dtype) + psi @ psi.mT / noise


MATRICES: dict[str, Matrix] = {
    "ExactGP: K + noise": lambda K_zz, K_zx, K_xx, noise: K_xx + noise * torch.eye(len(K_xx), dtype=K_xx.dtype),
    "SparseGP, SVGP, PPGPR: K_zz": lambda K_zz, K_zx, K_xx, noise: K_zz,
    "SparseGP: I + Phi, after K_zz": _whitened,
    "CVGP, the paper's form: K + noise / beta": lambda K_zz, K_zx, K_xx, noise: (
        K_zz + torch.diag(1.0 / _coreset_precision(K_zz, K_zx, noise))
    ),
    "CVGP, this library: B = I + R K R": _b_matrix,
}


def smallest_jitter(A: Tensor) -> float:
    """The first rung of the ladder with which the matrix has a factor; `FAILED` where none helps."""
    scale = A.diagonal().mean().abs()
    identity = torch.eye(len(A), dtype=A.dtype)
    for relative in LADDER:
        L, info = torch.linalg.cholesky_ex(A + relative * scale * identity)
        if info.item() == 0 and bool(torch.isfinite(L).all()):
            return relative
    return FAILED


def _keys(plan: Plan, store: Store) -> list[Key]:
    rows = 60 if plan.preset.name == "smoke" else ROWS
    common = {**base_key(plan), "dataset": "generated", "num_rows": rows}
    return [
        common | {"size": size, "matrix": name, "precision": precision}
        for size in plan.sizes
        for precision in ("float32", "float64")
        for name in MATRICES
    ]


def _run(key: Key) -> Outcome:
    make, size = MATRICES[str(key["matrix"])], int(key["size"] or 1)
    dtype = torch.float32 if key["precision"] == "float32" else torch.float64
    jitter = np.zeros((len(DUPLICATES), len(NOISES), len(LENGTHSCALES), SEEDS))
    for i, share in enumerate(DUPLICATES):
        for k, lengthscale in enumerate(LENGTHSCALES):
            for seed in range(SEEDS):
                K_zz, K_zx, K_xx = _matrices(int(key["num_rows"] or 1), size, lengthscale, share, seed, dtype)
                for j, noise in enumerate(NOISES):
                    jitter[i, j, k, seed] = smallest_jitter(make(K_zz, K_zx, K_xx, noise))
    return Outcome(
        {
            "broken": float(np.mean(jitter > 0.0)),
            "broken_distinct": float(np.mean(jitter[0] > 0.0)),
            "broken_duplicates": float(np.mean(jitter[1] > 0.0)),
            "largest_jitter": float(jitter.max()),
            "hopeless": float(np.mean(jitter == FAILED)),
        },
        {"jitter": jitter},
    )


def _matrices(
    num_rows: int, size: int, lengthscale: float, share: float, seed: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Kernel matrices of standard normal inputs, computed in the given precision; the inducing inputs are data."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, INPUTS))
    copies = round(share * num_rows)
    if copies:
        x[-copies:] = x[:copies]  # duplicates among the data, and so among the inducing inputs
    chosen = rng.permutation(num_rows - copies)[: size - round(share * size)]
    inducing = np.concatenate([x[chosen], x[chosen[: size - len(chosen)]]])
    kernel = make_kernel("rbf", INPUTS, ard=False).to(dtype)
    kernel.base_kernel.lengthscale = lengthscale
    kernel.outputscale = 1.0
    with torch.no_grad():
        points, z = torch.as_tensor(x).to(dtype), torch.as_tensor(inducing).to(dtype)
        return evaluate(kernel, z, z), evaluate(kernel, z, points), evaluate(kernel, points, points)


def _table(results: Results) -> str:
    columns = {
        "fails as it is": ("broken", ".1%"),
        "distinct inputs": ("broken_distinct", ".1%"),
        "20 % duplicates": ("broken_duplicates", ".1%"),
        "largest jitter needed": ("largest_jitter", ".0e"),
        "no jitter helps": ("hopeless", ".1%"),
    }
    rows = []
    for name in MATRICES:
        for precision in ("float32", "float64"):
            for r in results.where(matrix=name, precision=precision):
                cells = [number(r.number(metric), form) for metric, form in columns.values()]
                rows.append([name, precision, str(r.task["size"]), *cells])
    tried = len(DUPLICATES) * len(NOISES) * len(LENGTHSCALES) * SEEDS
    note = (
        f"{tried} settings each: noise {NOISES[-1]:g} to {NOISES[0]:g}, lengthscale {LENGTHSCALES[0]:g} to "
        f"{LENGTHSCALES[-1]:g} (inputs have a standard deviation of 1), with and without duplicate inputs, {SEEDS} "
        "seeds; no jitter beforehand. Jitter is relative to the mean diagonal."
    )
    table = markdown_table(["what is factorized", "precision", "M", *columns], rows, num_text=2)
    return "\n\n".join([table, note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    figure, axes = grid(2, len(MATRICES), size=(2.7, 2.6), sharex=True, sharey=True)
    image = None
    for row, precision in enumerate(("float32", "float64")):
        for column, name in enumerate(MATRICES):
            ax = axes[row][column]
            for record in results.where(matrix=name, precision=precision):
                broken = (results.arrays(record)["jitter"] > 0.0).mean(axis=(0, 3))  # [noise, lengthscale]
                image = ax.imshow(broken, cmap="Blues", vmin=0, vmax=1, aspect="auto")
                for (i, j), value in np.ndenumerate(broken):
                    ax.text(
                        j, i, f"{value:.0%}", ha="center", va="center", fontsize=6, color="w" if value > 0.5 else "k"
                    )
            ax.set_xticks(range(len(LENGTHSCALES)), [f"{v:g}" for v in LENGTHSCALES])
            ax.set_yticks(range(len(NOISES)), [f"{v:.0e}" for v in NOISES])
            if row == 0:
                ax.set_title(
                    name.replace(": ", ":\n").replace(", the", ",\nthe").replace(", this", ",\nthis"), fontsize=8
                )
            else:
                ax.set_xlabel("lengthscale")
        axes[row][0].set_ylabel(f"{precision}\nnoise variance")
    if image is not None:
        figure.colorbar(image, ax=axes, label="share that fails without jitter")
    return {"stability": figure}


STUDIES = (
    Study(
        "stability",
        "how often each system's factorization fails",
        Scope(("generated",), (), (100,), folds=1),
        Scope(("generated",), (), (20,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
    ),
)
