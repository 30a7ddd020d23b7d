"""`complexity`: parameters, seconds and bytes per step against M and N: the paper's complexity table, measured."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.figures import grid, line_style, shared_legend
from experiments.markdown import markdown_table, number
from experiments.paper.methods import Baseline, Start, plain_start
from experiments.paper.study import Plan, Results, Scope, Study, base_key, build, recipe_of
from experiments.store import Key, Outcome, Store

Array = NDArray[np.float64]

INPUTS = 8
ROWS = (1000, 2000, 4000, 16_000, 64_000)
SMOKE_ROWS = (60, 120)
LARGEST_EXACT = 4000
FIXED_ROWS, FIXED_SIZE = 16_000, 200
STEPS, EVALUATIONS = 30, 6


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
        f"{INPUTS} inputs; SVGP and CVGP take batches of {results.preset.recipe.batch_size}, SparseGP a pass over "
        "all rows with its gradient. Bytes are what torch allocates at the peak of a step."
    )
    return "\n\n".join([markdown_table(header, rows, num_text=1), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    titles = {"parameters": "parameters", "seconds": "seconds per step", "bytes": "bytes per step"}
    sizes, all_rows = (sorted(results.values(name)) for name in ("size", "num_rows"))
    fixed_rows = max(all_rows, key=lambda n: len(results.where(num_rows=n)))
    fixed_size = max(sizes, key=lambda m: len(results.where(size=m)))
    figure, axes = grid(2, 3, size=(3.4, 2.6))
    for row, (varied, fixed) in enumerate([("size", {"num_rows": fixed_rows}), ("num_rows", {"size": fixed_size})]):
        for column, (name, title) in enumerate(titles.items()):
            ax = axes[row][column]
            for method in results.values("method"):
                found = sorted(results.where(method=method, **fixed), key=lambda r: int(r.task[varied] or 0))
                values = [r.number(name) for r in found]
                ax.plot([r.task[varied] for r in found], values, label=method, **line_style(method))
            what = f"M, at N = {fixed_rows}" if varied == "size" else f"N, at M = {fixed_size}"
            ax.set(xscale="log", yscale="log", xlabel=what, ylabel=title)
            places = sizes if varied == "size" else all_rows
            ax.set_xticks(places, labels=[str(place) for place in places])
            ax.set_xticks([], minor=True)
            ax.grid(alpha=0.3, which="both")
    shared_legend(figure, list(axes.flat))
    return {"complexity": figure}


METHODS = ("ExactGP", "SparseGP", "SVGP", "PPGPR", "CVGP")
STUDIES = (
    Study(
        "complexity",
        "parameters, seconds and bytes per step against M and N",
        Scope(("generated",), METHODS, (50, 100, 200, 400), folds=1),
        Scope(("generated",), METHODS, (4, 8), folds=1),
        _keys,
        _run,
        _table,
        _figures,
    ),
)
