"""The race as tables and a picture, and what README.md says of it, from stored results alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from experiments.figures import grid, shared_legend
from experiments.markdown import markdown_table, origin
from experiments.race import (
    CLOSE,
    HIGHER_IS_BETTER,
    OURS,
    Count,
    Plan,
    Results,
    candidates,
    choose,
    count_ahead,
    results_of,
    shared_splits,
)
from experiments.splits import describe_groups
from experiments.store import Record, Store

TITLES = {"rmse": "RMSE", "log_likelihood": "mean log-likelihood", "crps": "CRPS"}
SHARES = {
    "in 50 %": "coverage_50",
    "in 90 %": "coverage_90",
    "in 95 %": "coverage_95",
    "in 90 %, quiet third": "coverage_90_quiet",
    "in 90 %, noisy third": "coverage_90_noisy",
    "in 50 %, quiet third": "coverage_50_quiet",
    "in 50 %, noisy third": "coverage_50_noisy",
}
SCALED = {
    "seconds": ("seconds", 1.0, ".1f"),
    "µs per row": ("seconds_per_row", 1e6, ".1f"),
    "KB": ("bytes", 1e-3, ".0f"),
}
PICTURE = "accuracy.png"
DESCRIPTION = "Mean log-likelihood of each peer minus that of cvgp, one row for each data set"
STYLES = {
    "cvgp-coreset": ("#0072B2", "o"),
    "lightgbm": ("#D55E00", "s"),
    "cvgp-groups": ("#0072B2", "s"),
    "catboost": ("#E69F00", "D"),
    "sgpr": ("#CC79A7", "^"),
    "gpboost-vecchia": ("#000000", "P"),
    "gpboost-vif": ("#000000", "X"),
    "ngboost": ("#F0E442", "p"),
    "sklearn-exact": ("#999999", "*"),
    "svgp": ("#009E73", "v"),
    "ppgpr": ("#56B4E9", "<"),
}
"""Colour (Okabe and Ito's) and marker of each method that has a density."""
LINEAR = 0.1
"""Nats up to which the axis is linear; beyond it is logarithmic."""
DPI = 110
IN_README = choose(("cvgp", "lightgbm", "catboost", "gpboost-vecchia", "gpboost-vif", "ngboost", "svgp", "ppgpr"))
COMMAND = "`python -m experiments race`"
GROUPED = "cvgp-groups"


# The page


def counts(plan: Plan, store: Store) -> str:
    """On how many sets ours is ahead of every peer, on the splits that all methods have finished."""
    rows = []
    for kind in plan.kinds:
        for what, count in _counts(plan, store, kind):
            rows.append([kind, what, f"{count.good} of {count.compared}", ", ".join(count.behind) or "-"])
    words = "Only splits that every method with a result on the set has finished are compared."
    return f"{markdown_table(('splits', 'sets with', 'count', 'behind on'), rows, num_text=4)}\n\n{words}"


def _counts(plan: Plan, store: Store, kind: str) -> Iterator[tuple[str, Count]]:
    yield "mean log-likelihood ahead of every peer", count_ahead(plan, store, kind, "log_likelihood")
    yield "CRPS ahead of every peer", count_ahead(plan, store, kind, "crps")
    yield "RMSE within 2 % of the best peer, or ahead", count_ahead(plan, store, kind, "rmse", close=CLOSE)


def tables(plan: Plan, store: Store, kind: str) -> str:
    """For one kind of split: a table per score with the best in bold, then all numbers with their ranges."""
    found = {name: results_of(plan, store, kind, name) for name in plan.datasets}
    measured = {name: results for name, results in found.items() if any(r.records for r in results)}
    if not measured:
        return "No results yet."
    parts = [_winners(measured, metric) for metric in HIGHER_IS_BETTER]
    if kind == "grouped":
        groups = [f"{name}: {describe_groups(name)}" for name in measured]
        parts.insert(0, f"A group is, for {'; for '.join(groups)}.")
    return "\n\n".join([*parts, _details(measured), *_summary(plan, store, kind, measured)])


def groups(plan: Plan, store: Store) -> str:
    """What naming the groups changes on grouped splits: medians over the splits that both fits have finished."""
    rows = []
    for name in plan.datasets:
        found = {r.entry.name: r for r in results_of(plan, store, "grouped", name) if r.records}
        if OURS.name in found and GROUPED in found:
            both = found[OURS.name], found[GROUPED]
            splits = set(both[0].records) & set(both[1].records)
            densities = [_number(r.median("log_likelihood", splits) or 0.0) for r in both]
            shares = [100.0 * np.array(r.values("coverage_90", splits)) for r in both]
            rows.append([name, *densities, *(f"{np.median(s):.0f} % ({s.min():.0f} to {s.max():.0f})" for s in shares)])
    header = ["data", "log-likelihood", "with `groups`", "inside 90 % intervals", "with `groups`"]
    return markdown_table(header, rows, num_text=1) if rows else "No results yet."


def _winners(measured: dict[str, list[Results]], metric: str) -> str:
    rows = []
    for name, results in measured.items():
        medians = [r.median(metric) for r in results]
        known = [m for m in medians if m is not None]
        best = (max if HIGHER_IS_BETTER[metric] else min)(known) if known else None
        rows.append([name, *("-" if m is None else _bold(_number(m), m == best) for m in medians)])
    which = "highest" if HIGHER_IS_BETTER[metric] else "lowest"
    words = f"**{TITLES[metric]}**, medians over splits; the {which} is bold."
    titles = [r.entry.title for r in next(iter(measured.values()))]
    return f"{words}\n\n{markdown_table(['data', *titles], rows, num_text=1)}"


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def _number(value: float) -> str:
    """Three digits after the point, and four for small values."""
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}"


def _details(measured: dict[str, list[Results]]) -> str:
    rows = [
        [
            name,
            r.entry.title,
            *(_range(r.values(metric)) for metric in HIGHER_IS_BETTER),
            *(_scaled(r.values(metric), 100.0, ".0f", " %") for metric in SHARES.values()),
            *(_scaled(r.values(metric), unit, form) for metric, unit, form in SCALED.values()),
            str(len(r.records)),
        ]
        for name, results in measured.items()
        for r in results
        if r.records
    ]
    header = ("data", "method", "RMSE", "log-likelihood", "CRPS", *SHARES, *SCALED, "splits")
    words = "**All numbers**: medians over splits, with the smallest and the largest."
    return f"{words}\n\n{markdown_table(header, rows, num_text=2)}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = _number(median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _scaled(values: Sequence[float], unit: float, form: str, ending: str = "") -> str:
    return format(unit * median(values), form) + ending if values else "-"


def _summary(plan: Plan, store: Store, kind: str, measured: dict[str, list[Results]]) -> Iterator[str]:
    keys = [
        key
        for split in range(plan.splits)
        for dataset in plan.datasets
        for entry in plan.entries_of(kind)
        for key in candidates(plan, store, dataset, kind, split, entry)
    ]
    stored = [record for key in keys if (record := store.get(key)) is not None]
    used: list[Record] = [record for results in measured.values() for r in results for record in r.records.values()]
    versions = sorted({p["scikit-learn"] for record in used if "scikit-learn" in (p := record.provenance)})
    text = f"{origin(used)} Scikit-learn {' and '.join(versions)}." if versions else origin(used)
    if len(stored) < len(keys):
        text += f" **{len(keys) - len(stored)} of {len(keys)} fits are missing.**"
    yield text
    failed = [
        f"- {record.task['method']} on {record.task['dataset']}, split {record.task['split']}: {record.error}"
        for record in stored
        if record.failed
    ]
    if failed:
        yield "Fits that failed:\n\n" + "\n".join(failed)


def draw(plan: Plan, store: Store, folder: Path) -> str:
    """Draw how far each peer's log-likelihood is from ours on shared splits; returns the reference to the picture."""
    drawn = {kind: points for kind in plan.kinds if (points := _differences(plan, store, kind))}
    if not drawn:
        return ""
    names = [name for name in plan.datasets if any(name in row for points in drawn.values() for row in points.values())]
    figure, axes = grid(1, len(drawn), (5.2, 1.2 + 0.42 * len(names)), sharey=True)
    for ax, (kind, points) in zip(axes[0], drawn.items(), strict=True):
        for entry in plan.entries:
            if entry.name in points:
                color, marker = STYLES[entry.name]
                row = points[entry.name]
                places = [names.index(name) for name in row]
                ax.plot(row.values(), places, marker, color=color, mec="#444444", mew=0.5, label=entry.title)
        ax.axvline(0.0, color="#444444", lw=1.0)
        ax.set_xscale("symlog", linthresh=LINEAR)
        ax.set(title=f"{kind} splits", xlabel="log-likelihood minus cvgp's, nats per row", yticks=range(len(names)))
        ax.set_yticklabels(names)
        ax.grid(alpha=0.3)
    axes[0][0].invert_yaxis()
    shared_legend(figure, list(axes[0]))
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / PICTURE, dpi=DPI)
    return f"![{DESCRIPTION}](images/{PICTURE})"


def _differences(plan: Plan, store: Store, kind: str) -> dict[str, dict[str, float]]:
    """By method and data set: its median minus ours."""
    found: dict[str, dict[str, float]] = {}
    for name in plan.datasets:
        results = results_of(plan, store, kind, name)
        splits = shared_splits(results)
        medians = {r.entry.name: r.median("log_likelihood", splits) for r in results}
        own = medians.get(OURS.name)
        for method, value in medians.items():
            if method in STYLES and own is not None and value is not None:
                found.setdefault(method, {})[name] = value - own
    return found


# README.md


def summary(plan: Plan, store: Store, kind: str) -> str:
    """RMSE and mean log-likelihood of each data set on shared splits, the best in bold."""
    measured = {name: results_of(plan, store, kind, name) for name in plan.datasets}
    with_results = {r.entry for results in measured.values() for r in results if r.records}
    entries = [entry for entry in IN_README if entry in with_results]
    rows, used = [], set[int]()
    for name, results in measured.items():
        splits = shared_splits(results)
        by_entry = {r.entry: r for r in results}
        if OURS not in by_entry or not by_entry[OURS].records or not splits:
            continue
        used |= splits
        columns = []
        for metric, form in (("rmse", ".3f"), ("log_likelihood", ".2f")):
            medians = [by_entry[entry].median(metric, splits) for entry in entries]
            texts = ["-" if value is None else format(value, form) for value in medians]
            best = (max if HIGHER_IS_BETTER[metric] else min)((t for t in texts if t != "-"), key=float)
            columns.append([_bold(text, text == best) for text in texts])
        rows.append([name, *(" / ".join(pair) for pair in zip(*columns, strict=True))])
    numbers = ", ".join(str(number) for number in sorted(used))
    table = markdown_table(["data", *(entry.title for entry in entries)], rows, num_text=1)
    return f"{table}\n\n{kind.capitalize()} splits that all methods share: {len(used)} (number {numbers})."


def readme_counts(plan: Plan, store: Store) -> Iterator[Sequence[str]]:
    """The lines of README's table of figures that are about accuracy."""
    density = count_ahead(plan, store, "random", "log_likelihood")
    error = count_ahead(plan, store, "random", "rmse", close=CLOSE)
    results = [r for name in plan.datasets for r in results_of(plan, store, "random", name) if r.records]
    peers = dict.fromkeys(r.entry.title for r in sorted(results, key=lambda r: plan.entries.index(r.entry)))
    titles = ", ".join(title for title in peers if not title.startswith("cvgp"))
    yield f"mean log-likelihood ahead of {titles}", f"on {density.good} of {density.compared} data sets", COMMAND
    yield "RMSE ahead of these, or within 2 % of the best", f"on {error.good} of {error.compared} data sets", COMMAND
