"""What cvgp costs, next to what other libraries cost for the same work: one module for each measurement."""

from typing import Any

from experiments.markdown import origin
from experiments.speed import files, fit, prediction, quality, step
from experiments.store import Store

MEASUREMENTS: dict[str, Any] = {
    "step": step,
    "prediction": prediction,
    "quality": quality,
    "fit": fit,
    "files": files,
}
"""By name, in the order in which `all` runs them; each module has `full`, `quick`, `tasks` and `report`."""


def report(name: str, plan: Any, store: Store) -> str:
    """The tables of a measurement, with a line that says where they come from, and what failed or is missing."""
    planned = MEASUREMENTS[name].tasks(plan)
    records = [record for task in planned if (record := store.get(task.key)) is not None]
    notes = origin(records)
    if len(planned) > len(records):
        notes += f" **{len(planned) - len(records)} of {len(planned)} tasks are missing.**"
    failed = [f"Failed: {record.task}: {record.error}" for record in records if record.failed]
    return "\n\n".join([MEASUREMENTS[name].report(plan, store), notes, *failed])
