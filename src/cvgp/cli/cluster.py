"""`cvgp fit` and `cvgp predict` on a Ray cluster."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import typer

from cvgp import errors
from cvgp.cli.checkpoints import check_stored
from cvgp.cli.options import Asked, OnBadRows
from cvgp.cli.predictor import Predictor
from cvgp.data.uncertain import KINDS, Findings
from cvgp.errors import CVGPError, FileAccessError
from cvgp.files.atomic import access_errors

if TYPE_CHECKING:
    from cvgp.data.reading import CsvOptions
    from cvgp.data.schema import Schema
    from cvgp.estimators.regressor import CVGPRegressor

RUN = "fit"
"""The folder in the storage that the checkpoints of a fit are in."""


def check_storage(storage: Path | None, resume: bool) -> None:
    """Refuse, before any work, a folder that does not go with what was asked."""
    if storage is None:
        raise typer.BadParameter(
            "workers of a cluster keep their progress in a folder that all of them reach; name it.",
            param_hint="'--checkpoint-dir'",
        )
    check_stored(storage, resume, stored=(storage / RUN).exists())


def fit_on_ray(
    address: str,
    workers: int,
    data: str,
    target: str,
    reading: dict[str, Any],
    parameters: dict[str, Any],
) -> CVGPRegressor:
    """The fitted model."""
    from cvgp.adapters import ray

    storage = Path(parameters["checkpoint_dir"])
    ray.connect(address)
    try:
        return ray.fit(
            data,
            target,
            storage=storage,
            name=RUN,
            num_workers=workers,
            fit_options=reading,
            **{**parameters, "checkpoint_dir": None},
        )
    except KeyboardInterrupt as stop:
        raise type(stop)(f"What the workers have stored is in {storage}; --resume goes on with it.") from stop


def predict_on_ray(
    address: str, workers: int, predictor: Predictor, data: str, csv: CsvOptions, out: Path
) -> list[str]:
    """Predict the parts of a table as tasks of Ray Data, into a folder that takes its place when it is whole."""
    from cvgp.adapters.ray import connect
    from cvgp.adapters.ray.connection import absolute
    from cvgp.data.tables.location import open_dataset
    from cvgp.data.tables.reader import list_parts

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileAccessError(f"Cannot write the folder {out}, which is there already; choose another name.")
    dataset = open_dataset(data, csv, predictor.schema.reading)
    names = predictor.names(dataset.schema.names)
    connect(address)
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    temporary = out.absolute().with_name(f".cvgp-{token_hex(8)}.tmp")
    with ExitStack() as stack:
        stack.enter_context(access_errors(f"write the folder {out}"))
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        temporary.mkdir()
        numbers = [{"part": number} for number in range(len(list_parts(dataset)))]
        # Given, not read: a task that reads would wait for a processor that the predictors have taken.
        given = ray.data.from_items(numbers, override_num_blocks=len(numbers))
        told = (
            predictor.model,
            predictor.schema,
            predictor.on_bad_rows,
            predictor.asked,
            absolute(data),
            csv,
            temporary,
        )
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
            findings = json.loads(str(counts["findings"]))
            counted = {kind: Counter(findings[kind]) for kind in KINDS}
            predictor.findings.add(Findings(**counted, first=findings["first"]))
        predictor.check_some(data)
        os.replace(temporary, out)
    return names


class _PartPredictor:
    """Predicts parts of a table, each into a file of its own, and tells how many rows they had."""

    def __init__(
        self,
        model: CVGPRegressor,
        schema: Schema,
        on_bad_rows: OnBadRows,
        asked: Asked,
        data: str,
        csv: CsvOptions,
        folder: Path,
    ) -> None:
        from cvgp.data.tables.location import open_dataset
        from cvgp.data.tables.reader import list_parts

        self.model, self.schema, self.on_bad_rows, self.asked, self.folder = model, schema, on_bad_rows, asked, folder
        self.dataset = open_dataset(data, csv, schema.reading)
        self.parts = list_parts(self.dataset)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        predictor = Predictor(self.model, self.schema, self.on_bad_rows, self.asked)
        failure: CVGPError | None = None
        number = int(batch["part"][0])  # the only one of its batch
        try:
            self._predict(predictor, number)
        except CVGPError as error:
            failure = error
        return {
            "rows": [predictor.rows],
            "empty": [predictor.empty],
            "findings": [json.dumps(vars(predictor.findings))],
            # An error of ours is passed on as data: Ray keeps only the text of those that end a task.
            "error": ["" if failure is None else type(failure).__name__],
            "message": ["" if failure is None else str(failure)],
        }

    def _predict(self, predictor: Predictor, number: int) -> None:
        from cvgp.data.tables.writer import table_writer

        tables = predictor.tables(self.dataset, [self.parts[number]])
        first = next(tables, None)
        if first is None:
            return  # a file of such a part would have no columns
        with table_writer(self.folder / f"part-{number:06d}.parquet") as write:
            for table in chain([first], tables):
                write(table)
