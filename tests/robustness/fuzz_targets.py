"""What cvgp reads from others, and how it is asked to read it: model files, checkpoints and tables."""

import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import torch
from typer.testing import CliRunner

import cvgp
from cvgp.cli import app
from cvgp.cli.info import as_text, summarise
from cvgp.data.tables.by_schema import load_rows
from cvgp.data.tables.training_table import TrainingTable
from cvgp.data.tables.writer import write_table
from cvgp.errors import CVGPError
from cvgp.estimators.columns_seen import ColumnsSeen
from cvgp.estimators.frames import schema_of
from cvgp.estimators.simple_models import Baselines
from cvgp.files.tensors import read_tensors
from cvgp.optim.adam import AdamState
from cvgp.training.checkpoint import JOURNAL_FILE, STATE_FILE, Checkpoint
from cvgp.training.monitor import Watch
from tests.robustness.fuzz_fits import odd_fit, run_fit
from tests.robustness.mutations import damage, forge_arrays, forge_header, forge_json, forge_text, tensor_file

__all__ = ["TARGETS", "Corpus"]

ENDINGS = (".csv", ".tsv", ".csv.gz", ".jsonl", ".parquet", ".feather")
IDENTITY = "0123456789abcdef" * 2
SIZE = 6
START = np.zeros(SIZE)
EXTRA = ({"0": torch.zeros(2, 3, dtype=torch.float64)}, {"best": float("inf"), "may_grow": 1.0})


class Corpus:
    """Files as cvgp writes them, to be spoilt.

    Parameters
    ----------
    folder
        An empty folder to work in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        self.frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30), "c": ["x", "y", "z"] * 10})
        self.frame["y"] = np.sin(self.frame["a"]) + 0.1 * rng.normal(size=30)
        self.tables = {ending: self._table(ending) for ending in ENDINGS}
        self.model = self._model()
        self.state, self.journal = self._checkpoint()

    def _table(self, ending: str) -> bytes:
        path = self.folder / f"table{ending}"
        write_table(pa.Table.from_pandas(self.frame), path)
        return path.read_bytes()

    def _model(self) -> bytes:
        table = TrainingTable(self.folder / "table.parquet", "y")
        model = cvgp.CVGPRegressor(5, solver="adam", max_iter=5, random_state=0).fit(table, "y")
        model.save(self.folder / "model.cvgp")
        return (self.folder / "model.cvgp").read_bytes()

    def _checkpoint(self) -> tuple[bytes, bytes]:
        checkpoint = Checkpoint(self.folder, IDENTITY, Watch())
        checkpoint.save_adam(_state(), EXTRA, now=True)
        record = checkpoint.journal(START).evaluate
        for i in range(4):
            record(np.full(SIZE, float(i)), lambda: (1.0, np.ones(SIZE)))
        return (self.folder / STATE_FILE).read_bytes(), (self.folder / JOURNAL_FILE).read_bytes()


def open_model(corpus: Corpus, random: Random) -> None:
    """Load a spoilt model, and use it if it loads."""
    path = corpus.folder / "spoilt.cvgp"
    path.write_bytes(_spoilt_tensors(random, corpus.model, corpus.folder))
    model = cvgp.load(path)
    x = corpus.frame[:3].drop(columns="y")
    model.predict(x, return_std=True)
    as_text(summarise(model), model)
    schema = schema_of(model)
    if schema is not None:
        with suppress(CVGPError):
            load_rows(corpus.folder / "table.parquet", schema)
    model.prune(0.1)
    model.sample_y(x)
    if hasattr(model, "baselines_"):
        Baselines.from_json(model.baselines_, len(model.gp_.scaling.x_mean))
    if hasattr(model, "columns_seen_"):
        ColumnsSeen.from_json(model.columns_seen_, len(model.gp_.scaling.x_mean), len(model.gp_.scaling.y_mean))
    if hasattr(model, "boosting_"):
        model.boosting_.predict(np.zeros((3, len(model.gp_.scaling.x_mean))))


def open_state(corpus: Corpus, random: Random) -> None:
    """Go on with a spoilt checkpoint of Adam."""
    (corpus.folder / JOURNAL_FILE).unlink(missing_ok=True)
    (corpus.folder / STATE_FILE).write_bytes(_spoilt_tensors(random, corpus.state, corpus.folder))
    state = _state()
    if Checkpoint(corpus.folder, IDENTITY, Watch()).load_adam(state, EXTRA) is not None:
        state.gradient.fill_(1.0)
        state.update(0.01)


def open_journal(corpus: Corpus, random: Random) -> None:
    """Go on with a spoilt journal of L-BFGS."""
    (corpus.folder / STATE_FILE).unlink(missing_ok=True)
    (corpus.folder / JOURNAL_FILE).write_bytes(damage(random, corpus.journal))
    replay = Checkpoint(corpus.folder, IDENTITY, Watch()).journal(START).evaluate
    for i in range(6):
        value, gradient = replay(np.full(SIZE, float(i)), lambda: (1.0, np.ones(SIZE)))
        # What is damaged is computed again, so that nothing but the truth comes out.
        assert (value, gradient.tolist()) == (1.0, [1.0] * SIZE)


def open_table(corpus: Corpus, random: Random) -> None:
    """Read a spoilt table, and learn a schema if it can be read."""
    ending = random.choice(ENDINGS)
    path = corpus.folder / f"spoilt{ending}"
    if ending in (".parquet", ".feather") and random.random() < 0.5:
        _write_forged_notes(random, corpus.frame, path)
    else:
        path.write_bytes(damage(random, corpus.tables[ending]))
    TrainingTable(path, "y").load()


def run_command(corpus: Corpus, random: Random) -> None:
    """Give a spoilt model or table to the command line, which must end with a code and no traceback."""
    model, table = corpus.folder / "spoilt.cvgp", corpus.folder / "spoilt.csv"
    spoil_model = random.random() < 0.5
    model.write_bytes(_spoilt_tensors(random, corpus.model, corpus.folder) if spoil_model else corpus.model)
    table.write_bytes(corpus.tables[".csv"] if spoil_model else damage(random, corpus.tables[".csv"]))
    parts = corpus.folder / "parts"
    parts.mkdir(exist_ok=True)
    (parts / "1.parquet").write_bytes(corpus.tables[".parquet"])
    (parts / "2.parquet").write_bytes(damage(random, corpus.tables[".parquet"]))
    out = corpus.folder / "out.csv"
    quick = ["--target", "y", "--out", out, "--coreset", 3, "--max-iter", 2, "--quiet"]
    command = random.choice(
        (
            ["info", model],
            ["coreset", model, "--out", out],
            ["plot", model, "--out", corpus.folder / "out.png"],
            ["predict", model, table, "--out", out],
            ["evaluate", model, table],
            ["predict", model, parts, "--out", out],
            ["fit", table, *quick],
            ["fit", parts, *quick],
        )
    )
    result = CliRunner().invoke(app, [str(argument) for argument in command], prog_name="cvgp")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code


def load_model(corpus: Corpus, random: Random) -> None:
    """Load a spoilt model and no more, which is quick."""
    path = corpus.folder / "spoilt.cvgp"
    path.write_bytes(_spoilt_tensors(random, corpus.model, corpus.folder))
    cvgp.load(path)


def fit_odd_numbers(corpus: Corpus, random: Random) -> None:
    """Fit a small model to odd numbers."""
    run_fit(odd_fit(random))


TARGETS: dict[str, Callable[[Corpus, Random], None]] = {
    "model": open_model,
    "model file": load_model,
    "checkpoint": open_state,
    "journal": open_journal,
    "table": open_table,
    "command": run_command,
    "fit": fit_odd_numbers,
}
OFTEN = {"model": 2, "model file": 8, "checkpoint": 8, "journal": 12, "table": 4, "command": 1, "fit": 4}
"""Quick cases come more often than slow ones."""


def _write_forged_notes(random: Random, frame: pd.DataFrame, path: Path) -> None:
    """A table whose notes for pandas (index, types, categories) lie."""
    table = pa.Table.from_pandas(frame)
    notes = json.loads(table.schema.metadata[b"pandas"])
    for _ in range(random.choice((1, 3))):
        notes = forge_json(random, notes)
    text = forge_text(random) if random.random() < 0.1 else json.dumps(notes)
    table = table.replace_schema_metadata({b"pandas": text.encode("utf-8", "surrogatepass")})
    pq.write_table(table, path) if path.suffix == ".parquet" else feather.write_feather(table, path)


def _spoilt_tensors(random: Random, content: bytes, folder: Path) -> bytes:
    kind = random.randrange(5)
    if kind == 0:
        return damage(random, content)
    if kind == 1:
        return forge_header(random, content)
    (folder / "whole").write_bytes(content)
    arrays, metadata = read_tensors(folder / "whole")
    if kind == 2:
        return tensor_file(arrays, forge_text(random))
    if kind == 3:
        return tensor_file(forge_arrays(random, arrays), json.dumps(metadata))
    for _ in range(random.choice((1, 1, 2, 4))):
        metadata = forge_json(random, metadata)
    return tensor_file(arrays, json.dumps(metadata))


def _state() -> AdamState:
    state = AdamState([torch.zeros(SIZE, dtype=torch.float64)], 0.01)
    state.step, state.updates, state.smoothed = 50, 50, 0.5
    return state


def attempt(target: str, corpus: Corpus, random: Random) -> str:
    """The outcome of one case: `read`, or the name of the error of cvgp; whatever else happens is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TARGETS[target](corpus, random)
        except CVGPError as error:
            str(error)  # a message that cannot be made is an error too
            return type(error).__name__
    return "read"


def seeded(seed: int) -> tuple[str, Random]:
    """The target and the choices of the case that a number stands for."""
    random: Any = Random(seed)
    return random.choices(list(OFTEN), list(OFTEN.values()))[0], random
