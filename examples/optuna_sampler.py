"""Hyperparameter search with Optuna: CVGPSampler beside TPE and Optuna's own Gaussian process, in value and in time.

Three functions with known minima: Hartmann-6, Ackley in ten dimensions, and Levy in eight, of which two are integers
and two are categories. The first table has the seconds of a suggestion in a study that has finished trials already, the
second the regret, which is the best value so far minus the minimum. A sampler is stopped when it has taken the limit of
seconds.

Run it with ``python examples/optuna_sampler.py [FOLDER] [TRIALS] [SECONDS] [STUDY SIZES...]``; the picture lands in
FOLDER (``demo`` by default). The default is short. The tables in the documentation are those of ``python
examples/optuna_sampler.py demo 400 20 500 1000 2000 5000 50000``.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
from matplotlib.figure import Figure
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import Trial, create_trial

from cvgp.adapters.optuna import CVGPSampler

A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
CHOICES = [-3.0, -1.0, 1.0, 4.0]
SAMPLERS: dict[str, Callable[[], BaseSampler]] = {
    "CVGPSampler": lambda: CVGPSampler(seed=0),
    "TPESampler": lambda: TPESampler(seed=0),
    "GPSampler": lambda: GPSampler(seed=0),
}


def hartmann(trial: Trial) -> float:
    """Hartmann-6, minus its minimum."""
    x = np.array([trial.suggest_float(f"x{d}", 0.0, 1.0) for d in range(6)])
    return 3.32236801 - float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(A * (x - P) ** 2).sum(1)))


def ackley(trial: Trial) -> float:
    """Ackley's function in ten dimensions, whose minimum is not in the middle."""
    x = np.array([trial.suggest_float(f"x{d}", -20.0, 32.0) for d in range(10)])
    return float(20.0 - 20.0 * np.exp(-0.2 * np.sqrt((x**2).mean())) + np.e - np.exp(np.cos(2.0 * np.pi * x).mean()))


def levy(trial: Trial) -> float:
    """Levy's function of four numbers, two integers and two categories."""
    x = [trial.suggest_float(f"x{d}", -10.0, 10.0) for d in range(4)]
    x += [trial.suggest_int(f"i{d}", -10, 10) for d in range(2)]
    x += [trial.suggest_categorical(f"c{d}", CHOICES) for d in range(2)]
    w = 1.0 + (np.array(x) - 1.0) / 4.0
    middle = ((w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:-1] + 1.0) ** 2)).sum()
    return float(np.sin(np.pi * w[0]) ** 2 + middle + (w[-1] - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w[-1]) ** 2))


FUNCTIONS = {"Hartmann, 6": hartmann, "Ackley, 10": ackley, "Levy, 8 mixed": levy}


def search(function: Callable[[Trial], float], sampler: BaseSampler, trials: int, limit: float) -> list[float]:
    """The regret after each trial, up to the time limit."""
    study, begin, best = optuna.create_study(sampler=sampler), time.process_time(), []
    for _ in range(trials):
        study.optimize(function, n_trials=1)
        best.append(study.best_value)
        if time.process_time() - begin > limit:
            break
    return best


def seconds_with(sampler: BaseSampler, size: int, limit: float, repeats: int = 20) -> float:
    """Mean seconds of a suggestion in a study that has finished trials."""
    rng, own = np.random.default_rng(0), {f"x{d}": FloatDistribution(0.0, 1.0) for d in range(6)}
    study = optuna.create_study(sampler=sampler)
    fixed = [optuna.trial.FixedTrial(dict(zip(own, x, strict=True))) for x in rng.random((size, 6)).tolist()]
    study.add_trials([create_trial(params=t.params, distributions=own, value=hartmann(t)) for t in fixed])
    study.optimize(hartmann, n_trials=1)  # the first suggestion looks at all trials once
    begin, count = time.process_time(), 0
    while count < repeats and time.process_time() - begin < limit / 4.0:
        study.optimize(hartmann, n_trials=1)
        count += 1
    return (time.process_time() - begin) / count


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def main(folder: Path, trials: int = 25, limit: float = 2.0, sizes: tuple[int, ...] = (50, 100)) -> None:
    """Search with each sampler, print the tables and draw."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    checkpoints = [trials // 4, trials // 2, trials]
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    *of_regret, of_seconds = figure.subplots(1, 4)
    print("| finished trials | " + " | ".join(SAMPLERS) + " |\n| ---: |" + " ---: |" * len(SAMPLERS))
    found: dict[str, list[float | None]] = {label: [] for label in SAMPLERS}
    for size in sizes:
        for label, make in SAMPLERS.items():
            before = [(n, seconds) for n, seconds in zip(sizes, found[label], strict=False) if seconds is not None]
            # An exact GP needs time with the cube of its trials: the next size is tried if it can be afforded.
            is_exact = label == "GPSampler" and bool(before)
            is_hopeless = is_exact and before[-1][1] * (size / before[-1][0]) ** 3 > limit / 4.0
            found[label].append(None if is_hopeless else seconds_with(make(), size, limit))
        print(f"| {size} | {' | '.join(shown(values[-1]) for values in found.values())} |", flush=True)
    for label, values in found.items():
        known = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
        of_seconds.plot(*zip(*known, strict=True), "o-", label=label)
    of_seconds.set(title="a suggestion", xlabel="finished trials", ylabel="seconds", yscale="log", xscale="log")
    of_seconds.legend()
    print("\n| function | sampler | " + " | ".join(f"{count} trials" for count in checkpoints) + " | stopped after |")
    print("| --- | --- |" + " ---: |" * (len(checkpoints) + 1))
    for axes, (name, function) in zip(of_regret, FUNCTIONS.items(), strict=True):
        for label, make in SAMPLERS.items():
            best = search(function, make(), trials, limit)
            values_at = [shown(best[count - 1] if count <= len(best) else None) for count in checkpoints]
            stopped = f"{len(best)}, at {best[-1]:.2g}" if len(best) < trials else ""
            print(f"| {name} | {label} | {' | '.join(values_at)} | {stopped} |", flush=True)
            axes.plot(range(1, len(best) + 1), np.maximum(best, 1e-9), label=label)
        axes.set(title=name, xlabel="trial", ylabel="best value minus minimum", yscale="log", xscale="log")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "optuna_sampler.png", dpi=100)
    print(f"\npicture: {folder / 'optuna_sampler.png'}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    given = [int(argument) for argument in arguments[1:]]
    main(
        Path(arguments[0] if arguments else "demo"),
        given[0] if given else 25,
        float(given[1]) if len(given) > 1 else 2.0,
        tuple(given[2:]) or (50, 100),
    )
