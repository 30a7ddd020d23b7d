"""The modes of torch that a caller's thread may be in, and that cvgp leaves for its own work.

Results must not depend on them, and what is learned in one of them must be of use outside. Gradients are switched on
by those who need them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_HOME = os.getpid()
"""The process that has imported cvgp; another one is its fork."""


@contextmanager
def usual_modes() -> Iterator[None]:
    """Torch as it is at the start of a process: no inference mode, no other device, no automatic lower precision.

    In a forked child it has one thread: the threads of GNU's OpenMP are not forked, and work for them is waited for in
    vain.

    Tensors that are made in inference mode can never be learned. The modes belong to the thread, so that other threads
    do not notice. The type of new tensors (``torch.set_default_dtype``) belongs to the process; cvgp names the type of
    each tensor instead.
    """
    with ExitStack() as stack:
        if os.getpid() != _HOME:
            stack.enter_context(_one_thread())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
