"""Groups for tests: threads that meet in place of processes, and real processes that torchrun starts."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from cvgp.parallel.group import Group

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
RAY_WARNINGS = ("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray", "ignore::ResourceWarning")
"""Ray's own, of parts of it that are not used here."""


class ThreadGroup(Group):
    """One of several threads that exchange tensors in memory."""

    def __init__(self, rank: int, board: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.world = rank, len(board)
        self._board, self._barrier = board, barrier

    def _exchange(self, value: T) -> list[T]:
        self._board[self.rank] = value
        self._barrier.wait()
        values = list(self._board)
        self._barrier.wait()
        return values

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        every = self._exchange([t.detach().to(torch.float64).clone() for t in tensors])
        return [torch.stack(parts).sum(0) for parts in zip(*every, strict=True)]

    def first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self._exchange([t.detach().to(torch.float64).clone() for t in tensors])[0]

    def first_bytes(self, content: bytes) -> bytes:
        return self._exchange(content)[0]

    def gather(self, rows: Tensor) -> list[Tensor]:
        return self._exchange(rows.clone())


def run_in_threads(world: int, work: Callable[[ThreadGroup], T]) -> list[T]:
    """What each of `world` members of a group returns; the first failure is raised."""
    board: list[Any] = [None] * world
    barrier = threading.Barrier(world, timeout=30)
    results: list[Any] = [None] * world
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadGroup(rank, board, barrier))
        except BaseException as error:
            if not isinstance(error, threading.BrokenBarrierError):
                failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def torchrun(*arguments: object, world: int = 2, **environment: str) -> "subprocess.Popen[str]":
    """Start `world` processes of a program (`-m module` or a file, and what it is told)."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        env={**os.environ, **variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def worker_pids(launcher: int, world: int, seconds: float = 300.0) -> list[int]:
    """The processes that a torchrun has started, in the order of their ranks, once they are all there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = {}
        for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            with suppress(OSError):
                variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                found.update({int(v[5:]): int(child) for v in variables if v.startswith(b"RANK=")})
        if len(found) == world:
            return [found[rank] for rank in range(world)]
        time.sleep(0.05)
    raise AssertionError(f"torchrun started {found} instead of {world} workers")
