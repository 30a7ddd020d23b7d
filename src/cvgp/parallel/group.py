"""The processes that work on one fit, as code that sums over data uses them.

Every process runs the same program on its own rows. Values that must agree are summed over all processes or taken from
the first. Each method waits for all processes, so all must call the same methods in the same order.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cvgp.errors import FactorizationError, WorkerError


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
    """The sums of what each process computes, with shapes as those of `like`.

    A process whose computation fails still takes part, with NaN, so that all processes fail and recover together.
    """
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
