"""The factorised points of a model in eval mode, kept for as long as nothing that they depend on has changed.

GPyTorch's `initialize` writes to `.data`, of which torch keeps no count. So values are compared, not versions.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from cvgp.adapters.botorch.layers import Layer


class Cache(NamedTuple):
    """Layers, and the numbers that they were made of."""

    layers: tuple[Layer, ...]
    values: tuple[Tensor, ...]
    """Copies of the parameters of kernel and mean, and of the points where these have no batch dimensions."""
    batched: tuple[tuple[Tensor, int], ...]
    """Points of fantasies, which are many and live shortly: the tensors themselves, with torch's counts of changes."""

    @classmethod
    def of(cls, layers: Iterable[Layer], modules: Sequence[nn.Module], points: Sequence[Tensor]) -> "Cache":
        """Layers that were made of these just now."""
        small, large = _kept(modules, points)
        copies = tuple(tensor.detach().clone() for tensor in small)
        return cls(tuple(layers), copies, tuple((tensor, tensor._version) for tensor in large))

    def holds(self, modules: Sequence[nn.Module], points: Sequence[Tensor]) -> bool:
        """Whether modules and points are still what the layers were made of."""
        small, large = _kept(modules, points)
        return (
            len(small) == len(self.values)
            and len(large) == len(self.batched)
            and all(_equal(mine, theirs) for mine, theirs in zip(self.values, small, strict=True))
            and all(
                mine is theirs and version == theirs._version
                for (mine, version), theirs in zip(self.batched, large, strict=True)
            )
        )


def _kept(modules: Sequence[nn.Module], points: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    learned = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    small = [tensor for tensor in points if tensor.ndim <= 2]
    return learned + small, [tensor for tensor in points if tensor.ndim > 2]


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    same_kind = mine.shape == theirs.shape and mine.dtype == theirs.dtype and mine.device == theirs.device
    return same_kind and bool(mine.equal(theirs))
