"""One fit on a Ray cluster: Ray Train starts the workers, replaces those that are lost, and keeps the checkpoints.

Every worker runs the estimator's own fit as one process of a group (`cvgp.parallel.process_group`) and reads its
own parts of the table. If a worker is lost, all others end too. Ray starts them again, and they continue from the
last checkpoint in the storage.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from cvgp.adapters.ray.connection import absolute, connect, import_ray
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError, WorkerError
from cvgp.parallel.group import Group
from cvgp.parallel.process_group import process_group, worker_timeout
from cvgp.training.monitor import FitEvent

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.estimators.regressor import CVGPRegressor

MODEL_FILE = "model.cvgp"


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
    on_fitted: Callable[[CVGPRegressor, TrainingTable], None] | None = None,
    **parameters: Any,
) -> CVGPRegressor:
    """Fit a `CVGPRegressor` to a table on the workers of a Ray cluster.

    The cluster is the one that the program has joined (`connect`, or ``ray.init``), or a new one on this machine.

    Parameters
    ----------
    dataset : path, glob, list of these, or ray.data.Dataset
        A table in files that every worker can reach. A Ray dataset is first stored as Parquet in `storage`, since
        training reads its rows many times.
    target : str or list of str
        The columns to predict; all others are features.
    storage : path or address
        A folder, or a place in an object store, that every worker can reach: checkpoints and the model go there.
    name : str or None
        A folder of its own in `storage`. A name that was used before continues that run.
    num_workers, cpus_per_worker : int
        Processes, and the threads of each. With the parameter `device` of ``cuda`` each takes a GPU as well.
    max_failures : int
        How often lost workers are replaced before the fit is given up.
    seconds_between : float
        The least time between two checkpoints.
    fit_options : mapping or None
        Further arguments of `CVGPRegressor.fit`: `sample_weight`, `impute` and so on.
    on_fitted : function or None
        Called in the first worker with the fitted model and the table, before the model is stored.
    **parameters
        Those of the estimator, without `checkpoint_dir` and `callbacks`. Its own `target` is the transform of y.

    Returns
    -------
    CVGPRegressor
        Fitted, on this machine.

    Raises
    ------
    MissingDependencyError
        If Ray is not installed.
    InvalidInputError
        If a parameter, the table or the target cannot be used.
    WorkerError
        If workers were lost more than `max_failures` times; the same call with the same `name` continues.

    Warns
    -----
    CVGPWarning
        If the cluster has too few processors, so that the fit waits for more.

    Examples
    --------
    >>> from cvgp.adapters import ray as on_ray
    >>> on_ray.connect("auto")  # doctest: +SKIP
    >>> model = on_ray.fit("s3://bucket/taxi/", "fare", storage="s3://bucket/runs", num_workers=8)  # doctest: +SKIP
    """
    for reserved in ("checkpoint_dir", "callbacks"):
        if parameters.pop(reserved, None) is not None:
            raise InvalidInputError(f"{reserved} cannot be set here, since Ray keeps the checkpoints; leave it out.")
    ray = import_ray()
    connect()
    wanted, there = num_workers * cpus_per_worker, ray.cluster_resources().get("CPU", 0.0)
    if there < wanted:
        warnings.warn(
            f"The cluster has {there:.0f} processors, and {num_workers} workers need {wanted}: the fit waits until "
            "there are more. Ask for fewer workers if the cluster does not grow.",
            CVGPWarning,
            stacklevel=2,
        )
    name = name or f"cvgp-{uuid.uuid4().hex[:12]}"
    place = absolute(storage)
    if isinstance(dataset, ray.data.Dataset):
        dataset = _stored(dataset, f"{place}/{name}-table")
    mishaps = ray.remote(num_cpus=0)(_Mishaps).remote()
    use_gpu = str(parameters.get("device", "auto")).startswith("cuda")
    trainer = ray.train.torch.TorchTrainer(
        _work,
        train_loop_config={
            "dataset": absolute(dataset),
            "target": target,
            "parameters": parameters,
            "fit_options": dict(fit_options or {}),
            "on_fitted": on_fitted,
            "seconds_between": seconds_between,
            "threads": cpus_per_worker,
            "mishaps": mishaps,
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
            f"The fit was given up after its workers were lost {max_failures + 1} times ({error}). Its checkpoints are "
            f"in {place}/{name}: the same call with name={name!r} continues from them."
        ) from error
    failure = ray.get(mishaps.first.remote())
    if failure is not None:
        raise failure
    from cvgp.estimators.saving import load

    with result.checkpoint.as_directory() as folder:
        model: CVGPRegressor = load(Path(folder) / MODEL_FILE)
    model.n_bad_rows_ = result.metrics["n_bad_rows"]
    for text in result.metrics["warnings"]:  # the first worker's, which nobody would read in its log
        warnings.warn(text, CVGPWarning, stacklevel=2)
    return model


class _Mishaps:
    """Errors that a new worker would meet again, such as a bad row; one worker notes them, and the others ask."""

    def __init__(self) -> None:
        self._errors: list[CVGPError] = []

    def note(self, error: CVGPError) -> None:
        self._errors.append(error)

    def first(self) -> CVGPError | None:
        return self._errors[0] if self._errors else None


def _work(config: dict[str, Any]) -> None:
    """What every worker does."""
    import ray

    torch.set_num_threads(config["threads"])
    try:
        with process_group() as group:
            _fit(group, config)
    except WorkerError:
        if ray.get(config["mishaps"].first.remote()) is None:
            raise
    except CVGPError as error:
        ray.get(config["mishaps"].note.remote(error))
        if dist.is_initialized():
            dist.destroy_process_group()  # so that the others do not wait for this one


def _fit(group: Group, config: dict[str, Any]) -> None:
    import ray.train

    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.estimators.regressor import CVGPRegressor

    with tempfile.TemporaryDirectory(prefix="cvgp-") as local:
        folder = Path(local) / "progress"
        stored = ray.train.get_checkpoint()
        if stored is not None and group.rank == 0:
            stored.to_directory(str(folder))
        reporter = _Reporter(group, folder, config["seconds_between"])
        model = CVGPRegressor(**config["parameters"], checkpoint_dir=folder, callbacks=[reporter])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CVGPWarning)
            table = TrainingTable(config["dataset"], config["target"], **config["fit_options"], group=group)
            model.fit(table, config["target"])
        if group.rank == 0:
            if config["on_fitted"] is not None:
                config["on_fitted"](model, table)
            model.save(folder / MODEL_FILE)
        said = list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, CVGPWarning)))
        reporter.report({"elbo": float(model.elbo_), "n_bad_rows": int(model.n_bad_rows_), "warnings": said})


class _Reporter:
    """A callback that hands the checkpoint of the first worker over to Ray, at moments that all workers agree on."""

    def __init__(self, group: Group, folder: Path, seconds_between: float) -> None:
        self.group = group
        self.folder = folder
        self.seconds_between = seconds_between
        self._last = time.monotonic()

    def __call__(self, event: FitEvent) -> None:
        if event.phase.startswith("start"):
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


def _stored(dataset: Any, place: str) -> str:
    """A Ray dataset as Parquet files, unless an earlier run of the name has left them."""
    import pyarrow.fs as pafs

    filesystem, path = pafs.FileSystem.from_uri(place if "://" in place else f"file://{place}")
    if filesystem.get_file_info(path).type == pafs.FileType.NotFound:
        dataset.write_parquet(place)
    return place
