"""``python -m benchmarks seconds``: how long the default fit takes, by rows and columns, with what it learned."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner import Task
from cvgp import CVGPRegressor
from cvgp.paper.store import Outcome, Record, Store

__all__ = ["SIZES", "Size", "report", "tasks"]

Array = NDArray[np.float64]

NOISE = 0.3
NUM_TEST = 5000
BEST = -0.5 * math.log(2.0 * math.pi * math.e * NOISE**2)
"""The mean log-likelihood of one who knows the function and the noise."""


class Size(NamedTuple):
    """Of a table, and the seconds that its fit may take."""

    rows: int
    columns: int
    most_seconds: float


SIZES = (
    Size(500, 5, 10.0),
    Size(2000, 10, 10.0),
    Size(8000, 12, 10.0),
    Size(20_000, 10, 10.0),
    Size(20_000, 30, 10.0),
    Size(100_000, 10, 60.0),
    Size(300_000, 10, 60.0),
    Size(1_000_000, 10, 60.0),
)


def tasks(sizes: Sequence[Size], threads: int) -> list[Task]:
    """One fit for each size."""
    return [Task(_key(size, threads), lambda size=size: _run(size)) for size in sizes]


def _key(size: Size, threads: int) -> dict[str, object]:
    return {"benchmark": "seconds", "rows": size.rows, "columns": size.columns, "threads": threads}


def _run(size: Size) -> Outcome:
    rng = np.random.default_rng(0)
    x, y = _draw(size.rows, size.columns, rng)
    x_test, y_test = _draw(NUM_TEST, size.columns, rng)
    CVGPRegressor(5, random_state=0).fit(x[:50], y[:50])  # imports are not counted
    begin = time.perf_counter()
    model = CVGPRegressor(random_state=0).fit(x, y)
    seconds = time.perf_counter() - begin
    lower, upper = model.predict_interval(x_test, level=0.9).T
    return Outcome(
        {
            "seconds": seconds,
            "rmse": float(np.sqrt(np.mean((y_test - model.predict(x_test)) ** 2))),
            "log_likelihood": float(np.mean(model.log_predictive_density(x_test, y_test))),
            "coverage": float(np.mean((lower <= y_test) & (y_test <= upper))),
            "points": float(len(model.coreset_)),
            "neighbors": float(model.n_neighbors_),
        }
    )


def _draw(num_rows: int, num_columns: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of a function of the first four columns, which the others only hide."""
    x = rng.normal(size=(num_rows, num_columns))
    f = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + np.exp(-(x[:, 3] ** 2))
    return x, f + NOISE * rng.normal(size=num_rows)


def report(sizes: Sequence[Size], threads: int, store: Store) -> str:
    """A row per size that was measured."""
    lines = [
        "| rows x columns | seconds | target | RMSE | log-likelihood | 90 % coverage | points + neighbours |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    found = [(size, store.finished(_key(size, threads))) for size in sizes]
    records = [(size, record) for size, record in found if record is not None]
    lines += [_row(size, record) for size, record in records]
    commits = ", ".join(sorted({record.provenance["commit"] for _, record in records}))
    lines.append("")
    lines.append(
        f"Who knows the function has an RMSE of {NOISE} and a log-likelihood of {BEST:.3f}. {threads} threads, commit "
        f"{commits or '-'}."
    )
    return "\n".join(lines)


def _row(size: Size, record: Record) -> str:
    def of(name: str) -> float:
        return float(record.metrics[name] or math.nan)

    seconds, most = of("seconds"), size.most_seconds
    cells = [
        f"{size.rows:,} x {size.columns}",
        f"{seconds:.1f}",
        f"{'pass' if seconds <= most else 'FAIL'}, <= {most:.0f}",
        f"{of('rmse'):.4f}",
        f"{of('log_likelihood'):.3f}",
        f"{of('coverage'):.2f}",
        f"{of('points'):.0f} + {record.metrics['neighbors'] or 0.0:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"
