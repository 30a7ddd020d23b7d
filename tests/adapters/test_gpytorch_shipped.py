"""GPyTorch's own test cases for variational strategies and models, run against the coreset strategy."""

import unittest

import pytest
import torch
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.mlls import GammaRobustVariationalELBO, PredictiveLogLikelihood, VariationalELBO
from gpytorch.test.model_test_case import VariationalModelTestCase
from gpytorch.test.variational_test_case import VariationalTestCase
from gpytorch.variational import IndependentMultitaskVariationalStrategy, LMCVariationalStrategy

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from tests.adapters.gpytorch_models import Model

NUM_TASKS, NUM_LATENTS = 2, 3


class Coreset(VariationalTestCase):
    """What all cases share: two training steps factorize twice, and two predictions once."""

    batch_shape = torch.Size([])
    distribution_cls = CoresetVariationalDistribution
    strategy_cls = CoresetVariationalStrategy
    mll_cls = VariationalELBO
    wrapped = False
    only_ours_factorizes = True

    def setUp(self) -> None:
        torch.manual_seed(0)

    def expected(self, shape: torch.Size | None) -> torch.Size:
        shape = self.batch_shape if shape is None else shape
        return shape[:-1] if self.wrapped else shape

    def test_training_iteration(self, *args, expected_batch_shape=None, **kwargs):
        shape = self.expected(expected_batch_shape)
        cg, cholesky, ciq = super().test_training_iteration(*args, expected_batch_shape=shape, **kwargs)
        assert (cg.called, ciq.called) == (False, False)
        if self.only_ours_factorizes:
            assert cholesky.call_count == 2

    def test_eval_iteration(self, *args, expected_batch_shape=None, **kwargs):
        shape = self.expected(expected_batch_shape)
        cg, cholesky, ciq = super().test_eval_iteration(*args, expected_batch_shape=shape, **kwargs)
        assert (cg.called, ciq.called) == (False, False)
        if self.only_ours_factorizes:
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


class Batch(Coreset):
    batch_shape = torch.Size([3])


class IndependentTasks(Coreset):
    wrapped = True
    event_shape = torch.Size([32, NUM_TASKS])
    batch_shape = torch.Size([NUM_TASKS])
    strategy_cls = staticmethod(independent)
    likelihood_cls = staticmethod(lambda: MultitaskGaussianLikelihood(num_tasks=NUM_TASKS))


class MixedTasks(IndependentTasks):
    batch_shape = torch.Size([NUM_LATENTS])
    strategy_cls = staticmethod(mixed)


class IndexedIndependentTasks(Coreset):
    """Each row belongs to one task."""

    wrapped = True
    batch_shape = torch.Size([NUM_TASKS])
    strategy_cls = staticmethod(independent)
    only_ours_factorizes = False  # GPyTorch factorizes to multiply covariances elementwise

    def _training_iter(self, model, likelihood, batch_shape=(), mll_cls=VariationalELBO, cuda=False):
        output = self.predicted(model.train(), batch_shape)
        loss = -mll_cls(likelihood.train(), model, num_data=32)(output, torch.linspace(-1, 1, 32))
        loss.sum().backward()
        assert all(p.grad is not None and p.grad.norm() > 0 for p in [*model.parameters(), *likelihood.parameters()])
        return output, loss

    def _eval_iter(self, model, batch_shape=(), cuda=False):
        with torch.no_grad():
            return self.predicted(model.eval(), batch_shape)

    def predicted(self, model, batch_shape):
        shape = [*self.of_rows(batch_shape), 32]
        return model(torch.randn(*shape, 2).clamp(-2.5, 2.5), task_indices=torch.rand(shape).round().long())

    def of_rows(self, batch_shape: torch.Size) -> list[int]:
        return [*batch_shape[:-1], 1]


class IndexedMixedTasks(IndexedIndependentTasks):
    batch_shape = torch.Size([NUM_LATENTS])
    strategy_cls = staticmethod(mixed)

    def of_rows(self, batch_shape: torch.Size) -> list[int]:
        return list(batch_shape)


KINDS = (Coreset, Batch, IndependentTasks, MixedTasks, IndexedIndependentTasks, IndexedMixedTasks)
for kind in KINDS:
    for objective in (VariationalELBO, PredictiveLogLikelihood, GammaRobustVariationalELBO):
        name = f"Test{kind.__name__}{objective.__name__}"
        globals()[name] = type(name, (kind, unittest.TestCase), {"mll_cls": objective, "__module__": __name__})
del VariationalTestCase  # or it would be collected too


class TestModelAtAllRows(VariationalModelTestCase, unittest.TestCase):
    def create_model(self, train_x, train_y, likelihood):
        return Model(train_x, batch_shape=train_x.shape[:-2], learn_inducing_locations=False)

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
        return Model(torch.randn(20, train_x.size(-1)), batch_shape=train_x.shape[:-2])


del VariationalModelTestCase
