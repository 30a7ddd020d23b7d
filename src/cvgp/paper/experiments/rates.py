"""The learning rate of each system: chosen from a small grid by the validation rows of the first fold, then kept."""

from cvgp.paper.baselines import method_class
from cvgp.paper.experiments.experiment import Plan, Results, product_keys
from cvgp.paper.protocol import exact_is_possible
from cvgp.paper.store import Key, Record, Store

Cell = tuple[object, object, object]


def _cell(key: Key) -> Cell:
    return key["dataset"], key["method"], key["size"]


def tuned_keys(plan: Plan, store: Store) -> list[Key]:
    """Fold 0 with every rate; the other folds, once fold 0 is done, with the best one for the data set and size."""
    rows = plan.preset.rows
    everything = [
        key
        for rate in plan.preset.learning_rates
        for key in product_keys(plan, learning_rate=rate)
        if key["method"] != "ExactGP" or exact_is_possible(str(key["dataset"]), rows)
    ]
    everything = list({str(key): key for key in everything}.values())  # systems without a rate come once
    tuning = [key for key in everything if key["fold"] == 0]
    keys = list(tuning)
    for key in everything:
        if key["fold"] == 0:
            continue
        rivals = [k for k in tuning if _cell(k) == _cell(key)]
        if len(rivals) == 1:
            keys.append(key)
            continue
        records = [store.get(k) for k in rivals]
        if all(r is not None for r in records) and key["learning_rate"] == _best([r for r in records if r]):
            keys.append(key)
    return sorted(keys, key=lambda k: int(k["fold"] or 0))


def _best(records: list[Record]) -> object:
    """The rate with the best validation log-likelihood; None where every rate failed."""
    finished = [r for r in records if not r.failed]
    if not finished:
        return None
    return max(finished, key=lambda r: r.number("validation_log_likelihood")).task["learning_rate"]


def chosen_rate(results: Results, dataset: object, method: object, size: object) -> object:
    """The rate that was chosen; None for systems without one."""
    records = results.where(dataset=dataset, method=method, size=size, fold=0)
    return _best(records) if records and method_class(str(method)).stochastic else None


def chosen_records(results: Results, dataset: object, method: object, size: object) -> list[Record]:
    """All folds with the chosen rate."""
    rate = chosen_rate(results, dataset, method, size)
    return results.where(dataset=dataset, method=method, size=size, learning_rate=rate)
