"""How a system is trained: one value, the same for every system that is compared."""

from dataclasses import dataclass
from typing import Literal

import torch

from cvgp.errors import InvalidInputError


@dataclass(frozen=True)
class Recipe:
    """Steps, schedule and precision.

    Parameters
    ----------
    steps, epochs
        Length of a stochastic run; one of the two. A full-batch run by Adam takes one step per epoch.
    batch_size, learning_rate, schedule
        Of Adam; ``one_cycle`` warms up and comes down to a thousandth of the rate, ``constant`` is the paper's.
    dtype
        Of the minibatches, and of everything in the GPyTorch systems. The M x M algebra of a coreset is float64.
    patience
        Epochs without a better validation RMSE after which to stop and return to the best; None trains to the end.
    full_batch, evaluations
        How ExactGP and SparseGP, which see all data at once, are trained: L-BFGS with a limit on evaluations, or Adam.
    beta_transform
        How a coreset keeps its weights positive; the paper's is softplus.
    """

    steps: int | None = 1500
    epochs: int | None = None
    batch_size: int = 512
    learning_rate: float = 0.03
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    dtype: Literal["float32", "float64"] = "float32"
    patience: int | None = None
    full_batch: Literal["lbfgs", "adam"] = "lbfgs"
    evaluations: int = 200
    beta_transform: Literal["log", "softplus"] = "log"

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InvalidInputError(f"Give either steps or epochs; got {self.steps} and {self.epochs}.")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch names it."""
        return torch.float32 if self.dtype == "float32" else torch.float64

    def steps_per_epoch(self, num_rows: int) -> int:
        """Minibatches in one pass; a remainder that fills none sits the epoch out."""
        return max(num_rows // self.batch_size, 1)

    def num_steps(self, num_rows: int) -> int:
        """Length of a stochastic run."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None, "checked at the start"
        return self.epochs * self.steps_per_epoch(num_rows)

    def num_full_steps(self) -> int:
        """Length of a full-batch run by Adam, where each step is an epoch."""
        length = self.steps if self.epochs is None else self.epochs
        assert length is not None, "checked at the start"
        return length
