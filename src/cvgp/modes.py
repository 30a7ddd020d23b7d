"""The modes of torch that a caller's thread may be in, and that cvgp leaves for its own work.

Results must not depend on them, and what is learned in one of them must be of use outside. Gradients are switched on
by those who need them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def usual_modes() -> Iterator[None]:
    """Torch as it is at the start of a process: no inference mode, no other device, no automatic lower precision.

    Tensors that are made in inference mode can never be learned. The modes belong to the thread, so that other threads
    do not notice. The type of new tensors (``torch.set_default_dtype``) belongs to the process; cvgp names the type of
    each tensor instead.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        yield
