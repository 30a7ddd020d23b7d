"""What README.md says was measured: a table of accuracy, and a line for each headline figure."""

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.accuracy.accuracy_race import Plan as AccuracyPlan
from benchmarks.accuracy.accuracy_results import best_peer, is_better, results_of
from benchmarks.accuracy.entries import OURS, Entry, choose
from benchmarks.speed import large, prediction, race_results
from benchmarks.speed.plans import Plans
from cvgp.paper.markdown import markdown_table
from cvgp.paper.store import Record, Store

__all__ = ["accuracy_table", "figures_table"]

SHOWN = choose(("cvgp", "lightgbm", "catboost", "gpboost-vecchia", "gpboost-vif", "ngboost", "svgp", "ppgpr"))
"""Columns of the table, where there are results."""
KIND = "random"
CLOSE = 1.02
"""An RMSE of at most so many times the best counts as equal."""


def accuracy_table(plan: AccuracyPlan, store: Store) -> str:
    """RMSE and mean log-likelihood of each data set, the best in bold."""
    found = {
        name: {entry.title: results_of(plan, store, KIND, name, entry) for entry in SHOWN} for name in plan.datasets
    }
    found = {name: by_title for name, by_title in found.items() if by_title[OURS.title].records}
    titles = [entry.title for entry in SHOWN if any(by_title[entry.title].records for by_title in found.values())]
    rows = []
    for name, by_title in found.items():
        columns = []
        for metric, form in (("rmse", ".3f"), ("log_likelihood", ".2f")):
            values = {title: by_title[title].median(metric) for title in titles}
            known = [format(value, form) for value in values.values() if value is not None]
            best = (min if metric == "rmse" else max)(known, key=float)
            columns.append([_cell(values[title], form, best) for title in titles])
        rows.append([name, *(" / ".join(pair) for pair in zip(*columns, strict=True))])
    splits = max((len(by_title[OURS.title].records) for by_title in found.values()), default=0)
    return f"{markdown_table(['data', *titles], rows, num_text=1)}\n\nRandom splits of each set: {splits}."


def _cell(value: float | None, form: str, best: str) -> str:
    if value is None:
        return "-"
    return f"**{value:{form}}**" if format(value, form) == best else format(value, form)


def figures_table(accuracy: AccuracyPlan, race: Store, plans: Plans, speed: Store) -> str:
    """A line for each figure, with the command that measures it; what has not been measured has no line."""
    lines = [*_accuracy(accuracy, race), *_time_to_quality(plans, speed), *_rows(plans, speed), *_rate(plans, speed)]
    return markdown_table(["what", "measured", "command"], lines, num_text=3)


def _accuracy(plan: AccuracyPlan, store: Store) -> Iterator[Sequence[str]]:
    ahead = close = compared = 0
    for name in plan.datasets:
        own = results_of(plan, store, KIND, name, OURS)
        splits = set(own.records)
        density = best_peer(plan, store, KIND, name, "log_likelihood", splits) if splits else None
        error = best_peer(plan, store, KIND, name, "rmse", splits) if splits else None
        if density is None or error is None:
            continue
        compared += 1
        ahead += is_better("log_likelihood", own.median("log_likelihood") or 0.0, density[1])
        close += (own.median("rmse") or 0.0) <= CLOSE * error[1]
    if compared:
        command = "`python -m benchmarks accuracy`"
        peers = ", ".join(entry.title for entry in plan.entries if not entry.ours and _was_run(plan, store, entry))
        yield f"mean log-likelihood ahead of {peers}", f"on {ahead} of {compared} data sets", command
        yield "RMSE ahead of these, or within 2 % of the best", f"on {close} of {compared} data sets", command


def _was_run(plan: AccuracyPlan, store: Store, entry: Entry) -> bool:
    return any(results_of(plan, store, KIND, name, entry).records for name in plan.datasets)


def _time_to_quality(plans: Plans, store: Store) -> Iterator[Sequence[str]]:
    plan, seconds = plans.race, []
    for name in plan.datasets:
        found = race_results.each_split(plan, store, name, _seconds_to_svgp)
        seconds += [median(found)] if found else []
    reached = [value for value in seconds if value < float("inf")]
    if reached:
        what = f"time to the log-likelihood that GPyTorch's SVGP has after {plan.budget:g} s"
        yield (
            what,
            f"{min(reached):.0f} to {max(reached):.0f} s on {len(reached)} of {len(seconds)} data sets",
            "`python -m benchmarks race`",
        )


def _seconds_to_svgp(mine: list[Record], peers: dict[str, Record]) -> float:
    return race_results.seconds_to_reach(mine, peers["SVGP"].metrics["log_likelihood"])


def _rows(plans: Plans, store: Store) -> Iterator[Sequence[str]]:
    plan = plans.large
    most = max(plan.rows)
    record = store.finished(large.task(plan, f"waves-{most}x{large.NUM_DIMS}", "cvgp", most).key)
    if record is not None:
        measured = f"{record.metrics['seconds'] / 60:.0f} minutes, {record.metrics['peak_memory'] / 1e9:.1f} GB"
        what = f"fit to {most:,} rows of {large.NUM_DIMS} columns, {plan.size} points"
        yield what, measured, "`python -m benchmarks large`"


def _rate(plans: Plans, store: Store) -> Iterator[Sequence[str]]:
    plan = plans.prediction
    rows = max(plan.rows)
    for with_sd, title in ((False, "means"), (True, "means and standard deviations")):
        record = store.finished(prediction.rows_task(plan, rows, "float64", with_sd).key)
        if record is not None:
            rate = round(record.metrics["rows_per_second"], -4)
            yield (
                f"predicted {title} per second, {plan.size} points",
                f"{rate:,.0f}",
                "`python -m benchmarks prediction`",
            )
