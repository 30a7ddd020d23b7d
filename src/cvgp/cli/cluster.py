"""`cvgp fit` and `cvgp predict` on a Ray cluster."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import typer

from cvgp import errors
from cvgp.cli.model_files import load_model, model_schema
from cvgp.cli.options import Impute, OnBadRows
from cvgp.cli.predictor import Predictor
from cvgp.errors import CVGPError, FileAccessError

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

__all__ = ["check_storage", "fit_on_ray", "predict_on_ray"]

RUN = "fit"
"""The folder in the storage that the checkpoints of a fit are in."""


def check_storage(storage: Path | None, resume: bool) -> None:
    """Refuse, before any work, a folder that does not go with what was asked."""
    if storage is None:
        raise typer.BadParameter(
            "workers of a cluster keep their progress in a folder that all of them reach; name it.",
            param_hint="'--checkpoint-dir'",
        )
    if resume != (storage / RUN).exists():
        message = "holds no run" if resume else "holds an earlier run; add --resume to go on with it, or name another"
        raise typer.BadParameter(f"{storage} {message}.", param_hint="'--checkpoint-dir'")


def fit_on_ray(
    address: str,
    workers: int,
    data: str,
    target: str,
    impute: Impute | None,
    on_bad_rows: OnBadRows,
    parameters: dict[str, Any],
) -> tuple[CVGPRegressor, float]:
    """The fitted model, and the seconds that it took."""
    from cvgp.adapters import ray
    from cvgp.cli.baselines import learn_baselines

    storage = Path(parameters["checkpoint_dir"])
    start = time.perf_counter()
    ray.connect(address)
    try:
        model = ray.fit(
            data,
            target,
            storage=storage,
            name=RUN,
            num_workers=workers,
            fit_options={"impute": None if impute is None else impute.value, "on_bad_rows": on_bad_rows.value},
            on_fitted=learn_baselines,
            **{**parameters, "checkpoint_dir": None},
        )
    except KeyboardInterrupt as stop:
        raise type(stop)(f"What the workers have stored is in {storage}; --resume goes on with it.") from stop
    return model, time.perf_counter() - start


def predict_on_ray(
    address: str, workers: int, predictor: Predictor, model_file: Path, data: str, out: Path
) -> list[str]:
    """Predict the parts of a table as tasks of Ray Data, into a folder that takes its place when it is whole."""
    from cvgp.adapters.ray import connect
    from cvgp.data.tables.location import open_dataset
    from cvgp.data.tables.reader import list_parts

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileAccessError(f"Cannot write the folder {out}, which is there already; choose another name.")
    dataset = open_dataset(data)
    names = predictor.names(dataset.schema.names)
    connect(address)
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    temporary = out.absolute().with_name(f".cvgp-{token_hex(8)}.tmp")
    try:
        temporary.mkdir()
        numbers = [{"part": number} for number in range(len(list_parts(dataset)))]
        # Given, not read: a task that reads would wait for a processor that the predictors have taken.
        given = ray.data.from_items(numbers, override_num_blocks=len(numbers))
        told = (model_file.read_bytes(), _absolute(data), str(temporary), predictor.on_bad_rows.value)
        done = given.map_batches(
            _PartPredictor,
            fn_constructor_args=told,
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        ).take_all()
        for counts in done:
            if counts["error"]:
                raise getattr(errors, str(counts["error"]))(str(counts["message"]))
            predictor.rows += int(counts["rows"])
            predictor.empty += int(counts["empty"])
            predictor.unknown += Counter(json.loads(str(counts["unknown"])))
        predictor.check_some(data)
        os.replace(temporary, out)
    except FileAccessError:
        raise
    except OSError as error:
        raise FileAccessError(f"Could not write the folder {out} ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return names


class _PartPredictor:
    """Predicts parts of a table, each into a file of its own, and tells how many rows they had."""

    def __init__(self, model: bytes, data: str, folder: str, on_bad_rows: str) -> None:
        from cvgp.data.tables.location import open_dataset
        from cvgp.data.tables.reader import list_parts

        with tempfile.TemporaryDirectory() as local:
            path = Path(local) / "model.cvgp"
            path.write_bytes(model)
            self.model = load_model(path)
            self.schema = model_schema(self.model, path)
        self.dataset = open_dataset(data)
        self.parts = list_parts(self.dataset)
        self.folder = Path(folder)
        self.on_bad_rows = OnBadRows(on_bad_rows)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        # An error of ours is passed on as data: Ray keeps only the text of those that end a task.
        counts: dict[str, list[Any]] = {name: [] for name in ("rows", "empty", "unknown", "error", "message")}
        for number in batch["part"]:
            predictor = Predictor(self.model, self.schema, self.on_bad_rows)
            failure: CVGPError | None = None
            try:
                self._predict(predictor, int(number))
            except CVGPError as error:
                failure = error
            counts["rows"].append(predictor.rows)
            counts["empty"].append(predictor.empty)
            counts["unknown"].append(json.dumps(predictor.unknown))
            counts["error"].append("" if failure is None else type(failure).__name__)
            counts["message"].append("" if failure is None else str(failure))
        return counts

    def _predict(self, predictor: Predictor, number: int) -> None:
        from cvgp.data.tables.writer import table_writer

        tables = predictor.tables(self.dataset, [self.parts[number]])
        first = next(tables, None)
        if first is None:
            return  # a file of such a part would have no columns
        with table_writer(self.folder / f"part-{number:06d}.parquet") as write:
            for table in chain([first], tables):
                write(table)


def _absolute(data: str) -> str:
    return data if "://" in data else os.path.abspath(data)
