"""A model of points that learns from rows: those it was made of, and those that came later."""

from __future__ import annotations

from typing import Any

from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from cvgp.adapters.botorch.fitting import Modules, learn
from cvgp.adapters.botorch.point_model import PointModel
from cvgp.adapters.botorch.training_rows import TrainingRows, inputs_from_dataset, rows_of_points
from cvgp.errors import InvalidInputError


class TrainableModel(PointModel):
    """What of :class:`cvgp.adapters.botorch.CVGPModel` has to do with rows and fits."""

    _rows: TrainingRows | None = None
    _is_made_of_rows = True

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        *,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
    ) -> dict[str, Any]:
        """Return arguments for a model in which each row of a data set is a point, to be fitted.

        Inputs are scaled to the unit cube of the data, and outputs to mean zero and variance one. What is not given is
        as in BoTorch's `SingleTaskGP`: its kernel and its noise with their priors, and a constant mean.

        Parameters
        ----------
        training_data : botorch.utils.datasets.SupervisedDataset
            Rows, with their known noise variances if it has any. The learned noise comes beside these.
        covar_module, mean_module, likelihood : GPyTorch modules or None
            As for the model.

        Returns
        -------
        dict
            ``CVGPModel(**arguments)`` is the model.

        Raises
        ------
        InvalidTypeError
            If `training_data` is no SupervisedDataset.

        Examples
        --------
        >>> import torch
        >>> from botorch.utils.datasets import SupervisedDataset
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> X = torch.rand(20, 2, dtype=torch.float64)
        >>> names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
        >>> arguments = CVGPModel.construct_inputs(SupervisedDataset(X, X[:, :1].sin(), **names))
        >>> CVGPModel(**arguments).num_outputs
        1
        """
        return inputs_from_dataset(training_data, covar_module, mean_module, likelihood)

    @property
    def training_rows(self) -> TrainingRows:
        """The rows that a fit learns from, in the model's units: the points themselves, or those of the last fit."""
        if self.batch_shape:
            raise InvalidInputError(f"A batch of models, {list(self.batch_shape)}, has no rows to learn from.")
        if self._rows is not None:
            return self._rows
        if not self._is_made_of_rows:
            raise InvalidInputError(
                "This model holds a coreset and no rows to learn from. Build a model of rows to fit it: "
                "CVGPModel(**CVGPModel.construct_inputs(SupervisedDataset(X, Y, ...)))."
            )
        return rows_of_points(self.X_c, self.y_c, self.precision, self.likelihood)

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The inputs of the rows, in the model's units, as in GPyTorch's exact models."""
        return (self.training_rows.X,)

    @property
    def train_targets(self) -> Tensor:
        """The outputs of the rows in the model's units: [N], or [m, N] for several outputs."""
        y = self.training_rows.Y
        return y.squeeze(-1) if self.num_outputs == 1 else y.mT

    def custom_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Learn kernel, mean, noise and coreset from the rows, by cvgp's own solvers.

        ``botorch.fit.fit_gpytorch_mll(mll)`` calls this. Priors count and constraints hold, as in BoTorch's own fits.
        Few rows are learned from by the exact marginal likelihood, and all stay points if they are needed. Of many, a
        coreset is learned. The same rows give the same model.

        Parameters
        ----------
        mll : gpytorch.mlls.MarginalLogLikelihood
            Of this model; what it computes is not looked at.
        **options
            What `fit_gpytorch_mll` was called with. It needs no settings, so there must be none.

        Returns
        -------
        gpytorch.mlls.MarginalLogLikelihood
            The same, in eval mode.

        Raises
        ------
        InvalidInputError
            If options are given, or the model has no rows.
        InvalidTypeError
            If the likelihood is not a plain Gaussian one.

        Examples
        --------
        >>> import torch
        >>> from botorch.fit import fit_gpytorch_mll
        >>> from botorch.utils.datasets import SupervisedDataset
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> from gpytorch.mlls import ExactMarginalLogLikelihood
        >>> X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> data = SupervisedDataset(X, (6 * X).sin(), feature_names=["x"], outcome_names=["y"])
        >>> model = CVGPModel(**CVGPModel.construct_inputs(data))
        >>> mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> round(model.posterior(X[:1]).mean.item(), 1) + 0.0
        0.0
        """
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"CVGPModel is fitted by cvgp's own solvers, which have nothing to set; leave out {', '.join(given)}."
            )
        rows = self.training_rows
        self.X_c, self.y_c, self.precision = (
            values.to(mine) for values, mine in zip(learn(self._parts(), rows), self._points(), strict=True)
        )
        self._rows = rows
        return mll.eval()

    def _parts(self) -> Modules:
        return Modules(self.covar_module, self.mean_module, self.likelihood)
