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

from cvgp import errors
from cvgp.cli.predict import Asked, Predictor
from cvgp.errors import CVGPError, FileAccessError
from cvgp.files import access_errors
from cvgp.tables.encode import KINDS, Findings
from cvgp.tables.read import open_table
from cvgp.tables.write import table_writer

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.tables.columns import Schema
    from cvgp.tables.formats import CsvOptions


def fit_on_ray(
    address: str, workers: int, data: str, target: str, reading: dict[str, Any], parameters: dict[str, Any]
) -> CVGPRegressor:
    """The fitted model."""
    from cvgp.adapters import ray

    storage = Path(parameters.pop("training__checkpoint_dir"))
    ray.connect(address)
    try:
        return ray.fit(
            data, target, storage=storage, name="fit", num_workers=workers, fit_options=reading, **parameters
        )
    except KeyboardInterrupt as stop:
        raise type(stop)(f"The same command continues from the checkpoints in {storage}.") from stop


def predict_on_ray(
    address: str, workers: int, predictor: Predictor, data: str, csv: CsvOptions, out: Path
) -> list[str]:
    """Predict the parts of a table as tasks of Ray Data, into a folder that appears when it is complete."""
    from cvgp.adapters.ray import absolute, connect

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileAccessError(f"Cannot write the folder {out}, which is there already; choose another name.")
    opened = open_table(data, csv, predictor.schema.reading)
    names = predictor.names(opened.names)
    connect(address)
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    temporary = out.absolute().with_name(f".cvgp-{token_hex(8)}.tmp")
    with ExitStack() as stack:
        stack.enter_context(access_errors(f"write the folder {out}"))
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        temporary.mkdir()
        numbers = [{"part": number} for number in range(len(opened.parts))]
        # Given, not read: a task that reads would wait for a processor that the predictors have taken.
        given = ray.data.from_items(numbers, override_num_blocks=len(numbers))
        told = (predictor.model, predictor.schema, predictor.asked, absolute(data), csv, temporary)
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
    """Predicts parts of a table, each into a file of its own, and counts their rows."""

    def __init__(
        self, model: CVGPRegressor, schema: Schema, asked: Asked, data: str, csv: CsvOptions, folder: Path
    ) -> None:
        self.model, self.schema, self.asked, self.folder = model, schema, asked, folder
        self.opened = open_table(data, csv, schema.reading)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        predictor = Predictor(self.model, self.schema, self.asked)
        failure: CVGPError | None = None
        number = int(batch["part"][0])  # the only one of its batch
        try:
            tables = predictor.tables(self.opened, [self.opened.parts[number]])
            first = next(tables, None)
            if first is not None:  # a file without rows would have no columns
                with table_writer(self.folder / f"part-{number:06d}.parquet") as write:
                    for table in chain([first], tables):
                        write(table)
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
