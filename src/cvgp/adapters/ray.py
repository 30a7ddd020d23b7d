"""One fit by the workers of a Ray cluster. Needs the extra `ray`.

Every worker runs the estimator's own fit as one process of a group (`cvgp.parallel.group`), on its own parts of the
table. If one is lost, Ray restarts all of them, and they continue from the last checkpoint in the storage.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError, WorkerError, optional_packages
from cvgp.fitting.monitor import FitEvent
from cvgp.parallel.group import Group, process_group, worker_timeout

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

__all__ = ["connect", "fit"]

MODEL_FILE = "model.cvgp"


def connect(address: str = "local") -> None:
    """Join a Ray cluster, or start one on this machine; a program that has joined one keeps it.

    Parameters
    ----------
    address : str
        The address that ``ray start --head`` printed, ``auto`` for the one of this machine, or ``local`` for a new one.

    Examples
    --------
    >>> from cvgp.adapters import ray as on_ray
    >>> on_ray.connect("local")  # doctest: +SKIP
    """
    ray = _import_ray()
    if ray.is_initialized():
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise WorkerError(
            f"Could not join a Ray cluster at {address!r} ({reason}). Give the address that `ray start --head` "
            "printed, 'auto' for the cluster of this machine, or 'local' to start one."
        ) from error


def _import_ray() -> Any:
    with optional_packages():
        import ray
        import ray.train
        import ray.train.torch
    return ray


def absolute(place: Any) -> Any:
    """A path, or several, made absolute, since workers run in other folders; an address as it is."""
    if isinstance(place, list | tuple):
        return [absolute(one) for one in place]
    if isinstance(place, str | os.PathLike) and "://" not in os.fspath(place):
        return os.path.abspath(place)
    return place


def fit(
    dataset: Any,
    target: str | Sequence[str],
    /,
    *,
    storage: str | os.PathLike[str],
    name: str | None = None,
    num_workers: int = 2,
    cpus_per_worker: int = 1,
    max_failures: int = 3,
    seconds_between: float = 30.0,
    fit_options: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> CVGPRegressor:
    """Fit a `CVGPRegressor` to a table on the workers of the Ray cluster that the program has joined, or of a new one.

    Parameters
    ----------
    dataset : path, glob, or list of these
        A table in files that every worker can reach.
    target : str or list of str
        The columns to predict; all others are features.
    storage : path or address
        A folder that every worker can reach, or a place in an object store: for checkpoints and the model.
    name : str or None
        The name of the run, a folder in `storage`. A name that was used before continues that run.
    num_workers, cpus_per_worker : int
        Processes, and the threads of each. With the parameter `device` of ``cuda`` each takes a GPU as well.
    max_failures, seconds_between : int, float
        How often lost workers are replaced, and the least time between two checkpoints.
    fit_options : mapping or None
        Further arguments of `cvgp.read_table`: `sample_weight`, `impute` and so on.
    **parameters
        As `set_params` takes them, except ``training__checkpoint_dir`` and ``training__callbacks``.

    Returns
    -------
    CVGPRegressor
        Fitted, on this machine.

    Raises
    ------
    WorkerError
        If workers were lost more than `max_failures` times; the same call with the same `name` continues.

    Examples
    --------
    >>> from cvgp.adapters import ray as on_ray
    >>> on_ray.connect("auto")  # doctest: +SKIP
    >>> model = on_ray.fit("s3://bucket/taxi/", "fare", storage="s3://bucket/runs", num_workers=8)  # doctest: +SKIP
    """
    for reserved in ("training__checkpoint_dir", "training__callbacks"):
        if parameters.pop(reserved, None) is not None:
            raise InvalidInputError(f"{reserved} cannot be set here, since Ray keeps the checkpoints; leave it out.")
    ray = _import_ray()
    connect()
    needed, available = num_workers * cpus_per_worker, ray.cluster_resources().get("CPU", 0.0)
    if available < needed:
        warnings.warn(
            f"The cluster has {available:.0f} processors, and {num_workers} workers need {needed}: the fit waits until "
            "there are more. Ask for fewer workers if the cluster does not grow.",
            CVGPWarning,
            stacklevel=2,
        )
    name = name or f"cvgp-{uuid.uuid4().hex[:12]}"
    place = absolute(storage)
    failure = ray.remote(num_cpus=0)(_Failure).remote()
    use_gpu = str(parameters.get("device", "auto")).startswith("cuda")
    trainer = ray.train.torch.TorchTrainer(
        _work,
        train_loop_config={
            "dataset": absolute(dataset),
            "target": target,
            "parameters": parameters,
            "fit_options": dict(fit_options or {}),
            "seconds_between": seconds_between,
            "threads": cpus_per_worker,
            "failure": failure,
        },
        torch_config=ray.train.torch.TorchConfig(
            backend="cpu:gloo,cuda:nccl" if use_gpu else "gloo", timeout_s=math.ceil(worker_timeout())
        ),
        scaling_config=ray.train.ScalingConfig(
            num_workers=num_workers, use_gpu=use_gpu, resources_per_worker={"CPU": cpus_per_worker}
        ),
        run_config=ray.train.RunConfig(
            name=name,
            storage_path=place,
            failure_config=ray.train.FailureConfig(max_failures=max_failures),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    try:
        result = trainer.fit()
    except ray.train.v2.api.exceptions.TrainingFailedError as error:
        raise WorkerError(
            f"The fit failed after its workers were lost {max_failures + 1} times ({error}). Its checkpoints are in "
            f"{place}/{name}: the same call with name={name!r} continues from them."
        ) from error
    found = ray.get(failure.get.remote())
    if found is not None:
        raise found
    from cvgp.estimators.persistence import load

    with result.checkpoint.as_directory() as folder:
        model: CVGPRegressor = load(Path(folder) / MODEL_FILE)
    model.n_bad_rows_ = result.metrics["n_bad_rows"]
    for text in result.metrics["warnings"]:  # the first worker's, which would stay unread in its log
        warnings.warn(text, CVGPWarning, stacklevel=2)
    return model


class _Failure:
    """An error that a restarted worker would meet again, such as a bad row: one worker sets it, and the others ask."""

    _error: CVGPError | None = None

    def set(self, error: CVGPError) -> None:
        self._error = error

    def get(self) -> CVGPError | None:
        return self._error


def _work(config: dict[str, Any]) -> None:
    import ray

    torch.set_num_threads(config["threads"])
    try:
        with process_group() as group:
            _fit(group, config)
    except WorkerError:
        if ray.get(config["failure"].get.remote()) is None:
            raise
    except CVGPError as error:
        ray.get(config["failure"].set.remote(error))
        if dist.is_initialized():
            dist.destroy_process_group()  # so that the others do not wait for this one


def _fit(group: Group, config: dict[str, Any]) -> None:
    import ray.train

    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.tables.table import read_table

    with tempfile.TemporaryDirectory(prefix="cvgp-") as local:
        folder = Path(local) / "progress"
        stored = ray.train.get_checkpoint()
        if stored is not None and group.rank == 0:
            stored.to_directory(str(folder))
        reporter = _Reporter(group, folder, config["seconds_between"])
        model = CVGPRegressor().set_params(**config["parameters"])
        model.set_params(training__checkpoint_dir=folder, training__callbacks=[reporter])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CVGPWarning)
            model.fit(read_table(config["dataset"], config["target"], **config["fit_options"]))
        if group.rank == 0:
            model.save(folder / MODEL_FILE)
        messages = list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, CVGPWarning)))
        reporter.report({"elbo": float(model.elbo_), "n_bad_rows": int(model.n_bad_rows_), "warnings": messages})


class _Reporter:
    """A callback that passes the first worker's checkpoint to Ray, at moments that all workers agree on."""

    def __init__(self, group: Group, folder: Path, seconds_between: float) -> None:
        self.group, self.folder, self.seconds_between = group, folder, seconds_between
        self._last = time.monotonic()

    def __call__(self, event: FitEvent) -> None:
        if event.phase.startswith("choose"):
            return  # every worker searches its start by itself, and they do not keep step
        is_time = time.monotonic() - self._last >= self.seconds_between
        due = is_time and self.folder.is_dir() and any(self.folder.iterdir())
        (agreed,) = self.group.first([torch.tensor(float(due), dtype=torch.float64)])
        if agreed:
            self.report({"phase": event.phase, "iteration": event.iteration, "bound": event.bound})

    def report(self, metrics: dict[str, Any]) -> None:
        """All workers have to call this together."""
        import ray.train

        checkpoint = ray.train.Checkpoint.from_directory(str(self.folder)) if self.group.rank == 0 else None
        ray.train.report(metrics, checkpoint=checkpoint)
        self._last = time.monotonic()
