"""The processes that work on one fit, as the code that sums over data sees them.

Every process runs the same program on its own rows. Values that must agree are summed over all processes or taken from
the first. Each method here waits for all processes, so all must call the same methods in the same order.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from cvgp.errors import FactorisationError, WorkerError


class Group(Protocol):
    """Processes numbered from 0 to `world` - 1, of which this one is number `rank`."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def world(self) -> int:
        """How many processes there are."""

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over all processes, in float64 and in one message; the same bits everywhere."""

    def first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The float64 values of process 0; the others give tensors of the same shapes."""

    def first_bytes(self, content: bytes) -> bytes:
        """The bytes that process 0 gives."""

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows of every process, in the order of their numbers; only the number of rows may differ."""


class Alone:
    """A single process."""

    rank = 0
    world = 1

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors."""
        return list(tensors)

    def first(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors."""
        return list(tensors)

    def first_bytes(self, content: bytes) -> bytes:
        """The bytes."""
        return content

    def gather(self, rows: Tensor) -> list[Tensor]:
        """The rows."""
        return [rows]


ALONE = Alone()


def sum_of(group: Group, compute: Callable[[], Sequence[Tensor]], like: Sequence[Tensor]) -> list[Tensor]:
    """The sums of what each process computes, with shapes as those of `like`.

    A process whose computation fails still takes part, with NaN. So all processes fail, and go back, together.
    """
    failure: Exception | None = None
    try:
        mine = compute()
    except (FactorisationError, FloatingPointError) as error:
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
