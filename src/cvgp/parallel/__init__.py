"""Processes that work on one fit, as the launcher (torchrun or similar) sets the environment; loads without torch."""

import os
from typing import NamedTuple


class Launch(NamedTuple):
    """The numbers of this process and of those that were started with it."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1  # processes on this machine
    address: str = ""  # where the processes connect to each other


def launched() -> Launch:
    """The launch that this process is part of; a single process if there was no launcher."""
    try:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT'])}"
        local_rank, local_world = (int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    except (KeyError, ValueError):
        return Launch()
    return Launch(rank, world, local_rank, max(local_world, 1), address) if world > 1 else Launch()
