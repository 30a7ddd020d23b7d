"""Early stopping: the best parameters by rows that were held out."""

import math

import torch

from cvgp.data.source import DataSource
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import CHUNK_ROWS
from cvgp.optim.adam import AdamState
from cvgp.optim.stopping import NoImprovement
from cvgp.training.checkpoint import Extra
from cvgp.training.plan import Settings


class BestByValidation:
    """The parameters with the lowest RMSE on held-out rows, which count by their weights."""

    def __init__(self, model: CVGP, validation: DataSource, settings: Settings, state: AdamState) -> None:
        self.model = model
        self.validation = validation
        self.patience = NoImprovement(settings.n_iter_no_change)
        self.state = state
        self.best = [p.detach().clone() for p in state.parameters]

    @torch.no_grad()
    def check(self) -> float:
        """The RMSE on the held-out rows now; the parameters are kept if it is the best so far."""
        process = self.model.process()
        total = torch.zeros(2, dtype=torch.float64)
        for batch in self.validation.chunks(CHUNK_ROWS):
            squares = (process(batch.x).mean - batch.y).square().reshape(len(batch.y), -1).sum(1)  # [B]
            weight = torch.ones_like(squares) if batch.sample_weight is None else batch.sample_weight
            total += torch.stack([weight @ squares, weight.sum() * batch.y[0].numel()]).to("cpu", torch.float64)
        squares, count = self.validation.group.sum([total])[0].tolist()
        score = math.sqrt(squares / count)
        if self.patience.update(score):
            self.best = [p.detach().clone() for p in self.state.parameters]
        return score

    @torch.no_grad()
    def restore(self) -> None:
        """Return to the best parameters."""
        for p, value in zip(self.state.parameters, self.best, strict=True):
            p.copy_(value)

    def dump(self) -> Extra:
        """What a checkpoint has to hold."""
        counts = {"best": self.patience.best, "checks_since_best": float(self.patience.checks_since_best)}
        return {str(i): value for i, value in enumerate(self.best)}, counts

    def load(self, stored: Extra) -> None:
        """Go on as a stored run did."""
        tensors, counts = stored
        self.best = [tensors[str(i)] for i in range(len(self.best))]
        self.patience.best, self.patience.checks_since_best = counts["best"], int(counts["checks_since_best"])
