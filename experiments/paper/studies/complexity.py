"""`complexity`: parameters, seconds and bytes per step against M and N: the paper's complexity table, measured."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.figures import STYLES, line_style, page_grid, shared_legend
from experiments.markdown import markdown_table, number
from experiments.paper.methods import Baseline, Start, plain_start
from experiments.paper.study import Plan, Results, Scope, Study, base_key, build, recipe_of
from experiments.store import Key, Outcome, Record, Store

Array = NDArray[np.float64]

INPUTS = 8
ROWS = (1000, 2000, 4000, 16_000, 64_000)
SMOKE_ROWS = (60, 120)
LARGEST_EXACT = 4000
FIXED_ROWS, FIXED_SIZE = 16_000, 200
STEPS, EVALUATIONS = 30, 6
COSTS = {"seconds": "time", "bytes": "memory", "parameters": "parameters"}
ORDERS = {
    "ExactGP": {"num_rows": (3, 2, 0)},
    "SparseGP": {"size": (2, 2, 1), "num_rows": (1, 1, 0)},
    "SVGP": {"size": (3, 2, 2), "num_rows": (0, 0, 0)},
    "PPGPR": {"size": (3, 2, 2), "num_rows": (0, 0, 0)},
    "CVGP": {"size": (3, 2, 1), "num_rows": (0, 0, 0)},
}
"""The paper's exponents of M and N, in the order of `COSTS`; it does not list PPGPR, which has those of SVGP."""


def _keys(plan: Plan, store: Store) -> list[Key]:
    all_rows = SMOKE_ROWS if plan.preset.name == "smoke" else ROWS
    rows, size = (FIXED_ROWS, FIXED_SIZE) if plan.preset.name != "smoke" else (all_rows[-1], plan.sizes[-1])
    places = dict.fromkeys([*((rows, m) for m in plan.sizes), *((n, size) for n in all_rows)])
    exact = [n for n in all_rows if n <= LARGEST_EXACT]
    common = {**base_key(plan), "dataset": "generated", "learning_rate": 0.01}
    keys = [common | {"method": method, "size": m, "num_rows": n} for n, m in places for method in plan.methods]
    return [key for key in keys if key["method"] != "ExactGP" or (key["size"] == size and key["num_rows"] in exact)]


def _run(key: Key) -> Outcome:
    x, y = _data(int(key["num_rows"] or 1))
    start = plain_start(x, y, int(key["size"] or 1))
    recipe = replace(
        recipe_of(key), steps=STEPS, epochs=None, evaluations=EVALUATIONS, patience=None, full_batch="lbfgs"
    )
    times: list[float] = []
    model = build(key, recipe=recipe)
    model.fit(x, y, start=start, on_step=lambda step: times.append(time.perf_counter()))
    counted = build(key, recipe=replace(recipe, steps=3, evaluations=3))
    return Outcome(
        {
            "parameters": float(sum(p.numel() for p in model.parameters())),
            "seconds": float(np.median(np.diff(times)[1:])),
            "bytes": float(peak_bytes(counted, x, y, start)),
        }
    )


def _data(num_rows: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, INPUTS))
    return x, np.sin(x).sum(axis=1) / np.sqrt(INPUTS) + 0.3 * rng.standard_normal(num_rows)


def peak_bytes(model: Baseline, x: Array, y: Array, start: Start) -> int:
    """The most memory that the last step of a short fit holds beyond what was there before it, by torch's own count."""
    from torch.profiler import ProfilerActivity, profile

    recorder = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    last = (model.recipe.steps if model.stochastic else model.recipe.evaluations) or 1
    running = [False]

    def watch(step: int) -> None:
        if step == last - 1:
            recorder.start()
            running[0] = True
        elif running[0]:
            recorder.stop()
            running[0] = False

    model.fit(x, y, start=start, on_step=watch)
    if running[0]:
        recorder.stop()
    profiler: Any = recorder.profiler  # torch has no public way to the single allocations
    changes = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(changes, key=lambda event: event.start_ns())])
    return int(held.max()) if len(held) else 0


def series(results: Results, method: str, varied: str) -> list[Record]:
    """The measurements of a system along M (`size`) or N (`num_rows`), with the other fixed."""
    return sorted(results.where(method=method, **_fixed(results, varied)), key=lambda r: int(r.task[varied] or 0))


def _fixed(results: Results, varied: str) -> dict[str, Any]:
    """The value of the other one that most measurements share."""
    other = "num_rows" if varied == "size" else "size"
    return {other: max(sorted(results.values(other)), key=lambda value: len(results.where(**{other: value})))}


def exponent(records: Sequence[Record], varied: str, cost: str) -> float:
    """Slope of log cost over the larger half of log sizes, at least two of them: overhead rules the smaller ones."""
    kept = records[min(len(records) // 2, len(records) - 2) :]
    if len(kept) < 2:
        return float("nan")
    sizes = np.log([float(r.task[varied] or 1) for r in kept])
    return float(np.polyfit(sizes, np.log([r.number(cost) for r in kept]), 1)[0])


def _exponent_table(results: Results) -> str:
    rows = []
    for method, orders in ORDERS.items():
        for varied, theory in orders.items():
            found = series(results, method, varied)
            fitted = [exponent(found, varied, cost) for cost in COSTS] if len(found) > 1 else []
            pairs = [
                text for pair in zip(fitted, theory, strict=False) for text in (number(pair[0], ".2f"), str(pair[1]))
            ]
            if pairs:
                rows.append([method, "M" if varied == "size" else "N", *pairs])
    header = ["system", "along", *(title for cost in COSTS.values() for title in (cost, "paper"))]
    return markdown_table(header, rows, num_text=2)


def _table(results: Results) -> str:
    header = ["system", "M", "N", "parameters", "milliseconds per step", "MB per step"]
    records = sorted(
        results.records, key=lambda r: (str(r.task["method"]), int(r.task["size"] or 0), int(r.task["num_rows"] or 0))
    )
    rows = [
        [
            str(r.task["method"]),
            str(r.task["size"]),
            str(r.task["num_rows"]),
            number(r.number("parameters"), ".0f"),
            number(1e3 * r.number("seconds"), ".2f"),
            number(1e-6 * r.number("bytes"), ".1f"),
        ]
        for r in records
    ]
    note = (
        f"{INPUTS} inputs; SVGP, PPGPR and CVGP take batches of {results.preset.recipe.batch_size}, SparseGP "
        "and ExactGP a pass over all rows with its gradient. Bytes are what torch allocates at the peak of a step."
    )
    fits = (
        "Exponents of M and N, fitted to the larger half of the sizes, since overhead dominates the smaller ones, "
        "beside those of the paper. Its table does not list PPGPR, which has SVGP's, nor ExactGP, which has those of "
        "the paper's introduction. A step on B rows takes O(B M^2 + M^3), so its exponent of M is nearer to 2 than to "
        "3 while M is below B. SparseGP stores matrices of N x M numbers, so its memory grows like M, not M^2."
    )
    parts = [fits, _exponent_table(results), "The measurements:", markdown_table(header, rows, num_text=1), note]
    return "\n\n".join([*parts, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    titles = {"parameters": "parameters", "seconds": "seconds per step", "bytes": "bytes per step"}
    figure, axes = page_grid(2, 3, 1.7)
    for row, varied in enumerate(("size", "num_rows")):
        (fixed,) = _fixed(results, varied).values()
        for ax, (name, title) in zip(axes[row], titles.items(), strict=True):
            for method in [m for m in STYLES if m in results.values("method")]:
                found = series(results, method, varied)
                if len(found) > 1:  # ExactGP has no M
                    ax.plot(
                        [r.task[varied] for r in found],
                        [r.number(name) for r in found],
                        label=method,
                        **line_style(method),
                    )
            what = f"M, at N = {fixed}" if varied == "size" else f"N, at M = {fixed}"
            ax.set(xscale="log", yscale="log", xlabel=what, ylabel=title)
            places = sorted({r.task[varied] for r in results.where(**_fixed(results, varied))})
            ax.set_xticks(places, labels=[f"{p // 1000}k" if p >= 1000 else str(p) for p in places])
            ax.set_xticks([], minor=True)
            ax.grid(alpha=0.3)
    shared_legend(figure, list(axes.flat), columns=5)
    return {"complexity": figure}


METHODS = ("ExactGP", "SparseGP", "SVGP", "PPGPR", "CVGP")
STUDIES = (
    Study(
        "complexity",
        "parameters, seconds and bytes per step against M and N",
        Scope(("generated",), METHODS, (50, 100, 200, 400, 800), folds=1),
        Scope(("generated",), METHODS, (4, 8), folds=1),
        _keys,
        _run,
        _table,
        _figures,
        "Cost of a step against M (top) and N (bottom), both axes logarithmic: the slope of a line is the exponent. "
        "Stochastic systems should be flat in N, and the parameters of CVGP should rise less steeply than SVGP's.",
    ),
)
