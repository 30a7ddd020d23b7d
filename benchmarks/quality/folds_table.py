"""The quality that was reached beside its targets, from stored results."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks.quality.folds import (
    ISOTROPIC,
    OURS,
    PAPER_RMSE,
    TARGET_COVERAGE,
    TARGET_RMSE,
    Method,
    Plan,
    task,
    tasks,
    tuned_peer,
)
from cvgp.paper.markdown import markdown_table, mean_and_error, origin
from cvgp.paper.store import Record, Store

__all__ = ["report"]

TARGETS_HEADER = ("set", "setting", "measure", "reached", "target", "result")
COMPARISON_HEADER = ("set", "method", "RMSE", "mean log-likelihood", "90 % coverage", "seconds", "folds", "failures")


@dataclass(frozen=True)
class Results:
    """The folds of one method on one set."""

    method: Method
    records: list[Record]

    @property
    def finished(self) -> list[Record]:
        """Folds with a result."""
        return [record for record in self.records if not record.failed]

    def values(self, metric: str) -> list[float]:
        """A metric on every finished fold."""
        return [record.metrics[metric] for record in self.finished]

    def mean(self, metric: str) -> float:
        """Mean over the finished folds."""
        return mean(self.values(metric))


def report(plan: Plan, store: Store) -> str:
    """Targets with what was reached, then all methods side by side."""
    targets, comparison = [], []
    for dataset in plan.datasets:
        if "a" in plan.parts and dataset in PAPER_RMSE:
            isotropic = _results(plan, store, dataset, ISOTROPIC)
            targets += _rmse_target(plan, dataset, isotropic, PAPER_RMSE[dataset], "the paper's")
            comparison.append(_comparison_row(dataset, "cvgp, isotropic RBF", isotropic))
        if "b" in plan.parts:
            ours, peer = (
                _results(plan, store, dataset, OURS),
                _results(plan, store, dataset, tuned_peer(plan, store, dataset)),
            )
            if dataset in TARGET_RMSE:
                targets += _rmse_target(plan, dataset, ours, TARGET_RMSE[dataset], "")
            targets += _peer_targets(plan, dataset, ours, peer)
            comparison.append(_comparison_row(dataset, "cvgp, defaults", ours))
            comparison.append(_comparison_row(dataset, f"SVGP, rate {peer.method.learning_rate}", peer))
    planned = tasks(plan, store, range(plan.folds))
    records = [record for t in planned if (record := store.get(t.key)) is not None]
    missing = len(planned) - len(records)
    unfinished = f" **{missing} fits are missing.**" if missing else ""
    passed = sum(row[-1] == "pass" for row in targets)
    summary = f"{passed} of {len(targets)} targets are met. M = {plan.size}. {origin(records)}{unfinished}"
    return "\n\n".join(
        [
            markdown_table(TARGETS_HEADER, targets, num_text=3),
            markdown_table(COMPARISON_HEADER, comparison, num_text=2),
            summary,
        ]
    )


def _results(plan: Plan, store: Store, dataset: str, method: Method) -> Results:
    found = [store.get(task(plan, dataset, fold, method).key) for fold in range(plan.folds)]
    return Results(method, [record for record in found if record is not None])


def _rmse_target(plan: Plan, dataset: str, results: Results, target: float, note: str) -> list[list[str]]:
    setting = "isotropic RBF" if results.method is ISOTROPIC else "defaults"
    goal = f"<= {target:g} {note}".strip()
    if not results.finished:
        return [[dataset, setting, "RMSE", "-", goal, "not run"]]
    reached = results.mean("rmse")
    return [[dataset, setting, "RMSE", f"{reached:.4f}", goal, _verdict(plan, [results], reached <= target)]]


def _peer_targets(plan: Plan, dataset: str, ours: Results, peer: Results) -> list[list[str]]:
    if not ours.finished or not peer.finished:
        return [[dataset, "defaults", "mean log-likelihood", "-", "above SVGP's", "not run"]]
    reached, theirs, covered = ours.mean("log_likelihood"), peer.mean("log_likelihood"), ours.mean("coverage")
    above = _verdict(plan, [ours, peer], reached > theirs)
    enough = _verdict(plan, [ours], covered >= TARGET_COVERAGE)
    return [
        [dataset, "defaults", "mean log-likelihood", f"{reached:.4f}", f"> {theirs:.4f}, SVGP's", above],
        [dataset, "defaults", "90 % coverage", f"{covered:.3f}", f">= {TARGET_COVERAGE:g}", enough],
    ]


def _verdict(plan: Plan, compared: Sequence[Results], reached: bool) -> str:
    """A target is met only by all folds; before that the word says how many there are."""
    if any(record.failed for results in compared for record in results.records):
        return "a fit failed"
    folds = min(len(results.finished) for results in compared)
    word = "pass" if reached else "FAIL"
    return word if folds == plan.folds else f"{word} so far, {folds} of {plan.folds} folds"


def _comparison_row(dataset: str, name: str, results: Results) -> list[str]:
    failures = str(len(results.records) - len(results.finished))
    if not results.finished:
        return [dataset, name, "-", "-", "-", "-", "0", failures]
    return [
        dataset,
        name,
        mean_and_error(results.values("rmse"), ".4f"),
        mean_and_error(results.values("log_likelihood"), ".4f"),
        f"{results.mean('coverage'):.3f}",
        f"{results.mean('seconds'):.1f}",
        str(len(results.finished)),
        failures,
    ]
