"""Rows that lack some of several targets: they join a fit to rows that have all of them (§17 of the mathematics)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.coreset import Coreset
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import learn_warped_scaling
from cvgp.data.source import MemorySource, add_noise
from cvgp.errors import InvalidInputError
from cvgp.estimators.coresets import CANDIDATES, with_points
from cvgp.estimators.training_summary import summarize_features
from cvgp.fitting.options import ModelOptions
from cvgp.fitting.outputs import learn_factors, model_of, set_pseudo_outputs, sums_of
from cvgp.fitting.prepare import choose_scaling, merge_copies
from cvgp.fitting.solve import set_site_noise
from cvgp.gp.bounds import Statistics
from cvgp.gp.outputs import Outputs
from cvgp.gp.sites import randomly_pivoted
from cvgp.objectives import CHUNK_ROWS, statistics

MOST_NEW_POINTS = 400  # as many as a fit chooses by default


def begin_with_block(rows: Rows[Array], options: ModelOptions) -> tuple[Rows[Array], ModelOptions, Callable[..., None]]:
    """The rows that a fit begins with, of the outputs with the most targets, its options, and what follows it."""
    known = ~np.isnan(rows.y)
    refused = {"n_neighbors": options.n_neighbors not in ("auto", 0), "groups": rows.cluster is not None}
    refused["private"] = options.private
    refused["target_transform"] = options.target_transform not in ("auto", "identity")
    refused["an output without any target"] = not known.any(axis=0).all()
    if asked := [name for name, is_asked in refused.items() if is_asked]:
        raise InvalidInputError(
            f"{(~known).any(axis=1).sum()} of {len(known)} rows lack some targets, and {' and '.join(asked)} cannot be "
            "used with such rows. Leave the rows out, or fit without it."
        )
    order = np.argsort(-known.sum(axis=0), kind="stable")
    counts = [size * known[:, order[:size]].all(axis=1).sum() for size in range(1, len(order) + 1)]
    outputs = np.sort(order[: int(np.argmax(counts)) + 1])
    is_whole = known[:, outputs].all(axis=1)
    size = options.n_coreset and max(int(options.n_coreset * is_whole.mean()), 1)  # the other rows get the rest
    options = replace(options, n_coreset=size, n_neighbors=0, target_transform="identity")
    join = partial(join_rows, rows=rows, outputs=outputs, options=options)
    return rows.take(is_whole)._replace(y=rows.y[is_whole][:, outputs]), options, join


@torch.no_grad()
def join_rows(
    estimator: Any, rng: np.random.Generator, rows: Rows[Array], outputs: NDArray[np.intp], options: ModelOptions
) -> None:
    """Solve for all outputs, in place, each by all rows that have it, with more points for the rows that join."""
    gp, rows = estimator._gp, merge_copies(rows)
    learned = choose_scaling(learn_warped_scaling(gp.scaling.warp, rows), options)
    y_mean, y_scale = learned.y_mean.copy(), learned.y_scale.copy()
    y_mean[outputs], y_scale[outputs] = gp.scaling.y_mean, gp.scaling.y_scale
    y_scale = y_scale if options.standardize else np.full_like(y_scale, gp.scaling.y_scale[0])
    scaling = gp.scaling._replace(y_mean=y_mean, y_scale=y_scale)
    data = scaling.tensors(rows, device=options.device)
    if gp.weighs_rows:
        data = add_noise(data, gp.noise.beyond_base)
    is_new, old = np.isnan(rows.y[:, outputs]).any(axis=1), gp.model
    count = min(int(len(old.X_c) * is_new.sum() / (~is_new).sum()), MOST_NEW_POINTS)
    new = data.x[torch.as_tensor(rng.permutation(np.flatnonzero(is_new))[:CANDIDATES])]
    new = new[randomly_pivoted(old.kernel, new, count, rng, present=old.X_c)] if count else new[:0]
    larger = with_points(old, new)
    model = old.with_coreset(Coreset(larger.X_c, data.x.new_zeros(len(larger.X_c), len(y_mean)), larger.beta))

    one, every = model_of(model, 0, torch.ones_like(model.noise)), MemorySource(*data)
    own = [MemorySource(*data._replace(y=y).take(~y.isnan())) for y in data.y.mT]
    sums = [statistics(one, source.chunks(CHUNK_ROWS)) for source in own]
    factors, bounds = zip(*map(partial(learn_factors, one), own, sums), strict=True)
    means = [torch.stack(parts).mean(0) for parts in zip(*sums, strict=True)]
    estimator._statistics = Statistics(*means)._replace(b=torch.cat([part.b for part in sums], 1))
    model.adopt_optimum(estimator._statistics)  # weights that suit all outputs
    set_site_noise(model, every)
    solved = Outputs(torch.cat(factors), tuple(sums_of(part, 0, c) for part, c in zip(sums, factors, strict=True)))
    set_pseudo_outputs(model, solved)
    calibration = gp.calibration if len(outputs) == len(y_mean) else None
    estimator._gp = replace(gp, model=model, scaling=scaling, outputs=solved, calibration=calibration)
    missing = every.total_weight - np.array([source.total_weight for source in own])
    estimator._set_bound(torch.cat(bounds).sum().item(), every.total_weight, float(missing @ np.log(y_scale)))
    estimator.__dict__.pop("_baselines", None)  # of an earlier fit
    summarize_features(estimator, rows.x, rows.y, rows.sample_weight)
