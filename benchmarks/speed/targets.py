"""Each target with what was measured beside it: pass, FAIL, or not run."""

from collections.abc import Iterator
from functools import partial
from statistics import mean, median
from typing import NamedTuple

from benchmarks.speed import large, prediction, small, step
from benchmarks.speed.plans import Plans
from benchmarks.speed.race_results import LATE, each_split, seconds_to_reach, smallest_lead, spread
from cvgp.paper.markdown import markdown_table
from cvgp.paper.store import Record, Store

__all__ = ["Target", "report", "targets"]

HEADER = ("point", "what", "measured", "target", "result")

STEP_RATIOS = {50: 5.0, 100: 5.0, 200: 3.0, 500: 2.5, 1000: 2.5}
LARGEST_FLOAT32_ERROR = 1e-3
"""Relative difference of the bound at which float32 still counts as confirmed."""

SVGP_SECONDS, SGPR_SECONDS = 6.0, 20.0
"""Within which ours is to be as good as a peer after its sixty."""
LEAD_SINCE = 5.0
AS_GOOD_NATS, AS_GOOD_RMSE = 0.01, 0.01
"""On small data both are the same model up to their optimisers: within this many nats, and this share of the RMSE."""

LINEAR_SHARE = 1.1
"""Ten times the rows may take so many times ten times as long."""
FLAT_SHARE = 2.0
"""Ten times the rows may take so many times the memory beyond the data."""
MINUTES = 10.0

PREDICTION_RATIOS = {
    (False, "float64"): 5.0,
    (False, "float32"): 5.0,
    (True, "float64"): 2.5,
    (True, "float32"): 5.0,
}
LATENCY = 200e-6
IMPORT_RATIO = 1.5
HELP_SECONDS = 0.5


class Target(NamedTuple):
    """A line of the table; `met` is None where something is missing."""

    point: str
    what: str
    measured: str
    goal: str
    met: bool | None


def report(plans: Plans, store: Store) -> str:
    """The table, and how many are met."""
    found = targets(plans, store)
    words = {True: "pass", False: "FAIL", None: "not run"}
    rows = [[t.point, t.what, t.measured, t.goal, words[t.met]] for t in found]
    met = sum(t.met is True for t in found)
    return f"{markdown_table(HEADER, rows, num_text=2)}\n\n{met} of {len(found)} targets are met."


def targets(plans: Plans, store: Store) -> list[Target]:
    """All of them, point by point."""
    return [
        *_step(plans.step, store),
        *_race(plans, store),
        *_small(plans.small, store),
        *_large(plans.large, store),
        *_prediction(plans.prediction, store),
    ]


def _step(plan: step.Plan, store: Store) -> Iterator[Target]:
    for size in plan.sizes:
        for batch in plan.batches:
            what, goal = f"step, M = {size}, batch {batch}", STEP_RATIOS[size]
            record = store.finished(step.task(plan, size, batch).key)
            if record is None:
                yield Target("training step", what, "-", f">= {goal:g}x SVGP", None)
                continue
            ratio, error = record.metrics["ratio"], record.metrics["float32_error"]
            confirmed = f"{ratio:.1f}x, float32 off by {error:.0e}"
            met = ratio >= goal and error <= LARGEST_FLOAT32_ERROR
            yield Target("training step", what, confirmed, f">= {goal:g}x SVGP", met)


def _race(plans: Plans, store: Store) -> Iterator[Target]:
    plan = plans.race
    for dataset in plan.datasets:
        for name, goal in (("SVGP", SVGP_SECONDS), ("SGPR", SGPR_SECONDS)):
            seconds = each_split(plan, store, dataset, partial(_seconds_to_reach, name))
            what = f"{dataset}: seconds to {name}'s log-likelihood after {plan.budget:g}"
            measured = spread(seconds, ".1f") if seconds else "-"
            met = median(seconds) <= LATE * goal if seconds else None
            yield Target("time to quality", what, measured, f"<= {goal:g}", met)
        leads = each_split(plan, store, dataset, lambda mine, peers: smallest_lead(mine, [*peers.values()], LEAD_SINCE))
        what = f"{dataset}: nats ahead of SVGP and SGPR at any time from {LEAD_SINCE:g} s on"
        measured = spread(leads, "+.3f") if leads else "-"
        yield Target("time to quality", what, measured, "> 0", min(leads) > 0.0 if leads else None)
        ends = each_split(plan, store, dataset, _end_against_the_best)
        what = f"{dataset}: RMSE as a share of the best peer's after {plan.budget:g} s"
        measured = spread(ends, ".3f") if ends else "-"
        yield Target("time to quality", what, measured, "< 1", median(ends) < 1.0 if ends else None)


def _seconds_to_reach(name: str, mine: list[Record], peers: dict[str, Record]) -> float:
    return seconds_to_reach(mine, peers[name].metrics["log_likelihood"])


def _end_against_the_best(mine: list[Record], peers: dict[str, Record]) -> float:
    return mine[-1].metrics["rmse"] / min(peer.metrics["rmse"] for peer in peers.values())


def _small(plan: small.Plan, store: Store) -> Iterator[Target]:
    for dataset in plan.datasets:
        what = f"{dataset}, N = {plan.rows}: seconds, log-likelihood, RMSE against scikit-learn"
        goal = "faster, as good"
        records = {
            method: [store.finished(small.task(plan, dataset, split, method).key) for split in range(plan.splits)]
            for method in small.METHODS
        }
        if any(record is None for group in records.values() for record in group):
            yield Target("small data", what, "-", goal, None)
            continue
        own, theirs = (
            {
                name: mean(record.metrics[name] for record in records[method] if record is not None)
                for name in ("seconds", "log_likelihood", "rmse")
            }
            for method in small.METHODS
        )
        ratio = theirs["seconds"] / own["seconds"]
        gain, share = own["log_likelihood"] - theirs["log_likelihood"], own["rmse"] / theirs["rmse"] - 1.0
        met = ratio > 1.0 and gain >= -AS_GOOD_NATS and share <= AS_GOOD_RMSE
        yield Target("small data", what, f"{ratio:.1f}x, {gain:+.3f} nats, {100 * share:+.1f} % RMSE", goal, met)


def _large(plan: large.Plan, store: Store) -> Iterator[Target]:
    named = [(f"waves-{rows}x{large.NUM_DIMS}", rows) for rows in plan.rows]
    records = [store.finished(large.task(plan, name, "cvgp", rows).key) for name, rows in named]
    for (_, less), (_, more), before, after in zip(named, named[1:], records, records[1:], strict=False):
        growth = more / less
        time, memory = (
            f"seconds from {less:.0e} to {more:.0e} rows",
            f"memory beyond the data, {less:.0e} to {more:.0e}",
        )
        time_goal, memory_goal = f"<= {growth * LINEAR_SHARE:g}x", f"<= {FLAT_SHARE:g}x"
        if before is None or after is None:
            yield Target("large data", time, "-", time_goal, None)
            yield Target("large data", memory, "-", memory_goal, None)
            continue
        ratio = after.metrics["seconds"] / before.metrics["seconds"]
        extra = [r.metrics["peak_memory"] - r.metrics["memory_before"] for r in (before, after)]
        yield Target("large data", time, f"{ratio:.1f}x", time_goal, ratio <= growth * LINEAR_SHARE)
        measured = f"{extra[1] / extra[0]:.1f}x, {extra[0] / 1e6:.0f} to {extra[1] / 1e6:.0f} MB"
        yield Target("large data", memory, measured, memory_goal, extra[1] <= FLAT_SHARE * extra[0])
    if plan.flights:
        named.append((large.FLIGHTS, 0))
        records.append(store.finished(large.task(plan, large.FLIGHTS, "cvgp").key))
    for (name, _), record in zip(named, records, strict=True):
        what, goal = f"{name}: fit with M = {plan.size}", f"<= {MINUTES:g} minutes"
        if record is None:
            yield Target("large data", what, "-", goal, None)
        else:
            minutes = record.metrics["seconds"] / 60
            yield Target("large data", what, f"{minutes:.1f} minutes", goal, minutes <= MINUTES)
    if plan.flights:
        both = [store.finished(large.task(plan, large.FLIGHTS, method).key) for method in large.METHODS]
        yield _flights([record for record in both if record is not None])


def _flights(found: list[Record]) -> Target:
    what, goal = f"{large.FLIGHTS}: RMSE and log-likelihood", "ahead of LightGBM"
    if len(found) < len(large.METHODS):
        return Target("large data", what, "-", goal, None)
    own, trees = (record.metrics for record in found)
    measured = ", ".join(f"{own[name]:.3f} to {trees[name]:.3f}" for name in ("rmse", "log_likelihood"))
    met = own["rmse"] < trees["rmse"] and own["log_likelihood"] > trees["log_likelihood"]
    return Target("large data", what, measured, goal, met)


def _prediction(plan: prediction.Plan, store: Store) -> Iterator[Target]:
    many = max(plan.rows)
    for (with_sd, precision), goal in PREDICTION_RATIOS.items():
        record = store.finished(prediction.rows_task(plan, many, precision, with_sd).key)
        what = f"rows per second, {'mean + sd' if with_sd else 'mean'}, {precision}"
        measured = "-" if record is None else f"{record.metrics['ratio']:.1f}x"
        met = None if record is None else record.metrics["ratio"] >= goal
        yield Target("prediction", what, measured, f">= {goal:g}x SVGP", met)
    for with_sd in (False, True):
        record = store.finished(prediction.rows_task(plan, 1, "float64", with_sd).key)
        what = f"one row, {'mean + sd' if with_sd else 'mean'}"
        measured = "-" if record is None else f"{1e6 * record.metrics['seconds']:.0f} µs"
        met = None if record is None else record.metrics["seconds"] < LATENCY
        yield Target("prediction", what, measured, f"< {1e6 * LATENCY:.0f} µs", met)
    start = {what: store.finished(prediction.startup_task(plan, what).key) for what in prediction.STARTS}
    base, shown = start["import gpytorch"], start["cvgp --help"]
    for what in ("import cvgp", "from cvgp import CVGPRegressor"):
        own = start[what]
        goal_text = f"< {IMPORT_RATIO:g}x import gpytorch"
        if own is None or base is None:
            yield Target("prediction", f"`{what}`", "-", goal_text, None)
        else:
            ratio = own.metrics["seconds"] / base.metrics["seconds"]
            yield Target("prediction", f"`{what}`", f"{ratio:.2f}x", goal_text, ratio < IMPORT_RATIO)
    measured = "-" if shown is None else f"{shown.metrics['seconds']:.2f} s"
    met = None if shown is None else shown.metrics["seconds"] < HELP_SECONDS
    yield Target("prediction", "`cvgp --help`", measured, f"< {HELP_SECONDS:g} s", met)
