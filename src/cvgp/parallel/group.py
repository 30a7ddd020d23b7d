"""The group of processes that work on one fit: each runs the same program on its own rows.

Each method waits for all processes, so all must call the same methods in the same order.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from cvgp.errors import FactorizationError, InvalidInputError, WorkerError
from cvgp.parallel import Launch, launched

__all__ = ["current_group", "process_group"]


class Group:
    """Processes numbered from 0 to `world` - 1, of which this one is number `rank`; by itself, a single process."""

    rank: int = 0
    world: int = 1

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over all processes, in float64 and in one message; the same bits everywhere."""
        return list(tensors)

    def first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The float64 values of process 0; the others pass tensors of the same shapes."""
        return list(tensors)

    def first_bytes(self, content: bytes) -> bytes:
        """The bytes of process 0."""
        return content

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows of every process, in the order of their numbers; only the number of rows may differ."""
        return [rows]


ALONE = Group()


def sum_of(group: Group, compute: Callable[[], Sequence[Tensor]], like: Sequence[Tensor]) -> list[Tensor]:
    """The sums of what each process computes; one that fails sends NaN, so that all fail and recover together."""
    failure: Exception | None = None
    try:
        mine = compute()
    except (FactorizationError, FloatingPointError) as error:
        failure, mine = error, [torch.full_like(t, torch.nan, dtype=torch.float64) for t in like]
    sums = group.sum(mine)
    if failure is not None:
        raise failure
    return sums


def gather_text(group: Group, text: str) -> list[str]:
    """The texts of all processes."""
    encoded = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return [bytes(part.cpu().numpy()).decode() for part in group.gather(encoded)]


def check_same(group: Group, vector: Tensor, what: str) -> None:
    """Raise an error on all processes if the numbers of one of them differ from those of process 0."""
    if group.world == 1:
        return
    (expected,) = group.first([vector])
    differs = not torch.equal(expected, vector.detach().to(expected))
    (count,) = group.sum([torch.tensor(float(differs), dtype=torch.float64)])
    if count > 0:
        raise WorkerError(
            f"{what} differ in {count:.0f} of {group.world} workers from those of worker 0. Give every worker the same "
            "data and settings, versions of the libraries and kind of processor."
        )


TIMEOUT_VARIABLE = "CVGP_WORKER_TIMEOUT"
DEFAULT_TIMEOUT = 600.0  # seconds for which a process waits for the others: longer than a pass over its rows

_current: Group = ALONE


def current_group() -> Group:
    """Return the group that this process has joined, or a group of this process alone.

    Returns
    -------
    Group
        `rank` is the number of this process, and `world` the number of processes.

    Examples
    --------
    >>> from cvgp.parallel.group import current_group
    >>> current_group().rank, current_group().world
    (0, 1)
    """
    return _current


@contextmanager
def process_group() -> Iterator[Group]:
    """Join the processes that a launcher started, so that every fit inside the `with` is spread over all of them.

    The launcher is torchrun, or a program that has called ``torch.distributed.init_process_group``. All processes have
    to make the same calls in the same order.

    Yields
    ------
    Group
        As :func:`current_group` returns it.

    Raises
    ------
    WorkerError
        If the other processes cannot be reached within CVGP_WORKER_TIMEOUT seconds.

    Examples
    --------
    >>> from cvgp.parallel.group import process_group
    >>> with process_group() as group:
    ...     print(f"process {group.rank} of {group.world}")
    process 0 of 1
    """
    global _current
    launch = launched()
    made_here = not dist.is_initialized() and launch.world > 1
    threads_before = torch.get_num_threads()
    if made_here:
        _join(launch)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        yield ALONE
        return
    group = TorchGroup()
    _current = group
    try:
        yield group
        if made_here:
            # A process that left early would look lost to the others.
            group.sum([torch.zeros(1)])
    finally:
        _current = ALONE
        if made_here:
            dist.destroy_process_group()
            torch.set_num_threads(threads_before)


class TorchGroup(Group):
    """The default process group of torch.distributed as a `Group`."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sums by one all-reduce; every process gets the same bits."""
        return _meet_flat(tensors, dist.all_reduce)

    def first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The values of process 0, by one broadcast."""
        return _meet_flat(tensors, dist.broadcast, 0)

    def first_bytes(self, content: bytes) -> bytes:
        """The bytes of process 0, after their number."""
        length = torch.tensor(len(content))
        _meet(dist.broadcast, length, 0)
        buffer = np.frombuffer(content, np.uint8).copy() if self.rank == 0 else np.empty(int(length), np.uint8)
        if len(buffer):
            _meet(dist.broadcast, torch.from_numpy(buffer), 0)
        return buffer.tobytes()

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows of all processes, by an all-gather of blocks that are padded to one length."""
        counts = torch.zeros(self.world, dtype=torch.int64, device=rows.device)
        counts[self.rank] = len(rows)
        _meet(dist.all_reduce, counts)
        longest = int(counts.max())
        if longest == 0:
            return [rows] * self.world
        block = rows.new_zeros((longest, *rows.shape[1:]))
        block[: len(rows)] = rows
        blocks = [torch.empty_like(block) for _ in range(self.world)]
        _meet(dist.all_gather, blocks, block)
        return [part[: int(count)] for part, count in zip(blocks, counts, strict=True)]


def _join(launch: Launch) -> None:
    timeout = timedelta(seconds=worker_timeout())
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(launch.local_rank)
    try:
        dist.init_process_group(backend, timeout=timeout)
    except RuntimeError as error:
        raise WorkerError(
            f"Could not connect to the other workers of this fit, {launch.world - 1} of them ({_first_line(error)}). "
            f"Check that all were started and can reach {launch.address}."
        ) from error
    # torchrun sets one thread per process unless it is told otherwise.
    if launch.local_world > 1 and os.environ.get("OMP_NUM_THREADS", "1") == "1":
        torch.set_num_threads(max(len(os.sched_getaffinity(0)) // launch.local_world, 1))


def worker_timeout() -> float:
    """Seconds for which a process waits for the others, as the environment says."""
    text = os.environ.get(TIMEOUT_VARIABLE, str(DEFAULT_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e7:
        raise InvalidInputError(f"{TIMEOUT_VARIABLE} must be a number of seconds above 0; got {text!r}.")
    return seconds


def _meet(operation: Callable[..., Any], *arguments: Any) -> None:
    try:
        operation(*arguments)
    except RuntimeError as error:
        raise WorkerError(
            f"Another worker of this fit has ended or no longer answers ({_first_line(error)}). Its own message says "
            "why, if it left one."
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].strip().rstrip(".")


def _meet_flat(tensors: Sequence[Tensor], operation: Callable[..., Any], *arguments: Any) -> list[Tensor]:
    """Apply an operation to all tensors as one message."""
    flat = torch.cat([t.detach().reshape(-1).to(tensors[0].device, torch.float64) for t in tensors])
    _meet(operation, flat, *arguments)
    parts = flat.split([t.numel() for t in tensors])
    return [part.view(t.shape).to(t.device) for part, t in zip(parts, tensors, strict=True)]
