"""What more workers give: measured on one and two, and a cost model from that for up to a thousand."""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from benchmarks.peers.environments import WORK_FOLDER, PeerError
from benchmarks.peers.workers import own_environment
from benchmarks.runner import Task
from cvgp.paper.store import Metrics, Outcome, Store

__all__ = ["WORKERS", "CostModel", "Network", "Plan", "cost_model", "full", "quick", "task", "tasks"]

WORKERS = (1, 2)
PATIENCE = 1800.0


@dataclass(frozen=True)
class Plan:
    """What to measure; rows are those of each worker."""

    size: int
    dims: int
    batches: tuple[int, ...]
    rows: tuple[int, ...]
    repeats: int


def full() -> Plan:
    """What the documentation shows."""
    return Plan(200, 10, (64, 256, 1024), (4096, 16_384, 65_536), repeats=7)


def quick() -> Plan:
    """Whether it works."""
    return Plan(20, 3, (16, 64), (256, 512), repeats=1)


def tasks(plan: Plan) -> list[Task]:
    """One worker, and two of them."""
    return [task(plan, workers) for workers in WORKERS]


def task(plan: Plan, workers: int) -> Task:
    """All times of so many workers."""
    described = {name: str(value) if isinstance(value, tuple) else value for name, value in asdict(plan).items()}
    return Task(
        {"benchmark": "cluster", "workers": workers, "threads": 1, **described}, lambda: _measure(plan, workers)
    )


def _measure(plan: Plan, workers: int) -> Outcome:
    WORK_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK_FOLDER) as name:
        settings = Path(name) / "settings.json"
        settings.write_text(json.dumps(asdict(plan)), encoding="utf-8")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)]
        done = subprocess.run(
            [sys.executable, *(launcher if workers > 1 else []), "-m", "benchmarks.peers.work_cluster", str(settings)],
            env=own_environment(1),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise PeerError(f"{workers} workers ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    found: Metrics = json.loads(lines[-1])
    return Outcome(found)


@dataclass(frozen=True)
class Network:
    """What it takes to send a message from one worker to another."""

    latency: float
    bytes_per_second: float

    def all_reduce(self, workers: int, num_bytes: float) -> float:
        """Seconds of a sum over all workers, passed around a ring twice, as gloo does it."""
        return 2 * (workers - 1) * self.latency + moved(workers, num_bytes) / self.bytes_per_second

    def broadcast(self, workers: int) -> float:
        """Seconds until a few numbers of one worker are with all, by a tree."""
        return float(np.ceil(np.log2(workers))) * self.latency


def moved(workers: int, num_bytes: float) -> float:
    """Bytes that each worker sends in a sum."""
    return 2.0 * (workers - 1) / workers * num_bytes


@dataclass(frozen=True)
class CostModel:
    """Seconds of one worker on one core: a fixed part, and a part per row."""

    step_fixed: float
    step_row: float
    pass_fixed: float
    pass_row: float
    here: Network
    size: int
    dims: int

    @property
    def gradient_bytes(self) -> float:
        """Those of the parameters: pseudo-inputs, pseudo-outputs and weights, lengthscales, scale, noise and loss."""
        return 8.0 * (self.size * (self.dims + 2) + self.dims + 3)

    @property
    def statistics_bytes(self) -> float:
        """Those of what a pass adds up."""
        return 8.0 * (self.size * (self.size + 1) + 3)

    def step(self, workers: int, rows: float, network: Network) -> float:
        """A step of Adam with `rows` of the batch per worker: the sum of gradients, and word whether to go on."""
        meetings = 0.0
        if workers > 1:
            meetings = network.all_reduce(workers, self.gradient_bytes) + network.broadcast(workers)
        return self.step_fixed + self.step_row * rows + meetings

    def evaluation(self, workers: int, rows: float, network: Network) -> float:
        """A pass with `rows` per worker: the sums of statistics and of gradients, a look at the point, and word."""
        meetings = 0.0
        if workers > 1:
            sums = (self.statistics_bytes, self.gradient_bytes, 8.0)
            meetings = sum(network.all_reduce(workers, size) for size in sums) + 2 * network.broadcast(workers)
        return self.pass_fixed + self.pass_row * rows + meetings


def cost_model(plan: Plan, store: Store) -> CostModel | None:
    """From what is stored; None before both have been measured."""
    one, two = (store.finished(task(plan, workers).key) for workers in WORKERS)
    if one is None or two is None:
        return None
    step, evaluation = _line(one.metrics, "step_"), _line(one.metrics, "pass_")
    latency, per_byte = _line(two.metrics, "sum_")
    return CostModel(*step, *evaluation, Network(latency / 2.0, 1.0 / max(per_byte, 1e-12)), plan.size, plan.dims)


def _line(metrics: Metrics, prefix: str) -> tuple[float, float]:
    """The line through times against counts that errs least in proportion; neither part is below zero."""
    counts = np.array([float(name.removeprefix(prefix)) for name in metrics if name.startswith(prefix)])
    times = np.array([value for name, value in metrics.items() if name.startswith(prefix)])
    design = np.stack([np.ones_like(counts), counts], axis=1)
    scale = design.max(axis=0)
    fixed, each = nnls(design / scale / times[:, None], np.ones_like(times))[0] / scale
    return float(fixed), float(each)
