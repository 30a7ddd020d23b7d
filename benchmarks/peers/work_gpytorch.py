"""GPyTorch's SVGP, PPGPR and SGPR against the clock; imports nothing of cvgp.

SVGP and PPGPR run in float32, as their users have them; where that breaks down for good, the fit is repeated in
float64, with the clock set back. SGPR runs in float64.
"""

import copy
import warnings
from collections.abc import Mapping

import gpytorch
import numpy as np
import torch
import torch._dynamo  # the first step of an optimiser would import it, which takes seconds of a budget
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, PredictiveLogLikelihood, VariationalELBO
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor, nn

from benchmarks.peers.gpytorch_models import SGPR, SVGP, start_kernel, start_likelihood
from benchmarks.peers.protocol import Array, Job, one_cycle, run

CHUNK_ROWS = 2048
SNAPSHOT_EVERY = 50
MAX_RECOVERIES = 5
FLOAT32_FARTHEST = 300.0
"""As for our own training by minibatches."""
OBJECTIVES = {"svgp": VariationalELBO, "ppgpr": PredictiveLogLikelihood}
Finding = Mapping[str, float | str]


class BreakdownError(ArithmeticError):
    """A factorisation or a loss that no smaller learning rate has mended."""


def stochastic(job: Job) -> Finding:
    """SVGP or PPGPR by Adam on minibatches, one cycle of the learning rate over the budget."""
    for dtype in (torch.float32, torch.float64)[_is_wide(job) :]:
        try:
            return _stochastic_in(dtype, job)
        except BreakdownError:
            continue
    raise BreakdownError("float64 broke down as well")


def _is_wide(job: Job) -> bool:
    """Whether inputs are so far apart, in lengthscales, that float32 does not hold their distances."""
    return bool((np.abs(job.data["inducing"]) / job.data["lengthscales"]).max() > FLOAT32_FARTHEST)


def _stochastic_in(dtype: torch.dtype, job: Job) -> Finding:
    torch.manual_seed(0)
    job.restart()
    settings = job.settings
    x, y = torch.as_tensor(job.x, dtype=dtype), torch.as_tensor(job.y, dtype=dtype)
    model = SVGP(torch.as_tensor(job.data["inducing"]), start_kernel(settings["kernel"], job.data)).to(dtype)
    likelihood = start_likelihood(job.data).to(dtype)
    objective = OBJECTIVES[settings["method"]](likelihood, model, num_data=len(x))
    together = nn.ModuleList([model, likelihood])
    optimiser = torch.optim.Adam(together.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.99), fused=True)
    generator = torch.Generator().manual_seed(0)
    batch_size = min(settings["batch_size"], len(x))
    rate, step, recoveries = settings["learning_rate"], 0, 0
    good = copy.deepcopy((together.state_dict(), optimiser.state_dict()))
    order, position = torch.randperm(len(x), generator=generator), 0
    while not job.is_over:
        if position + batch_size > len(x):
            order, position = torch.randperm(len(x), generator=generator), 0
        rows = order[position : position + batch_size]
        position += batch_size
        for group in optimiser.param_groups:
            group["lr"] = rate * one_cycle(job.progress)
        optimiser.zero_grad(set_to_none=True)
        try:
            loss = -objective(model(x[rows]), y[rows])
            loss.backward()
            optimiser.step()
            step += 1
            if step % SNAPSHOT_EVERY == 0:
                _check_finite(together)
                good = copy.deepcopy((together.state_dict(), optimiser.state_dict()))
                job.check(lambda x: _predict(model, likelihood, x))
        except (NotPSDError, NanError, FloatingPointError) as failure:
            if recoveries == MAX_RECOVERIES:
                raise BreakdownError(str(failure)) from failure
            recoveries += 1
            rate *= 0.5
            together.load_state_dict(good[0])
            optimiser.load_state_dict(good[1])
    try:
        _check_finite(together)
    except FloatingPointError:
        together.load_state_dict(good[0])
    job.record(lambda x: _predict(model, likelihood, x))
    return {"iterations": step, "recoveries": recoveries, "precision": str(dtype).removeprefix("torch.")}


def sgpr(job: Job) -> Finding:
    """SGPR on all rows, by Adam with the same cycle."""
    x, y = torch.as_tensor(job.x), torch.as_tensor(job.y)
    job.restart()
    likelihood = start_likelihood(job.data)
    inducing = torch.as_tensor(job.data["inducing"])
    model = SGPR(x, y, likelihood, inducing, start_kernel(job.settings["kernel"], job.data)).double()
    objective = ExactMarginalLogLikelihood(likelihood, model)
    predict = lambda rows: _predict(model, likelihood, rows)  # noqa: E731
    rate, evaluations = job.settings["learning_rate"], 0
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99), fused=True)
    good, least = copy.deepcopy(model.state_dict()), float("inf")
    while not job.is_over:
        optimiser.param_groups[0]["lr"] = rate * one_cycle(job.progress)
        optimiser.zero_grad(set_to_none=True)
        try:
            loss = -objective(model(x), y)
            loss.backward()
            if loss.item() < least:
                good, least = copy.deepcopy(model.state_dict()), loss.item()
            optimiser.step()
            _check_finite(model)
        except (NotPSDError, NanError, FloatingPointError):
            break
        evaluations += 1
        job.check(predict)
    model.load_state_dict(good)
    job.record(predict)
    return {"iterations": evaluations, "precision": "float64"}


def _check_finite(module: nn.Module) -> None:
    if not all(bool(torch.isfinite(p).all()) for p in module.parameters()):
        raise FloatingPointError("a parameter is not finite")


@torch.no_grad()
def _predict(model: gpytorch.models.GP, likelihood: GaussianLikelihood, x: Array) -> tuple[Tensor, Tensor]:
    model.eval()
    likelihood.eval()
    rows = torch.as_tensor(x, dtype=likelihood.noise.dtype)
    parts = [likelihood(model(chunk)) for chunk in rows.split(CHUNK_ROWS)]
    found = torch.cat([part.mean for part in parts]), torch.cat([part.stddev for part in parts])
    model.train()
    likelihood.train()
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    versions = {"gpytorch": gpytorch.__version__, "torch": torch.__version__}
    run({"svgp": stochastic, "ppgpr": stochastic, "sgpr": sgpr}, versions)
