"""One fit on a Ray cluster: Ray Train starts the workers, replaces those that are lost, and keeps the checkpoints.

Every worker runs the estimator's own fit as one process of a group (:mod:`cvgp.training.distributed`) and reads its own
parts of the table. A worker that is lost takes the others with it; Ray starts them anew, and they go on from the last
checkpoint in the storage. Needs the extra `ray`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cvgp.errors import CVGPError, InvalidInputError, MissingDependencyError, WorkerError
from cvgp.group import Group
from cvgp.training.distributed import process_group
from cvgp.training.watch import FitEvent

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

__all__ = ["connect", "fit"]

MODEL_FILE = "model.cvgp"
MAX_FAILURES = 3
SECONDS_BETWEEN = 30.0


def connect(address: str = "local") -> None:
    """Join the cluster at an address, or start one on this machine if it is "local"; nothing if there is one already."""
    ray = _import_ray()
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise WorkerError(
            f"Could not join a Ray cluster at {address!r} ({str(error).strip().splitlines()[0]}). Give the address that "
            "`ray start --head` printed, or 'local' to start a cluster on this machine."
        ) from error


def fit(
    dataset: Any,
    target: Any,
    *,
    storage: str,
    num_workers: int = 2,
    cpus_per_worker: int = 1,
    name: str | None = None,
    max_failures: int = MAX_FAILURES,
    seconds_between: float = SECONDS_BETWEEN,
    fit_options: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> CVGPRegressor:
    """Fit a :class:`~cvgp.CVGPRegressor` to a table on the workers of a Ray cluster.

    Parameters
    ----------
    dataset : path, glob, list of paths or ray.data.Dataset
        A table in files that every worker can reach. A Ray dataset is first stored as Parquet under `storage`, since
        training goes over its rows many times.
    target : str or list of str
        The columns to predict.
    storage : str
        A folder that every worker can reach, or the address of an object store: checkpoints, and the model, go there.
    num_workers, cpus_per_worker : int
        Processes, and the threads of each. Workers take a GPU each if `device` is ``cuda``.
    name : str or None
        A folder of its own within `storage`. A name that has been used goes on from the last checkpoint of that run.
    max_failures : int
        How often lost workers are replaced before the fit is given up.
    seconds_between : float
        The least time between two checkpoints.
    fit_options : mapping or None
        What else :meth:`CVGPRegressor.fit` is told about a table: `sample_weight`, `impute` and so on.
    **parameters
        Those of the estimator.
    """
    ray = _import_ray()
    for reserved in ("checkpoint_dir", "callbacks"):
        if parameters.pop(reserved, None) is not None:
            raise InvalidInputError(f"{reserved} is taken by Ray's own checkpoints; leave it out.")
    connect()
    import ray.data
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    use_gpu = str(parameters.get("device", "auto")).startswith("cuda")
    config = {
        "dataset": _as_table(dataset, storage, name),
        "target": target,
        "parameters": parameters,
        "fit_options": dict(fit_options or {}),
        "seconds_between": seconds_between,
        "threads": cpus_per_worker,
    }
    trainer = TorchTrainer(
        _work,
        train_loop_config=config,
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if use_gpu else "gloo", timeout_s=600),
        scaling_config=ray.train.ScalingConfig(
            num_workers=num_workers, use_gpu=use_gpu, resources_per_worker={"CPU": cpus_per_worker}
        ),
        run_config=ray.train.RunConfig(
            name=name,
            storage_path=storage,
            failure_config=ray.train.FailureConfig(max_failures=max_failures),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    try:
        result = trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise _own_failure(error) from error
    with result.checkpoint.as_directory() as folder:
        from cvgp.estimators.files import load

        model: CVGPRegressor = load(Path(folder) / MODEL_FILE)
    return model


def _work(config: dict[str, Any]) -> None:
    """What every worker does."""
    import ray.train

    from cvgp.estimators.regressor import CVGPRegressor

    torch.set_num_threads(config["threads"])
    with process_group() as group, tempfile.TemporaryDirectory(prefix="cvgp-") as local:
        folder = Path(local) / "progress"
        stored = ray.train.get_checkpoint()
        if stored is not None and group.rank == 0:
            stored.to_directory(str(folder))
        reporter = _Reporter(group, folder, config["seconds_between"])
        model = CVGPRegressor(**config["parameters"], checkpoint_dir=folder, callbacks=[reporter])
        model.fit(config["dataset"], config["target"], **config["fit_options"])
        if group.rank == 0:
            model.save(folder / MODEL_FILE)
        reporter.report({"elbo": float(model.elbo_)})


class _Reporter:
    """A callback that hands the checkpoint of the first worker over to Ray, at a moment that all workers agree on."""

    def __init__(self, group: Group, folder: Path, seconds_between: float) -> None:
        self.group = group
        self.folder = folder
        self.seconds_between = seconds_between
        self._last = time.monotonic()

    def __call__(self, event: FitEvent) -> None:
        if event.phase.startswith("start"):
            return  # every worker searches its start by itself, and they do not keep step
        due = (
            time.monotonic() - self._last >= self.seconds_between
            and self.folder.exists()
            and any(self.folder.iterdir())
        )
        (agreed,) = self.group.first([torch.tensor(float(due), dtype=torch.float64)])
        if agreed:
            self.report({"phase": event.phase, "iteration": event.iteration, "bound": event.bound})

    def report(self, metrics: dict[str, Any]) -> None:
        import ray.train

        checkpoint = ray.train.Checkpoint.from_directory(str(self.folder)) if self.group.rank == 0 else None
        ray.train.report(metrics, checkpoint=checkpoint)
        self._last = time.monotonic()


def _import_ray() -> Any:
    try:
        import ray
        import ray.train
    except ImportError as error:
        raise MissingDependencyError(
            f"A Ray cluster needs the package ray ({error}); install it with: pip install 'cvgp[ray]'"
        ) from error
    return ray
