"""The tables of ``python -m benchmarks optimisation``."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.optimisation.bayesian import MODELS, PROBLEMS, Large, key_of, large_key
from cvgp.paper.store import Record, Store

__all__ = ["report"]


def report(names: Sequence[str], seeds: int, large: Large | None, store: Store) -> str:
    """Regret and seconds on the test functions, and seconds with many observations."""
    lines = [
        "| problem | model | seeds | median regret | quartiles | fit | acquisition |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        for model in MODELS:
            records = _finished(store, [key_of(name, model, seed) for seed in range(seeds)])
            if records:
                lines.append(_row(name, model, records))
    lines += ["", "Seconds on one processor per iteration, medians over seeds.", ""]
    if large is not None:
        lines += _large_rows(large, store)
    return "\n".join(lines)


def _finished(store: Store, keys: Sequence[dict[str, object]]) -> list[Record]:
    return [record for record in map(store.finished, keys) if record is not None]


def _values(records: Sequence[Record]) -> Callable[[str], list[float]]:
    return lambda metric: [float(record.metrics[metric]) for record in records]  # type: ignore[arg-type]


def _row(name: str, model: str, records: Sequence[Record]) -> str:
    values = _values(records)
    low, middle, high = np.quantile(values("regret"), [0.25, 0.5, 0.75])
    problem = f"{name}, {PROBLEMS[name].start} + {PROBLEMS[name].iterations} observations"
    seconds = [f"{np.median(values(metric)):.2f}" for metric in ("fit_seconds", "search_seconds")]
    cells = [problem, model, str(len(records)), f"{middle:.2g}", f"{low:.2g} to {high:.2g}", *seconds]
    return "| " + " | ".join(cells) + " |"


def _large_rows(large: Large, store: Store) -> list[str]:
    lines = [
        f"| {large.rows} noisy observations of hartmann6 | points | seconds until the first | seconds per iteration "
        f"| regret after {large.iterations} |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for model in MODELS:
        for record in _finished(store, [large_key(large, model)]):
            metrics = _values([record])
            cells = [f"{metrics(m)[0]:.1f}" for m in ("ready_seconds", "iteration_seconds")]
            numbers = [f"{metrics('points')[0]:.0f}", *cells, f"{metrics('regret')[0]:.2f}"]
            lines.append("| " + " | ".join([model, *numbers]) + " |")
    return lines
