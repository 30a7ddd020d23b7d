"""What every process of test_distributed.py does: fits on parts of small data, with the results stored by rank.

Run without torchrun it does the same alone, which is what the results are compared with.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import cvgp
from cvgp.data.source import DataSource, MemorySource, SharedSource
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Budget, Clock, FitLog, Run
from cvgp.fitting.neighbors import (
    adopt_neighbors,
    find_near,
    in_random_order,
    late_residuals,
    predict_sequentially,
)
from cvgp.fitting.options import TrainingOptions
from cvgp.fitting.solve import make_plan, solve
from cvgp.objectives import TitsiasObjective, full_bound, searched_parameters, statistics_and_gain
from cvgp.parallel.group import Group, current_group, process_group
from cvgp.tables import stream
from tests.fitting.problems import make_model, make_source
from tests.flat_options import make_regressor
from tests.tables.helpers import write_parts

ROWS = 301
PARTS = {"even": [0, 150, ROWS], "uneven": [0, 280, ROWS], "empty": [0, ROWS, ROWS]}
"""Where each of two processes' rows begin and end."""
BOUNDS: dict[str, dict[str, Any]] = {"elbo": {}, "tight": {"tight": True}}
GRID = torch.linspace(-2.0, 2.0, 50, dtype=torch.float64)[:, None]


def spread(group: Group, how: str) -> DataSource:
    whole = make_source(ROWS, frequency=3.0)
    if group.world == 1:
        return whole
    if how == "split":
        return MemorySource(*whole.data, group=group)
    start, stop = PARTS[how][group.rank : group.rank + 2]
    return SharedSource(MemorySource(*whole.data.take(slice(start, stop))), group)


def bounds(group: Group, how: str, **bound: Any) -> dict[str, Any]:
    """Value and gradient at equal parameters."""
    model = make_model(make_source(ROWS, frequency=3.0), size=12)
    source = spread(group, how)
    objective = TitsiasObjective(model, lambda: source.chunks(64), source.local_rows, group=group, **bound)
    value = objective.value_and_backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in searched_parameters(model)])
    found, _ = statistics_and_gain(model, source.chunks(64), group)
    model.adopt_optimum(found)
    full = full_bound(model, source.chunks(64), source.num_rows, group=group, **bound)
    return {"value": value, "gradient": gradient, "y_c": model.y_c.detach(), "full": full}


def fit(group: Group, how: str, **settings: Any) -> dict[str, Any]:
    """A fit by the training layer."""
    model = make_model(make_source(ROWS, frequency=3.0), size=12)
    run = Run(Budget(settings.pop("max_time", None), Clock(group=group)), FitLog(), Heuristics())
    validation = spread(group, how) if settings.get("early_stopping") else None
    plan = make_plan(TrainingOptions(**settings), ROWS, 12, 1, run)
    report = solve(model, spread(group, how), plan, TrainingOptions(**settings), run, validation=validation)
    with torch.no_grad():
        mean = model.posterior(GRID).mean
    return {"mean": mean, "bound": report.bound, "steps": report.result.num_iter, "status": report.result.status.name}


def estimator(group: Group, **parameters: Any) -> dict[str, Any]:
    """A fit by the estimator, which is given the whole table everywhere."""
    data = make_source(ROWS, dims=2, frequency=3.0).data
    model = make_regressor(12, **parameters).fit(data.x.numpy(), data.y.numpy())
    mean, sd = model.predict(data.x.numpy()[:50], return_std=True)
    return {"mean": mean, "sd": sd, "elbo": model.elbo_, "coreset": model.coreset_.X, "rows": model.n_rows_} | {
        "neighbors": model.n_neighbors_
    }


def counts(group: Group, groups: Any = None) -> dict[str, Any]:
    """A fit to counts in memory, the same everywhere."""
    data = make_source(ROWS, dims=2, frequency=1.0).data
    y = np.random.default_rng(0).poisson(np.exp(data.y.numpy()))
    model = cvgp.CVGPRegressor(10, likelihood="poisson", random_state=0).fit(data.x.numpy(), y, groups=groups)
    return {"mean": model.predict(data.x.numpy()), "elbo": model.elbo_, "rows": model.n_rows_}


def classes(folder: Path, groups: str | None = None) -> dict[str, Any]:
    """A fit to classes in files, of which each process reads its own parts; a sample teaches the kernel."""
    training = TrainingOptions(heuristics=Heuristics(latent_rows=500))
    table = cvgp.read_table(folder, "kind", groups=groups, on_bad_rows="skip")
    model = cvgp.CVGPClassifier(10, random_state=0, training=training).fit(table)
    grid = pd.DataFrame({"a": GRID.numpy()[:, 0], "y": np.linspace(-1.0, 3.0, len(GRID))})
    return {"mean": model.predict_proba(grid), "elbo": model.elbo_, "rows": model.n_rows_, "prior": model.class_prior_}


def consulting(group: Group, dims: int) -> dict[str, Any]:
    """A model with neighbors, at given parameters, and what is left of its late rows."""
    source = make_source(ROWS, dims=dims, frequency=3.0)
    model = make_model(source, size=12)
    kept, bound = adopt_neighbors(model, in_random_order(source.data, 0), 5, group=group)
    near = find_near(model, kept.rows, 5, Heuristics(), group)
    found = predict_sequentially(model, kept.rows, near, group)
    left = late_residuals(model, kept.rows, found, 100)
    return {**kept.statistics._asdict(), "bound": bound, "square": left.square, "f_var": left.f_var}


def write_tables(folder: Path) -> None:
    """The same rows, one of them bad, as uneven files of several row groups, and as one row group."""
    data = make_source(900, frequency=3.0).data
    kind = np.where(np.arange(900) % 2, "odd", "even")
    frame = pd.DataFrame({"a": data.x[:, 0].numpy(), "kind": kind, "y": data.y.numpy() + 2.0 * (kind == "odd")})
    frame.loc[700, "a"] = np.inf
    for name, cuts, group in (("parts", (100, 650), 300), ("one-part", (), 900)):
        (folder / name).mkdir()
        write_parts(folder / name, frame, cuts, group)

    rng, person = np.random.default_rng(0), np.arange(900) // 15  # persons have typical inputs, and effects
    a = rng.uniform(-2.0, 2.0, 60)[person] + 0.02 * rng.normal(size=900)
    y = np.sin(3.0 * a) + 0.3 * rng.normal(size=60)[person] + 0.1 * rng.normal(size=900)
    frame = pd.DataFrame({"a": a, "kind": "even", "y": y, "person": person}).sample(frac=1.0, random_state=0)
    frame.loc[:20, "kind"] = "odd"
    (folder / "persons").mkdir()
    write_parts(folder / "persons", frame, (100, 650), 300)


def fit_table(folder: Path, groups: str | None = None, **parameters: Any) -> dict[str, Any]:
    """A fit by the estimator to files, of which each process reads its own parts."""
    model = make_regressor(12, **{"random_state": 0, "solver": "adam", "max_iter": 250} | parameters)
    model.fit(cvgp.read_table(folder, "y", groups=groups, on_bad_rows="skip"))
    grid = pd.DataFrame({"a": GRID.numpy()[:, 0], "kind": "even"})
    mean, interval = model.predict(grid), model.predict_interval(grid)
    facts = {"rows": model.n_rows_, "bad": model.n_bad_rows_, "features": model.feature_names_in_.astype(str)}
    return {"mean": mean, "interval": interval, "elbo": model.elbo_, **facts}


def read_table(group: Group, folder: Path) -> dict[str, Any]:
    """What each process takes of a table, and what all know of it."""
    found = cvgp.read_table(folder, "y", on_bad_rows="skip").learn(group)
    scaling = found.scaling()
    return {
        "read": sum(len(b.x) for b in found.source(scaling).chunks(100)),
        "total": found.num_rows,
        "mean": scaling.x_mean,
        "scale": scaling.x_scale,
    }


def exchange(group: Group) -> dict[str, Any]:
    """The meetings themselves."""
    number = torch.tensor([1.0 + group.rank, 0.5])
    rows = torch.full((2 * group.rank, 3), float(group.rank))
    return {
        "sum": group.sum([number, torch.tensor(2.0)])[0],
        "first": group.first([number])[0],
        "bytes": np.frombuffer(group.first_bytes(b"some" if group.rank == 0 else b""), np.uint8),
        "no_bytes": len(group.first_bytes(b"")),
        "gathered": torch.cat(group.gather(rows)),
        "gathered_none": len(torch.cat(group.gather(rows[:0]))),
        "is_current": current_group() is group,
    }


CASES: dict[str, Callable[[Group, Path], dict[str, Any]]] = {
    "exchange": lambda g, t: exchange(g),
    **{
        f"bounds-{how}-{name}": lambda g, t, how=how, bound=bound: bounds(g, how, **bound)
        for how in (*PARTS, "split")
        for name, bound in BOUNDS.items()
    },
    "lbfgs-uneven": lambda g, t: fit(g, "uneven", solver="lbfgs", max_iter=60),
    "lbfgs-empty": lambda g, t: fit(g, "empty", solver="lbfgs", max_iter=60),
    "adam-split": lambda g, t: fit(g, "split", solver="adam", max_iter=200, batch_size=33, dtype="float64"),
    "adam-uneven": lambda g, t: fit(g, "uneven", solver="adam", max_iter=200, batch_size=64),
    "adam-empty": lambda g, t: fit(g, "empty", solver="adam", max_iter=200, batch_size=64),
    "adam-tiny-batch": lambda g, t: fit(g, "split", solver="adam", max_iter=50, batch_size=1, dtype="float64"),
    "adam-early": lambda g, t: fit(
        g, "uneven", solver="adam", max_iter=3000, batch_size=64, early_stopping=True, n_iter_no_change=1
    ),
    "adam-time": lambda g, t: fit(g, "split", solver="adam", max_iter=10**6, max_time=0.3),
    "estimator-lbfgs": lambda g, t: estimator(g, random_state=0, max_iter=60),
    "estimator-adam": lambda g, t: estimator(g, random_state=0, solver="adam", max_iter=100, dtype="float64"),
    # One noise level: of two kinds that are as good, rounding may decide for either.
    "estimator-neighbors": lambda g, t: estimator(g, random_state=0, n_neighbors=5, noise="constant"),
    "neighbors-tree": lambda g, t: consulting(g, dims=2),
    "neighbors-blocks": lambda g, t: consulting(g, dims=6),
    "estimator-any-seed": lambda g, t: estimator(g, max_iter=10),
    "counts": lambda g, t: counts(g),
    "counts-groups": lambda g, t: counts(g, np.arange(ROWS) // 10),
    "classes": lambda g, t: classes(t / "parts"),
    "classes-groups": lambda g, t: classes(t / "persons", groups="person"),
    "table-parts": lambda g, t: fit_table(t / "parts"),
    "table-one-part": lambda g, t: fit_table(t / "one-part"),
    "table-groups": lambda g, t: fit_table(t / "persons", groups="person"),
    "table-early": lambda g, t: fit_table(t / "parts", early_stopping=True, n_iter_no_change=5, max_iter=1500),
    "table-reading": lambda g, t: read_table(g, t / "parts"),
}


def main(folder: Path, tables: Path) -> None:
    # No table is small enough to be loaded.
    stream.IN_MEMORY_BYTES, stream.WINDOW_BYTES = 0, 1
    with process_group() as group:
        for name, case in CASES.items():
            np.savez(folder / f"{name}-{group.rank}.npz", **case(group, tables))
        np.savez(folder / f"threads-{group.rank}.npz", threads=torch.get_num_threads())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
