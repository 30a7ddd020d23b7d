"""Single training steps and predictions of GPyTorch's SVGP; imports nothing of cvgp."""

import warnings
from collections.abc import Mapping

import gpytorch
import torch
from gpytorch.mlls import VariationalELBO
from torch import nn

from benchmarks.peers.gpytorch_models import SVGP, start_kernel, start_likelihood
from benchmarks.peers.protocol import Job, answer_times, run

LEARNING_RATE = 0.01


def step(job: Job) -> Mapping[str, float | str]:
    """Draw a batch, forward, backward, update: the loop of GPyTorch's documentation with torch's fused Adam."""
    torch.manual_seed(0)
    dtype = getattr(torch, job.settings["precision"])
    x, y = torch.as_tensor(job.x, dtype=dtype), torch.as_tensor(job.y, dtype=dtype)
    model, likelihood = _start(job, dtype)
    objective = VariationalELBO(likelihood, model, num_data=len(x))
    parameters = nn.ModuleList([model, likelihood]).parameters()
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
    batch_size = job.settings["batch_size"]

    def train() -> None:
        rows = torch.randint(len(x), (batch_size,))
        optimiser.zero_grad(set_to_none=True)
        loss = -objective(model(x[rows]), y[rows])
        loss.backward()
        optimiser.step()

    answer_times(train)
    return {"precision": job.settings["precision"]}


def predict(job: Job) -> Mapping[str, float | str]:
    """Eval mode, no gradients, fast settings; the caches are filled by the first call."""
    dtype = getattr(torch, job.settings["precision"])
    model, likelihood = _start(job, dtype)
    model.eval()
    likelihood.eval()
    rows, with_sd = torch.as_tensor(job.data["x_test"], dtype=dtype), job.settings["with_sd"]

    def call() -> None:
        for chunk in rows.split(job.settings["chunk_rows"]):
            found = model(chunk)
            if with_sd:
                found = likelihood(found)
                found.stddev.numpy()
            found.mean.numpy()

    with torch.no_grad(), gpytorch.settings.fast_pred_var(), gpytorch.settings.skip_posterior_variances(not with_sd):
        answer_times(call)
    return {"precision": job.settings["precision"]}


def _start(job: Job, dtype: torch.dtype) -> tuple[SVGP, gpytorch.likelihoods.GaussianLikelihood]:
    model = SVGP(torch.as_tensor(job.data["inducing"]), start_kernel(job.settings["kernel"], job.data)).to(dtype)
    return model, start_likelihood(job.data).to(dtype)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    versions = {"gpytorch": gpytorch.__version__, "torch": torch.__version__}
    run({"step": step, "predict": predict}, versions)
