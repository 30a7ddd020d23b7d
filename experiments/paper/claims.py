"""The paper's claims, each tested by the stored results of a preset.

A difference is tested fold by fold. Folds share training rows, so the variance of their mean is that of Nadeau and
Bengio (2003), and the means of several data sets are pooled with Satterthwaite's degrees of freedom. A claim that two
systems are on par needs an interval within a margin. The p-values of all claims are corrected by Holm's method.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments.paper.studies.complexity import exponent, series
from experiments.paper.study import VALIDATION, Results, chosen_records
from experiments.splits import NUM_FOLDS, TRAIN_SHARE
from experiments.store import Record

LEVEL = 0.05
SIZES = (50, 100, 200)
PAR = 0.02
"""Two systems are on par if their RMSE differs by less than this, in standard deviations of the target."""
OVERLAP = 1.0 / ((NUM_FOLDS - 1) * TRAIN_SHARE)
"""Scored rows to training rows of a fold."""
REAL = ("wine", "skillcraft", "parkinsons", "bike", "protein")
ROUNDING = 1e-6
MANY = 0.1
"""The share of weights that counts as many."""
HOLDS, DOES_NOT, UNTESTED, NOT_RUN = "holds", "does not hold", "cannot be tested here", "not run yet"

Stores = Mapping[str, Results]
"""The results of one preset, by study."""
Value = Callable[[Record], float]


class Finding(NamedTuple):
    """What the results say about a claim."""

    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """The ends of the 95 % interval."""
    p: float = math.nan
    """Of the claim being false by chance; NaN where nothing can be tested."""
    count: str = ""
    """Data sets and folds that it rests on."""
    verdict: str = NOT_RUN
    note: str = ""
    opposite: bool = False
    """Whether the interval shows that the contrary is true."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words, and how it is tested."""

    name: str
    text: str
    unit: str
    """What the effect is, and in which units."""
    find: Callable[[Stores], Finding]


def verdicts(stores: Stores) -> list[tuple[Claim, Finding]]:
    """Every claim with its finding, after Holm's correction."""
    found = [claim.find(stores) for claim in CLAIMS]
    tested = sorted((f.p, i) for i, f in enumerate(found) if not math.isnan(f.p))
    largest = 0.0
    for rank, (p, i) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        found[i] = found[i]._replace(p=largest, verdict=HOLDS if largest < LEVEL else DOES_NOT)
    return list(zip(CLAIMS, found, strict=True))


# Tests


def pooled(
    differences: Mapping[str, Sequence[float]], *, margin: float | None = None, num_sets: int | None = None
) -> Finding:
    """Whether the mean difference is below zero or, with a margin, within it; differences by data set and fold.

    `num_sets` is how many data sets the claim is about, if that may be more.
    """
    usable = {name: values for name, values in differences.items() if len(values) > 1}
    if not usable:
        return Finding(note="fewer than two folds" if differences else "")
    means = [mean(values) for values in usable.values()]
    parts = [(1.0 / len(v) + OVERLAP) * variance(v) / len(usable) ** 2 for v in usable.values()]
    effect, spread = mean(means), math.sqrt(sum(parts))
    sets = _counted(len(usable), "set") if num_sets in (None, len(usable)) else f"{len(usable)} of {num_sets} sets"
    count = f"{sets}, {sum(map(len, usable.values()))} folds"
    if spread == 0.0:
        excess = effect if margin is None else abs(effect) - margin
        p, opposite = 0.0 if excess < 0.0 else 1.0, excess > 0.0
        return Finding(effect, effect, effect, p, count, note="the same on every fold", opposite=opposite)
    freedom = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, usable.values(), strict=True))
    reach = float(stats.t.ppf(1.0 - LEVEL / 2, freedom)) * spread
    if margin is None:
        p = float(stats.t.cdf(effect / spread, freedom))
        opposite = effect - reach > 0.0
    else:  # two one-sided tests
        p = max(
            float(stats.t.cdf((effect - margin) / spread, freedom)),
            float(stats.t.sf((effect + margin) / spread, freedom)),
        )
        opposite = abs(effect) - reach > margin
    return Finding(effect, effect - reach, effect + reach, p, count, opposite=opposite)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _differences(
    results: Results | None,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    value: Value,
    datasets: Sequence[str] = REAL,
    by: str = VALIDATION,
) -> dict[str, dict[Any, float]]:
    """Ours minus theirs, by data set and by the folds that both have."""
    found = {}
    for dataset in datasets if results is not None else ():
        assert results is not None
        mine, other = (
            {r.task["fold"]: value(r) for r in chosen_records(results, by, dataset=dataset, **which)}
            for which in (ours, theirs)
        )
        pairs = {fold: mine[fold] - other[fold] for fold in mine if fold in other}
        found[dataset] = {fold: difference for fold, difference in pairs.items() if not math.isnan(difference)}
    return found


def _metric(name: str, sign: float = 1.0) -> Value:
    return lambda record: sign * record.number(name)


def _between(
    study: str,
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    metric: str,
    *,
    sign: float = 1.0,
    margin: float | None = None,
    datasets: Sequence[str] = REAL,
    by: str = VALIDATION,
) -> Callable[[Stores], Finding]:
    """A test that ours is lower than theirs (times the sign), or within the margin of it."""

    def find(stores: Stores) -> Finding:
        differences = _differences(stores.get(study), ours, theirs, _metric(metric, sign), datasets, by)
        folds = {name: list(values.values()) for name, values in differences.items()}
        found = pooled(folds, margin=margin, num_sets=len(datasets))
        return _with_sign(found, sign)

    return find


def _same_sizes(ours: str, theirs: str, metric: str, sign: float = 1.0, margin: float | None = None) -> Any:
    """Two systems at equal M: the mean over sizes on each fold, since sizes share their rows."""

    def find(stores: Stores) -> Finding:
        results, by_fold = stores.get("predictive"), dict[str, dict[Any, list[float]]]()
        for size in SIZES:
            systems = ({"method": method, "size": size} for method in (ours, theirs))
            for dataset, folds in _differences(results, *systems, _metric(metric, sign)).items():
                for fold, difference in folds.items():
                    by_fold.setdefault(dataset, {}).setdefault(fold, []).append(difference)
        means = {dataset: [mean(values) for values in folds.values()] for dataset, folds in by_fold.items()}
        return _with_sign(pooled(means, margin=margin, num_sets=len(REAL)), sign)

    return find


def _with_sign(found: Finding, sign: float) -> Finding:
    ends = (sign * found.low, sign * found.high)
    return found._replace(effect=sign * found.effect, low=min(ends), high=max(ends))


def _both(first: Callable[[Stores], Finding], second: Callable[[Stores], Finding]) -> Callable[[Stores], Finding]:
    """A claim of two parts holds if both do: the larger p-value counts, with the effect that it belongs to."""

    def find(stores: Stores) -> Finding:
        parts = [first(stores), second(stores)]
        if any(math.isnan(part.p) for part in parts):
            return parts[0] if math.isnan(parts[0].p) else parts[1]
        return max(parts, key=lambda part: part.p)

    return find


def _own(study: str, methods: Sequence[str], value: Value, datasets: Sequence[str], note: str = "") -> Any:
    """A test that a number of each record is below zero."""

    def find(stores: Stores) -> Finding:
        results, values = stores.get(study), {}
        for method in methods if results is not None else ():
            for dataset in datasets:
                records = chosen_records(results, dataset=dataset, method=method)  # type: ignore[arg-type]
                numbers = [value(r) for r in records]
                values[f"{dataset} {method}"] = [number for number in numbers if not math.isnan(number)]
        return pooled({name: numbers for name, numbers in values.items() if numbers})._replace(note=note)

    return find


def _closest_to_exact(rival: str) -> Callable[[Stores], Finding]:
    """Jensen-Shannon divergence of the posteriors of f from the exact GP's, CVGP minus a rival, over the data."""

    def find(stores: Stores) -> Finding:
        results, differences = stores.get("posterior1d"), {}
        for dataset in ("synthetic1", "synthetic2", "synthetic3") if results is not None else ():
            assert results is not None
            distance = {m: _distances(results, dataset, m) for m in ("CVGP", rival)}
            folds = [fold for fold in distance["CVGP"] if fold in distance[rival]]
            differences[dataset] = [distance["CVGP"][fold] - distance[rival][fold] for fold in folds]
        return pooled({name: values for name, values in differences.items() if values})

    return find


def _distances(results: Results, dataset: str, method: str) -> dict[Any, float]:
    from experiments.divergences import jensen_shannon_marginals

    exact = {r.task["fold"]: results.arrays(r) for r in results.where(dataset=dataset, method="ExactGP")}
    found = {}
    for record in chosen_records(results, dataset=dataset, method=method):
        truth, own = exact.get(record.task["fold"]), results.arrays(record)
        if truth is None:
            continue
        x, data = truth["x"], truth["x_train"]
        inside = (x >= data.min()) & (x <= data.max())
        parts = (np.asarray(a[name][inside], dtype=np.float64) for a in (truth, own) for name in ("mean", "f_sd"))
        found[record.task["fold"]] = float(jensen_shannon_marginals(*parts).mean())
    return found


def _optimum(stores: Stores) -> Finding:
    results = stores.get("optimum")
    if results is None or not results.records:
        return Finding()
    losses = [r.number("sparse") - r.number("diagonal") for r in results.records]
    return Finding(
        mean(losses),
        min(losses),
        max(losses),
        math.nan,
        _counted(len(losses), "fit"),
        DOES_NOT if max(losses) > 1e-6 else HOLDS,
    )


def _exponents(stores: Stores) -> Finding:
    results = stores.get("complexity")
    if results is None or not results.records:
        return Finding()
    chosen = series(results, OURS, "size")
    slope = exponent(chosen, "size", "parameters")
    return Finding(
        slope, slope, slope, math.nan, f"{len(chosen)} sizes", HOLDS if abs(slope - 1.0) < 0.05 else DOES_NOT
    )


def _untested(why: str) -> Callable[[Stores], Finding]:
    return lambda stores: Finding(verdict=UNTESTED, note=why)


def _system(method: str, size: int | None = None) -> dict[str, Any]:
    return {"method": method} | ({} if size is None else {"size": size})


SVGP, PPGPR, OURS, RANDOM = "SVGP", "PPGPR", "CVGP", "RandomCVGP"
GAP_SETS = ("wine", "skillcraft", "parkinsons", "bike")
SYNTHETIC = tuple(f"synthetic{number}" for number in range(1, 6))
MOONS = SYNTHETIC[-1:]
CLAIMS = (
    Claim(
        "CVGP beats SVGP", "CVGP has a lower RMSE than SVGP of the same size", "RMSE", _same_sizes(OURS, SVGP, "rmse")
    ),
    Claim(
        "CVGP beats SVGP in density",
        "CVGP has a higher PPLL than SVGP of the same size",
        "nats",
        _same_sizes(OURS, SVGP, "joint_log_likelihood", -1.0),
    ),
    Claim(
        "CVGP beats PPGPR",
        "CVGP has a lower RMSE than PPGPR of the same size",
        "RMSE",
        _same_sizes(OURS, PPGPR, "rmse"),
    ),
    Claim(
        "CVGP (50) beats SVGP (200)",
        "CVGP with 50 points has a lower RMSE than SVGP with 200",
        "RMSE",
        _between("predictive", _system(OURS, 50), _system(SVGP, 200), "rmse"),
    ),
    Claim(
        "CVGP (50) beats PPGPR (200)",
        "CVGP with 50 points has a lower RMSE than PPGPR with 200",
        "RMSE",
        _between("predictive", _system(OURS, 50), _system(PPGPR, 200), "rmse"),
    ),
    Claim(
        "CVGP on par with SparseGP",
        f"the RMSE of CVGP and SparseGP of the same size differs by less than {PAR}",
        "RMSE",
        _same_sizes(OURS, "SparseGP", "rmse", margin=PAR),
    ),
    Claim(
        "more points help",
        "CVGP with 200 points has a lower RMSE than with 50",
        "RMSE",
        _between("predictive", _system(OURS, 200), _system(OURS, 50), "rmse"),
    ),
    Claim(
        "SVGP short of SparseGP",
        "SVGP rarely reaches SparseGP of the same size: its RMSE is higher",
        "RMSE",
        _same_sizes("SparseGP", SVGP, "rmse"),
    ),
    Claim(
        "robust to the start",
        f"the RMSE of RandomCVGP and CVGP of the same size differs by less than {PAR}",
        "RMSE",
        _same_sizes(RANDOM, OURS, "rmse", margin=PAR),
    ),
    Claim(
        "PPGPR overfits",
        "PPGPR's RMSE improves to the end of training while its PPLL falls from its best value",
        "nats, and RMSE",
        _both(
            _own("evolution", (PPGPR,), lambda r: r.number("joint_end") - r.number("joint_best"), GAP_SETS),
            _own("evolution", (PPGPR,), lambda r: r.number("rmse_end") - r.number("rmse_at_best"), GAP_SETS),
        ),
    ),
    Claim(
        "tighter bound",
        "with equal, fixed hyperparameters CVGP's bound is closer to log p(y) than SVGP's of the same size",
        "nats per row",
        _between("gaps", _system(OURS, 50), _system(SVGP, 50), "gap", datasets=GAP_SETS, by="objective"),
    ),
    Claim(
        "CVGP (50)'s bound beats SVGP (200)'s",
        "with equal, fixed hyperparameters CVGP's bound with 50 points is closer to log p(y) than SVGP's with 200",
        "nats per row",
        _between("gaps", _system(OURS, 50), _system(SVGP, 200), "gap", datasets=GAP_SETS, by="objective"),
    ),
    Claim(
        "closer posterior",
        "CVGP's Jensen-Shannon divergence from the exact posterior is smaller than SVGP's of the same size",
        "nats",
        _between("gaps", _system(OURS, 50), _system(SVGP, 50), "jensen_shannon", datasets=GAP_SETS, by="objective"),
    ),
    Claim(
        "one-dimensional posterior",
        "CVGP's posterior of f is closer to the exact one than SVGP's and PPGPR's, on synthetic 1 to 3",
        "Jensen-Shannon, nats",
        _both(_closest_to_exact(SVGP), _closest_to_exact(PPGPR)),
    ),
    Claim(
        "up-weighted points far from f",
        "on synthetic 3 heavy pseudo-outputs lie farther from f where the noise is strong, x in (1, 2), than elsewhere",
        "units of y, negated",
        _own(
            "posterior1d",
            (OURS,),
            lambda r: r.number("heavy_distance_quiet") - r.number("heavy_distance_noisy"),
            ("synthetic3",),
        ),
    ),
    Claim(
        "RandomCVGP drops points",
        f"more than {MANY:.0%} of RandomCVGP's weights fall below a hundredth of N / M",
        f"{MANY:.0%} minus the share",
        _own(
            "weights", (RANDOM,), lambda r: MANY - r.number("negligible"), tuple(f"synthetic{i}" for i in range(1, 6))
        ),
    ),
    Claim(
        "two moons",
        "CVGP's weighted points resemble the density of the two moons more than SVGP's and PPGPR's do",
        "total variation",
        _both(
            *(
                _between("density2d", _system(OURS), _system(rival), "total_variation", datasets=MOONS)
                for rival in (SVGP, PPGPR)
            )
        ),
    ),
    Claim(
        "PPGPR does not return to the prior",
        "when the noise added to bike is strongest, CVGP is closer to its prior than PPGPR",
        "KL, nats",
        _between(
            "interpolation",
            _system(OURS) | {"added_sd": 8.0},
            _system(PPGPR) | {"added_sd": 8.0},
            "kl",
            datasets=("bike",),
        ),
    ),
    Claim(
        "the same optimum",
        "CVGP and SparseGP have the same optimal bound (with a diagonal Sigma it is an inequality)",
        "SparseGP's bound minus CVGP's, nats per row",
        _optimum,
    ),
    Claim("O(M) parameters", "the number of parameters grows like M", "fitted exponent", _exponents),
    Claim("slice and song", "the results on the two largest sets", "", _untested("the data cannot be had here")),
)
