"""The start of a fit in the folder of its checkpoint.

A time limit has a say in the start: it caps the size of the coreset, and how many starts are tried. So a run that goes
on with another limit, or on a busier machine, must take the start that it had.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.source import DataSource
from cvgp.errors import FileFormatError
from cvgp.files.atomic import make_folder
from cvgp.files.regular import is_own_file
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.hyperparameters import HELD_ABOVE, HELD_AROUND, hold_above, hold_around, hold_noise, is_held
from cvgp.gp.kernel_names import name_of_kernel
from cvgp.gp.model import CVGP
from cvgp.parallel.group import Group
from cvgp.training.checkpoint import START_FILE, fingerprint, mirrored, refuse_other_fit
from cvgp.training.plan import Settings

FLOATS_AND_FLAGS = ("float32", "float64", "bool", "int64")


def begin_or_recall(
    begin: Callable[[], CVGP],
    blank: Callable[[Coreset, str], CVGP],
    rng: np.random.Generator,
    folder: str | None,
    *,
    identity: Callable[[], str],
    group: Group,
) -> CVGP:
    """The start that the folder holds; a new one, which is stored there, if it holds none.

    Parameters
    ----------
    begin
        Makes a start, and draws from `rng`, which is left in the same state where the start is recalled.
    blank
        Makes a model of the same parts from a coreset and the name of its kernel.
    folder, identity
        Where to store the start, or None; and the name of the fit that it belongs to.
    group
        The processes that begin together.
    """
    if folder is None:
        return begin()
    with mirrored(folder, group) as own:
        path = Path(own) / START_FILE
        if is_own_file(path):
            return _recall(path, identity(), blank, rng)
    model = begin()
    if group.rank == 0:
        make_folder(Path(folder))
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in _tensors(model).items()}
        write_tensors(
            Path(folder) / START_FILE,
            arrays,
            {
                "identity": identity(),
                "kernel": name_of_kernel(model.kernel),
                "held_around": is_held(model.kernel, HELD_AROUND),
                "held_above": is_held(model.kernel, HELD_ABOVE),
                "held_noise": is_held(model.likelihood),
                "trained": model.X_c.requires_grad,
                "rng": rng.bit_generator.state,
            },
        )
    return model


def start_identity(
    kernels: Sequence[Kernel], mean: Mean, source: DataSource, settings: Settings, options: Mapping[str, object]
) -> str:
    """A name for all that decides where a fit starts, but for the time that it is given."""
    init = options["init"]
    points = [torch.as_tensor(a) for a in (init.X, init.y, init.beta)] if isinstance(init, Coreset) else []
    facts = {name: value for name, value in options.items() if name != "init" or not points}
    tensors = [*(p for kernel in kernels for p in kernel.parameters()), *mean.parameters(), *points]
    return fingerprint(
        tensors, source.identity(), replace(settings, max_time=None), repr(kernels), repr(mean), sorted(facts.items())
    )


def _recall(path: Path, identity: str, blank: Callable[[Coreset, str], CVGP], rng: np.random.Generator) -> CVGP:
    tensors, metadata = read_tensors(path)
    try:
        arrays, members = Arrays(tensors), Members(metadata, "start")
        refuse_other_fit(path.parent, members.text("identity") != identity)
        kernel = members.text("kernel")
        is_around, is_above, is_noise = (members.flag(f"held_{what}") for what in ("around", "above", "noise"))
        is_trained = members.flag("trained")
        state = members.take("rng")
        members.close()
        x, y = tensors.get("X_c"), tensors.get("y_c")
        if x is None or y is None or x.ndim != 2 or y.ndim not in (1, 2) or not 0 < len(x) == len(y):
            raise FileFormatError("There are no pseudo-points.")
        model = blank(Coreset(np.zeros(x.shape), np.zeros(y.shape), np.ones(len(x))), kernel)
        # What is stored takes the place of these ones.
        ones = torch.ones(x.shape[1], dtype=torch.float64)
        if is_around:
            hold_around(model.kernel, ones, 1.0)
        if is_above:
            hold_above(model.kernel, ones, ones.new_ones(()))
        if is_noise:
            hold_noise(model.likelihood, ones.new_ones(()))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model.jittered_covariance()  # some kernels make a part of themselves when they are first used
            for name, tensor in _tensors(model).items():
                value = arrays.take(name, tuple(tensor.shape), dtypes=FLOATS_AND_FLAGS, finite=False)
                tensor.copy_(torch.as_tensor(value))
        arrays.close()
        model.X_c.requires_grad_(is_trained)
        try:
            rng.bit_generator.state = state
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise FileFormatError("It holds no state of the random numbers.") from error
    except FileFormatError as error:
        raise FileFormatError(f"{path} is damaged: {error} Remove it to start afresh.") from error
    return model


def _tensors(model: CVGP) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
