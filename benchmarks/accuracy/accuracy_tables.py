"""The race of accuracy as tables, from stored results: who wins on which set, and every number of every method."""

from collections.abc import Sequence
from statistics import median

from benchmarks.accuracy.accuracy_race import Plan, candidates
from benchmarks.accuracy.accuracy_results import HIGHER_IS_BETTER, Results, results_of
from benchmarks.accuracy.groups import describe
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.store import Record, Store

__all__ = ["report"]

TITLES = {"rmse": "RMSE", "log_likelihood": "mean log-likelihood", "crps": "CRPS"}
DETAILS = (
    "data",
    "method",
    "RMSE",
    "log-likelihood",
    "CRPS",
    "in 50 %",
    "in 90 %",
    "in 95 %",
    "in 90 %, quiet third",
    "in 90 %, noisy third",
    "in 50 %, quiet third",
    "in 50 %, noisy third",
    "seconds",
    "µs per row",
    "KB",
    "splits",
)


def report(plan: Plan, store: Store, kind: str) -> str:
    """For one kind of split: a table per score with the best in bold, then all numbers with their ranges."""
    found = {name: [results_of(plan, store, kind, name, e) for e in plan.entries] for name in plan.datasets}
    measured = {name: results for name, results in found.items() if any(r.records for r in results)}
    if not measured:
        return "No results yet."
    parts = [_winners(plan, measured, metric) for metric in HIGHER_IS_BETTER]
    if kind == "grouped":
        parts.insert(0, _groups(measured))
    parts += [_details(measured), _summary(plan, store, kind, measured)]
    return "\n\n".join(parts)


def _groups(measured: dict[str, list[Results]]) -> str:
    kinds = [f"{name}: {describe(name)}" for name in measured]
    return f"A group is, for {'; for '.join(kinds)}."


def _winners(plan: Plan, measured: dict[str, list[Results]], metric: str) -> str:
    rows = []
    for name, results in measured.items():
        medians = [r.median(metric) for r in results]
        known = [m for m in medians if m is not None]
        best = (max if HIGHER_IS_BETTER[metric] else min)(known) if known else None
        rows.append([name, *(_marked(m, best) for m in medians)])
    header = ["data", *(entry.title for entry in plan.entries)]
    which = "highest" if HIGHER_IS_BETTER[metric] else "lowest"
    words = f"**{TITLES[metric]}**, medians over splits; the {which} is bold."
    return f"{words}\n\n{markdown_table(header, rows, num_text=1)}"


def _marked(value: float | None, best: float | None) -> str:
    if value is None:
        return "-"
    return f"**{_number(value)}**" if value == best else _number(value)


def _number(value: float) -> str:
    """Three digits after the point, and more for small values, whose third digit says nothing."""
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}"


def _details(measured: dict[str, list[Results]]) -> str:
    rows = [_detail(name, r) for name, results in measured.items() for r in results if r.records]
    words = "**All numbers**: medians over splits, with the smallest and the largest."
    return f"{words}\n\n{markdown_table(DETAILS, rows, num_text=2)}"


def _detail(name: str, results: Results) -> list[str]:
    shares = ["coverage_50", "coverage_90", "coverage_95"]
    shares += ["coverage_90_quiet", "coverage_90_noisy", "coverage_50_quiet", "coverage_50_noisy"]
    return [
        name,
        results.entry.title,
        *(_range(results.values(metric)) for metric in HIGHER_IS_BETTER),
        *(_share(results.values(metric)) for metric in shares),
        _scaled(results.values("seconds"), 1.0, ".1f"),
        _scaled(results.values("seconds_per_row"), 1e6, ".1f"),
        _scaled(results.values("bytes"), 1e-3, ".0f"),
        str(len(results.records)),
    ]


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = _number(median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _share(values: Sequence[float]) -> str:
    return f"{100 * median(values):.0f} %" if values else "-"


def _scaled(values: Sequence[float], unit: float, form: str) -> str:
    return format(unit * median(values), form) if values else "-"


def _summary(plan: Plan, store: Store, kind: str, measured: dict[str, list[Results]]) -> str:
    keys = [
        key
        for split in range(plan.splits)
        for dataset in plan.datasets
        for entry in plan.entries
        for key in candidates(plan, store, dataset, kind, split, entry)
    ]
    stored = [record for key in keys if (record := store.get(key)) is not None]
    failed = [record for record in stored if record.failed]
    used: list[Record] = [record for results in measured.values() for r in results for record in r.records.values()]
    versions = sorted({p["scikit-learn"] for record in used if "scikit-learn" in (p := record.provenance)})
    text = f"{origin(used)} Scikit-learn {' and '.join(versions)}." if versions else origin(used)
    if len(stored) < len(keys):
        text += f" **{len(keys) - len(stored)} of {len(keys)} fits are missing.**"
    return "\n\n".join([text, *_failures(failed)])


def _failures(failed: Sequence[Record]) -> list[str]:
    if not failed:
        return []
    lines = [
        f"- {record.task['method']} on {record.task['dataset']}, split {record.task['split']}: {record.error}"
        for record in failed
    ]
    return ["Fits that failed:\n\n" + "\n".join(lines)]
