"""`optimum`: the bound of CVGP with a diagonal and with a full Sigma, against SparseGP's."""

import math
from collections.abc import Mapping
from typing import Any

import torch

import cvgp
from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal
from cvgp.gp.linalg import inverse_lower, safe_cholesky
from cvgp.objectives import full_bound, statistics
from experiments.figures import page_grid, shared_legend
from experiments.markdown import markdown_table, mean_and_error
from experiments.paper.methods import ExactGP, SparseGP, Start
from experiments.paper.methods.base import CHUNK_ROWS
from experiments.paper.study import (
    Plan,
    Results,
    Scope,
    Study,
    build,
    cells,
    exact_is_possible,
    product_keys,
    recipe_of,
    rows_of,
    split_of,
)
from experiments.store import Key, Outcome, Store

SMALLEST = 1e-8
"""Differences below this are rounding, and are drawn at it."""


def _keys(plan: Plan, store: Store) -> list[Key]:
    return [key for key in product_keys(plan) if key["method"] == "SparseGP"]


def _run(key: Key) -> Outcome:
    split = split_of(key)
    sparse = build(key)
    assert isinstance(sparse, SparseGP)
    sparse.fit(split.x, split.y, validation=split.validation)
    learned = sparse.model
    # The same kernel, noise and inputs; weights start as equal shares of the data.
    share = torch.full((len(learned.X_c),), len(split.y) / len(learned.X_c), dtype=torch.float64)
    start = cvgp.Coreset(learned.X_c.detach(), torch.zeros_like(share), share)
    model = cvgp.CVGP(start, learned.kernel, likelihood=Start(learned.kernel, sparse.noise, start).fresh_likelihood())
    data, n = sparse.source, len(split.y)
    equal = _best_outputs(model, sparse)
    model.adopt_optimum(statistics(model, data.chunks(CHUNK_ROWS)))
    diagonal_bound = full_bound(model, data.chunks(CHUNK_ROWS), n)
    exact = None
    if exact_is_possible(str(key["dataset"]), rows_of(key)):
        prior = Start(learned.kernel, sparse.noise, start)
        same = ExactGP(recipe=recipe_of(key), learn_prior=False)
        exact = same.fit(split.x, split.y, validation=split.validation, start=prior).bound() / n
    return Outcome(
        {
            "sparse": sparse.bound() / n,
            "full": _full_matrix_bound(sparse) / n,
            "diagonal": diagonal_bound / n,
            "equal": equal / n,
            "exact": exact,
        }
    )


@torch.no_grad()
def _best_outputs(model: cvgp.CVGP, sparse: SparseGP) -> float:
    """The bound with the best pseudo-outputs for equal weights: y_c = (K + 1/w) alpha."""
    data, K, w = sparse.source, model.jittered_covariance(), model.site_precision
    alpha = bounds.solve_titsias(statistics(model, data.chunks(CHUNK_ROWS)), bounds.whitener(K)).alpha
    best = model.with_coreset(model.coreset)
    best.set_sites(K @ alpha + alpha / w[:, None], w)
    return full_bound(best, data.chunks(CHUNK_ROWS), data.num_rows)


@torch.no_grad()
def _full_matrix_bound(sparse: SparseGP) -> float:
    """E_q[log p(y | f)] - KL for the q that Sigma* and y_c* give, term by term and not by Titsias' formula."""
    model, data = sparse.model, sparse.source
    K = model.jittered_covariance()
    L = safe_cholesky(K, "K_cc")
    L_inv = inverse_lower(L)
    found = statistics(model, data.chunks(CHUNK_ROWS))
    S = torch.linalg.inv(found.Phi + torch.eye(len(K), dtype=torch.float64))  # of the whitened values
    mean = S @ found.b[:, 0]
    noise, expected = sparse.noise, 0.0
    for batch in data.chunks(CHUNK_ROWS):
        psi = L_inv @ cross_matrix(model.kernel, model.X_c, batch.x)  # [M, B]
        f_mean = psi.mT @ mean
        f_var = diagonal(model.kernel, batch.x) - psi.square().sum(0) + (psi * (S @ psi)).sum(0)
        squares = (batch.y - f_mean).square() + f_var
        expected -= 0.5 * (squares / noise + math.log(2.0 * math.pi * noise)).sum().item()
    kl = 0.5 * (S.trace() + mean.square().sum() - len(mean) - torch.linalg.slogdet(S).logabsdet)
    return float(expected - kl.item())


def _table(results: Results) -> str:
    columns = {
        "SparseGP": ("sparse", ".4f"),
        "full Sigma": ("full", ".4f"),
        "diagonal Sigma": ("diagonal", ".4f"),
        "equal weights": ("equal", ".4f"),
        "log p(y)": ("exact", ".4f"),
    }
    rows = []
    for dataset in results.values("dataset"):
        for size in results.values("size"):
            found = results.where(dataset=dataset, size=size)
            if found:
                loss = mean_and_error([r.number("sparse") - r.number("diagonal") for r in found], ".5f")
                rows.append([dataset, str(size), *cells(found, columns), loss])
    header = ["set", "M", *columns, "SparseGP minus diagonal"]
    note = (
        "Nats per point, all with the kernel, noise and inputs that SparseGP learned. Full Sigma: the bound of the "
        "coreset posterior with the paper's Sigma*, term by term. Diagonal: the best weights and pseudo-outputs. "
        "Equal weights: N / M each, with the best pseudo-outputs for them."
    )
    return "\n\n".join([markdown_table(header, rows, num_text=1), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    datasets = results.values("dataset")
    figure, axes = page_grid(1, 1, 2.6)
    ax = axes[0][0]
    bars = {
        "full Sigma": ("full", "#009E73", None),
        "diagonal Sigma": ("diagonal", "#0072B2", "//"),
        "equal weights": ("equal", "#E69F00", ".."),
    }
    places = [(d, m) for d in datasets for m in sorted(results.values("size"))]
    for offset, (title, (name, color, hatch)) in enumerate(bars.items()):
        heights = []
        for dataset, size in places:
            found = results.where(dataset=dataset, size=size)
            losses = [max(r.number("sparse") - r.number(name), SMALLEST) for r in found]
            heights.append(sum(losses) / len(losses) if losses else float("nan"))
        x = [i + 0.27 * (offset - 1) for i in range(len(places))]
        ax.bar(x, heights, width=0.25, color=color, hatch=hatch, edgecolor="white", label=title)
    ax.set_xticks(range(len(places)), [f"{d}\nM = {m}" for d, m in places])
    ax.set(yscale="log", ylabel="below SparseGP's bound,\nnats per point", ylim=(SMALLEST / 2, None))
    ax.grid(axis="y", alpha=0.3)
    shared_legend(figure, [ax])
    return {"optimum": figure}


STUDIES = (
    Study(
        "optimum",
        "CVGP's bound with a diagonal and a full Sigma, against SparseGP's",
        Scope(("wine", "skillcraft", "parkinsons", "bike"), ("SparseGP",), (50, 200), folds=1),
        Scope(("synthetic5",), ("SparseGP",), (8,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
        "How far bounds lie below SparseGP's, on a logarithmic axis whose bottom is rounding. A full Sigma should lose "
        "nothing; the bars of a diagonal one show the cost of CVGP's weights.",
    ),
)
