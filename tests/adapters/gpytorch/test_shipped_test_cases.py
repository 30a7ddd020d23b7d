"""GPyTorch's own test cases for variational strategies and models, run against the coreset strategy."""

import unittest

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.mlls import GammaRobustVariationalELBO, PredictiveLogLikelihood, VariationalELBO
from gpytorch.test.model_test_case import VariationalModelTestCase
from gpytorch.test.variational_test_case import VariationalTestCase
from gpytorch.variational import IndependentMultitaskVariationalStrategy, LMCVariationalStrategy

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy

NUM_TASKS, NUM_LATENTS = 2, 3


class Coreset(VariationalTestCase):
    """What all cases share: two training steps factorise twice, and two predictions once."""

    batch_shape = torch.Size([])
    distribution_cls = CoresetVariationalDistribution
    strategy_cls = CoresetVariationalStrategy
    mll_cls = VariationalELBO
    wrapped = False
    only_ours_factorises = True

    def setUp(self) -> None:
        torch.manual_seed(0)

    def expected(self, shape: torch.Size | None) -> torch.Size:
        shape = self.batch_shape if shape is None else shape
        return shape[:-1] if self.wrapped else shape

    def test_training_iteration(self, *args, expected_batch_shape=None, **kwargs):
        shape = self.expected(expected_batch_shape)
        cg, cholesky, ciq = super().test_training_iteration(*args, expected_batch_shape=shape, **kwargs)
        assert (cg.called, ciq.called) == (False, False)
        if self.only_ours_factorises:
            assert cholesky.call_count == 2

    def test_eval_iteration(self, *args, expected_batch_shape=None, **kwargs):
        shape = self.expected(expected_batch_shape)
        cg, cholesky, ciq = super().test_eval_iteration(*args, expected_batch_shape=shape, **kwargs)
        assert (cg.called, ciq.called) == (False, False)
        if self.only_ours_factorises:
            assert cholesky.call_count == 1

    def test_fantasy_call(self, *args, **kwargs):
        if self.wrapped:  # GPyTorch's wrappers have no fantasies, whatever they wrap
            with pytest.raises(NotImplementedError):
                super().test_fantasy_call(*args, **kwargs)
        else:
            super().test_fantasy_call(*args, **kwargs)


def independent(*args, **kwargs):
    return IndependentMultitaskVariationalStrategy(CoresetVariationalStrategy(*args, **kwargs), num_tasks=NUM_TASKS)


def mixed(*args, **kwargs):
    strategy = CoresetVariationalStrategy(*args, **kwargs)
    return LMCVariationalStrategy(strategy, num_tasks=NUM_TASKS, num_latents=NUM_LATENTS)


class Tasks(Coreset):
    wrapped = True
    event_shape = torch.Size([32, NUM_TASKS])

    @property
    def likelihood_cls(self):
        return lambda: MultitaskGaussianLikelihood(num_tasks=NUM_TASKS)


class Indexed(Coreset):
    """Each row belongs to one task."""

    wrapped = True
    only_ours_factorises = False  # GPyTorch factorises to multiply covariances elementwise

    def _training_iter(self, model, likelihood, batch_shape=(), mll_cls=VariationalELBO, cuda=False):
        batch_shape = self.of_rows(batch_shape)
        x = torch.randn(*batch_shape, 32, 2).clamp(-2.5, 2.5)
        y = torch.linspace(-1, 1, 32)
        model.train()
        likelihood.train()
        output = model(x, task_indices=torch.rand(*batch_shape, 32).round().long())
        loss = -mll_cls(likelihood, model, num_data=32)(output, y)
        loss.sum().backward()
        for parameter in [*model.parameters(), *likelihood.parameters()]:
            assert parameter.grad is not None
            assert parameter.grad.norm() > 0
        return output, loss

    def _eval_iter(self, model, batch_shape=(), cuda=False):
        batch_shape = self.of_rows(batch_shape)
        model.eval()
        with torch.no_grad():
            x = torch.randn(*batch_shape, 32, 2)
            return model(x, task_indices=torch.rand(*batch_shape, 32).round().long())

    def of_rows(self, batch_shape: torch.Size) -> list[int]:
        return [*batch_shape[:-1], 1]


class IndependentTasks(Tasks):
    batch_shape = torch.Size([NUM_TASKS])

    @property
    def strategy_cls(self):
        return independent


class MixedTasks(Tasks):
    batch_shape = torch.Size([NUM_LATENTS])

    @property
    def strategy_cls(self):
        return mixed


class IndexedIndependentTasks(Indexed):
    batch_shape = torch.Size([NUM_TASKS])

    @property
    def strategy_cls(self):
        return independent


class IndexedMixedTasks(Indexed):
    batch_shape = torch.Size([NUM_LATENTS])

    @property
    def strategy_cls(self):
        return mixed

    def of_rows(self, batch_shape: torch.Size) -> list[int]:
        return list(batch_shape)


class Batch(Coreset):
    batch_shape = torch.Size([3])


def test_case(kind: type[Coreset], objective: type) -> type:
    name = f"Test{kind.__name__}{objective.__name__}"
    return type(name, (kind, unittest.TestCase), {"mll_cls": objective, "__module__": __name__})


KINDS = (Coreset, Batch, IndependentTasks, MixedTasks, IndexedIndependentTasks, IndexedMixedTasks)
OBJECTIVES = (VariationalELBO, PredictiveLogLikelihood, GammaRobustVariationalELBO)
for kind in KINDS:
    for objective in OBJECTIVES:
        made = test_case(kind, objective)
        globals()[made.__name__] = made
# What is left in these names would be collected once more.
del made, test_case, VariationalTestCase


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, train_x: torch.Tensor, points: torch.Tensor, learn: bool) -> None:
        sites = CoresetVariationalDistribution(points.size(-2), batch_shape=train_x.shape[:-2])
        super().__init__(CoresetVariationalStrategy(self, points, sites, learn_inducing_locations=learn))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class TestModelAtAllRows(VariationalModelTestCase, unittest.TestCase):
    def create_model(self, train_x, train_y, likelihood):
        return Model(train_x, train_x, learn=False)

    def create_test_data(self):
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self):
        return GaussianLikelihood(), torch.randn(50) + 2

    def create_batch_test_data(self, batch_shape=(3,)):
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(self, batch_shape=(3,)):
        return GaussianLikelihood(batch_shape=torch.Size(batch_shape)), torch.randn(*batch_shape, 50) + 2


class TestModelAtFewPoints(TestModelAtAllRows):
    def create_model(self, train_x, train_y, likelihood):
        return Model(train_x, torch.randn(20, train_x.size(-1)), learn=True)


del VariationalModelTestCase
