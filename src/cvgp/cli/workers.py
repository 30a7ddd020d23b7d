"""Commands that run as one of several processes."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cvgp.parallel.launcher import launched

__all__ = ["join_workers"]


def join_workers() -> AbstractContextManager[Any]:
    """Meet the processes that torchrun started beside this one, if it did."""
    if launched().world == 1:
        return nullcontext()
    from cvgp.parallel.process_group import process_group

    return process_group()
