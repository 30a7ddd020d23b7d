"""What every process of test_distributed.py does: fits on parts of small data, with the results stored by rank.

Run without torchrun it does the same alone, which is what the results are compared with.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvgp import CVGPRegressor
from cvgp.data.shared import SharedSource, SplitSource
from cvgp.data.source import DataSource
from cvgp.full_data import CollapsedObjective, collapsed_parameters, full_bound, solve_coreset
from cvgp.group import Group
from cvgp.training.distributed import current_group, process_group
from cvgp.training.fit import fit_model
from cvgp.training.settings import Settings
from cvgp.training.watch import Watch
from tests.training.problems import make_model, make_source

ROWS = 301
PARTS = {"even": [0, 150, ROWS], "uneven": [0, 280, ROWS], "empty": [0, ROWS, ROWS]}
"""Where each of two processes' rows begin and end."""
GRID = torch.linspace(-2.0, 2.0, 50, dtype=torch.float64)[:, None]


def spread(group: Group, how: str) -> DataSource:
    whole = make_source(ROWS, frequency=3.0)
    if group.world == 1:
        return whole
    if how == "split":
        return SplitSource(whole, group)
    start, stop = PARTS[how][group.rank : group.rank + 2]
    return SharedSource(whole.part(start, stop), group)


def bounds(group: Group, how: str, *, tight: bool) -> dict[str, Any]:
    """Value and gradient at equal parameters."""
    model = make_model(make_source(ROWS, frequency=3.0), size=12)
    source = spread(group, how)
    objective = CollapsedObjective(model, lambda: source.chunks(64), source.local_rows, tight=tight, group=group)
    value = objective.value_and_backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in collapsed_parameters(model)])
    solve_coreset(model, source.chunks(64), group)
    full = full_bound(model, source.chunks(64), source.num_rows, tight=tight, group=group)
    return {"value": value, "gradient": gradient, "y_c": model.y_c.detach(), "full": full}


def fit(group: Group, how: str, **settings: Any) -> dict[str, Any]:
    """A fit by the training layer."""
    model = make_model(make_source(ROWS, frequency=3.0), size=12)
    watch = Watch(settings.get("max_time"), group=group)
    validation = spread(group, how) if settings.get("early_stopping") else None
    report = fit_model(model, spread(group, how), Settings(**settings), watch, validation=validation)
    with torch.no_grad():
        mean = model.posterior(GRID).mean
    return {"mean": mean, "bound": report.bound, "steps": report.result.num_iter, "status": report.result.status.name}


def estimator(group: Group, **parameters: Any) -> dict[str, Any]:
    """A fit by the estimator, which is given the whole table everywhere."""
    data = make_source(ROWS, dims=2, frequency=3.0).data
    model = CVGPRegressor(12, **parameters).fit(data.x.numpy(), data.y.numpy())
    mean, sd = model.predict(data.x.numpy()[:50], return_std=True)
    return {"mean": mean, "sd": sd, "elbo": model.elbo_, "coreset": model.coreset_.X, "rows": model.n_rows_}


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


CASES: dict[str, Callable[[Group], dict[str, Any]]] = {
    "exchange": exchange,
    **{
        f"bounds-{how}-{'tight' if tight else 'elbo'}": lambda g, how=how, tight=tight: bounds(g, how, tight=tight)
        for how in (*PARTS, "split")
        for tight in (False, True)
    },
    "lbfgs-uneven": lambda g: fit(g, "uneven", solver="lbfgs", max_iter=60),
    "lbfgs-empty": lambda g: fit(g, "empty", solver="lbfgs", max_iter=60),
    "adam-split": lambda g: fit(g, "split", solver="adam", max_iter=200, batch_size=33, dtype="float64"),
    "adam-uneven": lambda g: fit(g, "uneven", solver="adam", max_iter=200, batch_size=64),
    "adam-empty": lambda g: fit(g, "empty", solver="adam", max_iter=200, batch_size=64),
    "adam-tiny-batch": lambda g: fit(g, "split", solver="adam", max_iter=50, batch_size=1, dtype="float64"),
    "adam-early": lambda g: fit(
        g, "uneven", solver="adam", max_iter=3000, batch_size=64, early_stopping=True, n_iter_no_change=1
    ),
    "adam-time": lambda g: fit(g, "split", solver="adam", max_iter=10**6, max_time=0.3),
    "estimator-lbfgs": lambda g: estimator(g, random_state=0, max_iter=60),
    "estimator-adam": lambda g: estimator(g, random_state=0, solver="adam", max_iter=100, dtype="float64"),
    "estimator-any-seed": lambda g: estimator(g, max_iter=10),
}


def main(folder: Path) -> None:
    with process_group() as group:
        for name, case in CASES.items():
            np.savez(folder / f"{name}-{group.rank}.npz", **case(group))
        np.savez(folder / f"threads-{group.rank}.npz", threads=torch.get_num_threads())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
