"""What the systems that learn from minibatches share: the loop, and a second run in float64 where float32 fails."""

from abc import abstractmethod

import torch
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.errors import DivergenceError
from cvgp.paper.baselines.loops import train_minibatches
from cvgp.paper.baselines.method import Baseline
from cvgp.paper.baselines.shared_start import Start


class MinibatchBaseline(Baseline):
    """A system whose objective is estimated from a batch."""

    def _learn(self, source: MemorySource, start: Start) -> None:
        try:
            self._learn_in(self.recipe.torch_dtype, source, start)
        except DivergenceError:
            if self.recipe.torch_dtype is torch.float64:
                raise
            self._learn_in(torch.float64, source, start)

    def _learn_in(self, dtype: torch.dtype, source: MemorySource, start: Start) -> None:
        self.dtype = dtype
        self._build(start, source, dtype)
        rows = source.to(dtype)
        batch_size = self.recipe.batch_size

        def loss_and_backward(step: int) -> float:
            loss = self._loss(rows.minibatch(step, batch_size, self.seed), source.num_rows)
            loss.backward()
            return loss.item()

        self.num_steps = train_minibatches(
            self.parameters(),
            loss_and_backward,
            self.recipe,
            max_steps=self.recipe.num_steps(source.num_rows),
            check_every=self.recipe.steps_per_epoch(source.num_rows),
            validation_rmse=None if self._validation is None else self.validation_rmse,
            on_step=self._on_step,
        )
        self._check_precision()

    @abstractmethod
    def _build(self, start: Start, source: MemorySource, dtype: torch.dtype) -> None:
        """Make the model at its start."""

    @abstractmethod
    def _loss(self, batch: Rows[Tensor], num_rows: int) -> Tensor:
        """The negative objective per row, estimated from a batch of `num_rows` rows."""

    def _check_precision(self) -> None:
        """Raise a DivergenceError where what was learned in float32 cannot be trusted."""
