"""Damaged model files, checkpoints, tables and odd fits: each must be read, or raise an error of cvgp.

A case is determined by its number. ``python -m tests.robustness.fuzzing FIRST SECONDS`` runs cases one after another in
a process with limits on memory and time, and prints those that failed.
"""

import json
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from typer.testing import CliRunner, Result

import cvgp
from cvgp.cli import app
from cvgp.cli.info import summarize
from cvgp.errors import CVGPError
from cvgp.estimators.frames import schema_of
from cvgp.fitting.checkpoint import ADAM_FILE, LBFGS_FILE, Checkpoint
from cvgp.fitting.minibatches import adam_fields, restore_adam
from cvgp.fitting.monitor import Run
from cvgp.optim import AdamState
from cvgp.tables.apply import load_rows
from cvgp.tables.files import write_table
from cvgp.tables.table import read_table
from tests.robustness import mutations
from tests.robustness.fuzz_fits import odd_fit, run_fit
from tests.robustness.mutations import damage, read_parts, tensor_file

ENDINGS = (".csv", ".tsv", ".csv.gz", ".jsonl", ".parquet", ".feather")
IDENTITY = "0123456789abcdef" * 2
SIZE = 6
SEARCH = {"point": np.zeros(SIZE), "evaluations": 4, "ended": False}
EXTRA = {"best": torch.zeros(SIZE, dtype=torch.float64), "best_rmse": float("inf"), "may_grow": True}


class Corpus:
    """Files as cvgp writes them, to be spoilt, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        self.frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30), "c": ["x", "y", "z"] * 10})
        self.frame["y"] = np.sin(self.frame["a"]) + 0.1 * rng.normal(size=30)
        self.tables = {ending: self._table(ending) for ending in ENDINGS}
        self.model = self._model()
        self.checkpoints = self._checkpoints()

    def _table(self, ending: str) -> bytes:
        path = self.folder / f"table{ending}"
        write_table(pa.Table.from_pandas(self.frame), path)
        return path.read_bytes()

    def _model(self) -> bytes:
        model = cvgp.CVGPRegressor(5, random_state=0, training=cvgp.TrainingOptions(solver="adam", max_iter=5)).fit(
            self.folder / "table.parquet", "y"
        )
        model.save(self.folder / "model.cvgp")
        return (self.folder / "model.cvgp").read_bytes()

    def _checkpoints(self) -> dict[str, bytes]:
        checkpoint = Checkpoint(self.folder, IDENTITY, Run.alone())
        checkpoint.save(ADAM_FILE, adam_fields(_state()) | EXTRA, now=True)
        checkpoint.save(LBFGS_FILE, SEARCH, now=True)
        return {name: (self.folder / name).read_bytes() for name in (ADAM_FILE, LBFGS_FILE)}


def load_model(corpus: Corpus, random: Random) -> cvgp.CVGPRegressor:
    """Load a spoilt model and no more, which is quick."""
    path = corpus.folder / "spoilt.cvgp"
    path.write_bytes(_spoilt_tensors(random, corpus.model, corpus.folder))
    return cvgp.load(path)


def open_model(corpus: Corpus, random: Random) -> None:
    """Load a spoilt model, and use it if it loads."""
    model = load_model(corpus, random)
    x = corpus.frame[:3].drop(columns="y")
    model.predict(x, return_std=True)
    summarize(model)
    schema = schema_of(model)
    if schema is not None:
        with suppress(CVGPError):
            load_rows(corpus.folder / "table.parquet", schema)
    model.prune(0.1)
    model.sample_y(x)


def open_checkpoint(corpus: Corpus, random: Random) -> None:
    """Go on with a spoilt checkpoint of Adam or of L-BFGS."""
    for name in corpus.checkpoints:
        (corpus.folder / name).unlink(missing_ok=True)
    name, content = random.choice(list(corpus.checkpoints.items()))
    (corpus.folder / name).write_bytes(_spoilt_tensors(random, content, corpus.folder))
    checkpoint, state = Checkpoint(corpus.folder, IDENTITY, Run.alone()), _state()
    if name == LBFGS_FILE:
        checkpoint.load(LBFGS_FILE, SEARCH)
        return
    stored = checkpoint.load(ADAM_FILE, adam_fields(state) | EXTRA)
    if stored is not None:
        restore_adam(state, stored)
        state.gradient.fill_(1.0)
        state.update(0.01)


def open_table(corpus: Corpus, random: Random) -> None:
    """Read a spoilt table, and learn a schema if it can be read."""
    ending = random.choice(ENDINGS)
    path = corpus.folder / f"spoilt{ending}"
    path.write_bytes(damage(random, corpus.tables[ending]))
    read_table(path, "y").learn().load()


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
    out, replace = corpus.folder / "out.csv", "--overwrite"
    quick = ["--target", "y", "--out", out, replace, "--n-coreset", 3, "--max-iter", 2, "--quiet"]
    command = random.choice(
        (
            ["info", model],
            ["coreset", model, "--out", out, replace],
            ["plot", model, "--out", corpus.folder / "out.png", replace],
            ["predict", model, table, "--out", out, replace],
            ["evaluate", model, table],
            ["predict", model, parts, "--out", out, replace],
            ["fit", table, *quick],
            ["fit", parts, *quick],
        )
    )
    result = run_cvgp(*command)
    assert result.exit_code in (0, 1, 2), result.exit_code


def run_cvgp(*arguments: object) -> Result:
    """Run a command; what would be a traceback is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="cvgp")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fit_odd_numbers(corpus: Corpus, random: Random) -> None:
    """Fit a small model to odd numbers."""
    run_fit(odd_fit(random))


TARGETS: dict[str, Callable[[Corpus, Random], object]] = {
    "model": open_model,
    "model file": load_model,
    "checkpoint": open_checkpoint,
    "table": open_table,
    "command": run_command,
    "fit": fit_odd_numbers,
}
OFTEN = {"model": 2, "model file": 8, "checkpoint": 16, "table": 4, "command": 1, "fit": 4}
"""Quick cases come more often than slow ones."""


def _spoilt_tensors(random: Random, content: bytes, folder: Path) -> bytes:
    kind = random.randrange(5)
    if kind == 0:
        return damage(random, content)
    if kind == 1:
        return mutations.forge_header(random, content)
    (folder / "whole").write_bytes(content)
    arrays, metadata = read_parts(folder / "whole")
    if kind == 2:
        return tensor_file(arrays, mutations.forge_text(random))
    if kind == 3:
        return tensor_file(mutations.forge_arrays(random, arrays), json.dumps(metadata))
    for _ in range(random.choice((1, 1, 2, 4))):
        metadata = mutations.forge_json(random, metadata)
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


HEADROOM = 1_000_000_000
"""Bytes of address space beyond what a good file needs; a forged size that is believed runs into it."""
GROWTH = 300_000
"""Kilobytes by which the largest resident size may grow in all."""
SECONDS_A_CASE = 20
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pickle.find_class")
"""What Python reports to an audit hook when a program does more than to read."""


class Hang(BaseException):
    """A case took too long."""


def run_cases(first: int, seconds: float) -> int:
    """Run cases one after another, print those that failed, and return how many ran."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(Path(folder))
        for target in TARGETS:  # imports and caches are paid for before memory is counted
            for number in range(4):
                _outcome(target, corpus, Random(number))
        limit_memory(HEADROOM)
        acts: list[str] = []
        sys.addaudithook(lambda event, arguments: acts.append(event) if event in FORBIDDEN else None)
        before, number = peak(), first
        while time.monotonic() < end:
            target, random = seeded(number)
            failure = _outcome(target, corpus, random)
            if acts:
                failure = f"did {', '.join(acts)}"
                acts.clear()
            elif peak() - before > GROWTH:
                failure, before = f"memory grew by {(peak() - before) / 1e3:.0f} MB", peak()
            if failure:
                print(f"case {number} ({target}): {failure}", flush=True)
            number += 1
    return number - first


def _outcome(target: str, corpus: Corpus, random: Random) -> str:
    """What went wrong; nothing if the file was read, or refused by an error of cvgp."""
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_A_CASE)
    try:
        attempt(target, corpus, random)
    except Hang:
        return f"took more than {SECONDS_A_CASE} s"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _hang(number: int, frame: object) -> None:
    raise Hang


def limit_memory(headroom: int) -> None:
    """Refuse this process more address space than it has now, and some."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + headroom
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def peak() -> int:
    """The largest resident size so far, in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(f"ran {run_cases(int(sys.argv[1]), float(sys.argv[2]))} cases")
