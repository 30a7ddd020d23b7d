"""How long a run will take, from a few steps of each system that are measured before it starts."""

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cvgp.paper.baselines import Recipe, method_class
from cvgp.paper.baselines.shared_start import plain_start
from cvgp.paper.experiments.experiment import Plan, recipe_of
from cvgp.paper.splits import Split, fold
from cvgp.paper.store import Key

PROBE_STEPS = 8
FULL_EVALUATIONS = 60
"""How many evaluations L-BFGS is taken to need; it may converge earlier, or later."""
SECONDS_BESIDE = 4.0
"""The search for a start, the scores and the process itself, for each task."""


def estimate_seconds(plan: Plan, keys: Sequence[Key]) -> float:
    """Processor seconds of the tasks, with those of later folds, which wait for the choice of a learning rate."""
    groups = Counter((str(k["dataset"]), str(k["method"]), k["size"]) for k in keys)
    total = 0.0
    for (dataset, method, size), count in groups.items():
        key = next(k for k in keys if (k["dataset"], k["method"], k["size"]) == (dataset, method, size))
        stochastic = method_class(method).stochastic
        # The folds after the first become tasks only when their rate is known.
        if stochastic and len(plan.preset.learning_rates) > 1 and count == len(plan.preset.learning_rates):
            count += plan.folds - 1
        split = fold(dataset, 0, plan.preset.rows)
        recipe = recipe_of(key)
        per_step = _seconds_per_step(method, int(size or 1), split, recipe)
        steps = recipe.num_steps(len(split.y)) if stochastic else min(recipe.evaluations, FULL_EVALUATIONS)
        total += count * (steps * per_step + SECONDS_BESIDE)
    return total


def _seconds_per_step(method: str, size: int, split: Split, recipe: Recipe) -> float:
    """Between the second and the last of a few steps, from a start that costs nothing."""
    start = plain_start(split.x, split.y, size)
    cls = method_class(method)
    count = PROBE_STEPS if cls.stochastic else 2
    short = replace(recipe, steps=count, epochs=None, evaluations=count, patience=None, full_batch="lbfgs")
    times: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cls(size, recipe=short).fit(
            split.x, split.y, start=start, on_step=lambda step: times.append(time.perf_counter())
        )
    return (times[-1] - times[1]) / max(len(times) - 2, 1)
