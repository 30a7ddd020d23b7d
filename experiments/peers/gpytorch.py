"""GPyTorch's SVGP, PPGPR and SGPR against the clock, and the time of single steps and predictions of SVGP.

SVGP and PPGPR run in float32, as their users have them; where that breaks down for good, the fit is repeated in
float64, with the clock set back. SGPR runs in float64.

For classes, SVGP makes a number of steps in float32: probit for two, and softmax of independent GPs with common
inducing points for more.
"""

import copy
import warnings
from collections.abc import Mapping

import gpytorch
import numpy as np
import torch
import torch._dynamo  # the first step of an optimizer would import it, which takes seconds of a budget
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, SoftmaxLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, PredictiveLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor, nn

from experiments.peers.protocol import Array, Job, answer_times, one_cycle, run

CHUNK_ROWS = 2048
SNAPSHOT_EVERY = 50
MAX_RECOVERIES = 5
FLOAT32_FARTHEST = 300.0
"""As for our own training by minibatches."""
OBJECTIVES = {"svgp": VariationalELBO, "ppgpr": PredictiveLogLikelihood}
TIMED_RATE = 0.01
"""Learning rate of the steps that are only timed."""
LEAST_START_NOISE = 2e-4
"""Twice GPyTorch's noise floor, since nothing can be learned from the floor itself."""
BATCH_OF_CLASSES, DRAWS_OF_CLASSES = 512, 256
"""Rows of a step, and draws of the latent values that a prediction of several classes is the mean of."""
Finding = Mapping[str, float | str]


class SVGP(ApproximateGP):  # type: ignore[misc]
    """The whitened strategy with a full Cholesky factor."""

    def __init__(self, inducing: Tensor, kernel: Kernel) -> None:
        distribution = CholeskyVariationalDistribution(len(inducing))
        super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
        self.mean = ZeroMean()
        self.kernel = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior."""
        return MultivariateNormal(self.mean(x), self.kernel(x))


class SGPR(ExactGP):  # type: ignore[misc]
    """Titsias' bound on all rows."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: GaussianLikelihood, inducing: Tensor, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean = ZeroMean()
        self.kernel = InducingPointKernel(kernel, inducing_points=inducing, likelihood=likelihood)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior."""
        return MultivariateNormal(self.mean(x), self.kernel(x))


def start_kernel(name: str, start: Mapping[str, Array]) -> Kernel:
    """An ARD kernel with logarithmic parameters, as ours has, at the given values."""
    shared = {"ard_num_dims": len(start["lengthscales"]), "lengthscale_constraint": _log_positive()}
    base = RBFKernel(**shared) if name == "rbf" else MaternKernel(nu={"matern32": 1.5, "matern52": 2.5}[name], **shared)
    kernel = ScaleKernel(base, outputscale_constraint=_log_positive()).double()
    base.lengthscale = torch.as_tensor(start["lengthscales"])
    kernel.outputscale = float(start["outputscale"])
    return kernel


def start_likelihood(start: Mapping[str, Array]) -> GaussianLikelihood:
    """The noise at its given value, where GPyTorch's floor allows."""
    likelihood = GaussianLikelihood().double()
    likelihood.noise = max(float(start["noise"]), LEAST_START_NOISE)
    return likelihood


def _log_positive() -> Positive:
    return Positive(transform=torch.exp, inv_transform=torch.log)


class BreakdownError(ArithmeticError):
    """A factorization or a loss that no smaller learning rate has mended."""


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
    optimizer = torch.optim.Adam(together.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.99), fused=True)
    generator = torch.Generator().manual_seed(0)
    batch_size = min(settings["batch_size"], len(x))
    rate, step, recoveries = settings["learning_rate"], 0, 0
    good = copy.deepcopy((together.state_dict(), optimizer.state_dict()))
    order, position = torch.randperm(len(x), generator=generator), 0
    while not job.is_over:
        if position + batch_size > len(x):
            order, position = torch.randperm(len(x), generator=generator), 0
        rows = order[position : position + batch_size]
        position += batch_size
        for group in optimizer.param_groups:
            group["lr"] = rate * one_cycle(job.progress)
        optimizer.zero_grad(set_to_none=True)
        try:
            loss = -objective(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            step += 1
            if step % SNAPSHOT_EVERY == 0:
                _check_finite(together)
                good = copy.deepcopy((together.state_dict(), optimizer.state_dict()))
                job.check(lambda x: _predict(model, likelihood, x))
        except (NotPSDError, NanError, FloatingPointError) as failure:
            if recoveries == MAX_RECOVERIES:
                raise BreakdownError(str(failure)) from failure
            recoveries += 1
            rate *= 0.5
            together.load_state_dict(good[0])
            optimizer.load_state_dict(good[1])
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
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99), fused=True)
    good, least = copy.deepcopy(model.state_dict()), float("inf")
    while not job.is_over:
        optimizer.param_groups[0]["lr"] = rate * one_cycle(job.progress)
        optimizer.zero_grad(set_to_none=True)
        try:
            loss = -objective(model(x), y)
            loss.backward()
            if loss.item() < least:
                good, least = copy.deepcopy(model.state_dict()), loss.item()
            optimizer.step()
            _check_finite(model)
        except (NotPSDError, NanError, FloatingPointError):
            break
        evaluations += 1
        job.check(predict)
    model.load_state_dict(good)
    job.record(predict)
    return {"iterations": evaluations, "precision": "float64"}


class ClassSVGP(ApproximateGP):  # type: ignore[misc]
    """One GP for two classes, or one for each of more, with common inducing points and one kernel each."""

    def __init__(self, inducing: Tensor, lengthscales: Tensor, num_latents: int) -> None:
        batch = torch.Size([num_latents] if num_latents > 1 else [])
        distribution = CholeskyVariationalDistribution(len(inducing), batch_shape=batch)
        strategy = VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True)
        if num_latents > 1:
            strategy = IndependentMultitaskVariationalStrategy(strategy, num_tasks=num_latents)
        super().__init__(strategy)
        self.mean = ConstantMean(batch_shape=batch)
        base = MaternKernel(nu=1.5, ard_num_dims=len(lengthscales), batch_shape=batch)
        base.lengthscale = lengthscales
        self.kernel = ScaleKernel(base, batch_shape=batch)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior."""
        return MultivariateNormal(self.mean(x), self.kernel(x))


def svgp_classes(job: Job) -> Finding:
    """SVGP by a number of steps of Adam on minibatches, with one cycle of the learning rate."""
    torch.manual_seed(0)
    job.restart()
    settings, num_classes = job.settings, int(job.data["num_classes"])
    x, y = torch.as_tensor(job.x, dtype=torch.float32), torch.as_tensor(job.y)
    y = y.float() if num_classes == 2 else y.long()
    inducing, lengthscales = (torch.as_tensor(job.data[name]).float() for name in ("inducing", "lengthscales"))
    num_latents = num_classes if num_classes > 2 else 1
    model = ClassSVGP(inducing, lengthscales, num_latents)
    several = SoftmaxLikelihood(num_classes=num_classes, mixing_weights=False)
    likelihood = BernoulliLikelihood() if num_classes == 2 else several
    objective = VariationalELBO(likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"], betas=(0.9, 0.99), fused=True)
    generator = torch.Generator().manual_seed(0)
    order, position, batch_size = torch.randperm(len(x), generator=generator), 0, min(BATCH_OF_CLASSES, len(x))
    for step in range(settings["steps"]):
        if position + batch_size > len(x):
            order, position = torch.randperm(len(x), generator=generator), 0
        rows = order[position : position + batch_size]
        position += batch_size
        optimizer.param_groups[0]["lr"] = settings["learning_rate"] * one_cycle(step / settings["steps"])
        optimizer.zero_grad(set_to_none=True)
        loss = -objective(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    _check_finite(model)
    model.eval()
    likelihood.eval()

    @torch.no_grad()
    def predict(x: Array) -> dict[str, Array]:
        rows = torch.as_tensor(x, dtype=torch.float32).split(CHUNK_ROWS)
        with gpytorch.settings.num_likelihood_samples(DRAWS_OF_CLASSES):
            given = [likelihood(model(chunk)).probs.reshape(-1, len(chunk), num_latents) for chunk in rows]
        p = torch.cat([draws.mean(0) for draws in given]).double().numpy()
        return {"probabilities": p if num_classes > 2 else np.column_stack([1.0 - p, p])}

    job.record_arrays(predict)
    return {"iterations": settings["steps"], "precision": "float32"}


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


def step(job: Job) -> Finding:
    """Draw a batch, forward, backward, update: the loop of GPyTorch's documentation with torch's fused Adam."""
    torch.manual_seed(0)
    dtype = getattr(torch, job.settings["precision"])
    x, y = torch.as_tensor(job.x, dtype=dtype), torch.as_tensor(job.y, dtype=dtype)
    model, likelihood = _start(job, dtype)
    objective = VariationalELBO(likelihood, model, num_data=len(x))
    parameters = nn.ModuleList([model, likelihood]).parameters()
    optimizer = torch.optim.Adam(parameters, lr=TIMED_RATE, fused=True)
    batch_size = job.settings["batch_size"]

    def train() -> None:
        rows = torch.randint(len(x), (batch_size,))
        optimizer.zero_grad(set_to_none=True)
        loss = -objective(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()

    answer_times(train)
    return {"precision": job.settings["precision"]}


def predict(job: Job) -> Finding:
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
    methods = {"svgp": stochastic, "ppgpr": stochastic, "sgpr": sgpr, "svgp_classes": svgp_classes}
    run(methods | {"step": step, "predict": predict}, versions)
