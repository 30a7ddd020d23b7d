"""A model per shard, fitted in Ray tasks, and one model merged from them: one round of communication."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cvgp.adapters.ray.connection import absolute, connect, import_ray
from cvgp.errors import InvalidInputError, WorkerError

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor


def fit_and_merge(
    shards: Sequence[Any],
    target: str | Sequence[str],
    *,
    cpus_per_shard: int = 1,
    fit_options: Mapping[str, Any] | None = None,
    merge_options: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> CVGPRegressor:
    """Fit a model to each shard in a Ray task of its own, and merge the models.

    Only the models are sent, once each. A task whose worker is lost is run again, up to three times.

    Parameters
    ----------
    shards : sequence of paths, globs or lists of these
        Tables in files, each where the worker that gets it can reach it; no row may be in two of them.
    target : str or list of str
        The columns to predict; all others are features.
    cpus_per_shard : int
        The threads of each task.
    fit_options, merge_options : mapping or None
        Further arguments of `CVGPRegressor.fit` and `cvgp.merge`.
    **parameters
        Those of the estimator.

    Returns
    -------
    CVGPRegressor
        The merged model; with one shard, its own.

    Raises
    ------
    MissingDependencyError
        If Ray is not installed.
    InvalidInputError
        If there is no shard, or one cannot be fitted.
    WorkerError
        If a task was lost too often.

    Examples
    --------
    >>> from cvgp.adapters import ray as on_ray
    >>> on_ray.fit_and_merge(["2024.parquet", "2025.parquet"], "price", random_state=0)  # doctest: +SKIP
    """
    from cvgp.estimators.merging import merge
    from cvgp.estimators.saving import load

    if len(shards) == 0:
        raise InvalidInputError("There is no shard to fit: give the places of at least one.")
    ray = import_ray()
    connect()
    task = ray.remote(num_cpus=cpus_per_shard, max_retries=3)(_fit_shard)
    places = [absolute(shard) for shard in shards]
    waiting = [task.remote(place, target, parameters, dict(fit_options or {}), cpus_per_shard) for place in places]
    models = []
    with tempfile.TemporaryDirectory(prefix="cvgp-") as local:
        for number, answer in enumerate(waiting):
            file = Path(local) / f"{number}.cvgp"
            try:
                file.write_bytes(ray.get(answer))
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise WorkerError(f"The task of shard {number} was lost again and again ({error}).") from error
            models.append(load(file))
    return models[0] if len(models) == 1 else merge(models, **dict(merge_options or {}))


def _fit_shard(place: Any, target: Any, parameters: dict[str, Any], fit_options: dict[str, Any], threads: int) -> bytes:
    """The file of a model of one shard."""
    from cvgp.estimators.regressor import CVGPRegressor

    torch.set_num_threads(threads)
    model = CVGPRegressor(**parameters).fit(place, target, **fit_options)
    with tempfile.TemporaryDirectory(prefix="cvgp-") as local:
        file = Path(local) / "model.cvgp"
        model.save(file)
        return file.read_bytes()
