"""A fitted regressor as a model of another library.

The adapters know estimators, so no estimator can import them: each is found by its name when it is asked for.
"""

from importlib import import_module
from typing import Any

from gpytorch.models import ApproximateGP
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.extras import optional_packages


def adapter(name: str) -> Any:
    """The module of `cvgp.adapters` for a library; one line with the pip command where that is not installed."""
    with optional_packages():
        return import_module(f"cvgp.adapters.{name}")


class ExportMixin(BaseEstimator):  # type: ignore[misc]
    """What makes models of other libraries of an estimator whose fit leaves a `ScaledGP` in `gp_`."""

    def to_gpytorch(self) -> ApproximateGP:
        """Return the fitted coreset as a GPyTorch model with its likelihood, in the units of the data.

        The same as ``cvgp.adapters.gpytorch.CoresetGP.from_regressor(self)``. The estimator stays as it is, and the
        model can be trained on.

        Returns
        -------
        cvgp.adapters.gpytorch.CoresetGP
            A ``gpytorch.models.ApproximateGP`` in float64 and in eval mode, whose `likelihood` holds the learned noise.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If the estimator models a transform of y, or was fitted to a table that is more than numbers.

        Warns
        -----
        CVGPWarning
            If predictions of the estimator use more than the coreset and Gaussian noise: neighbours, heavy tails, or
            outliers. The message says what is lost.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> regressor = CVGPRegressor(n_coreset=8, noise="constant", neighbors=0, max_iter=20, random_state=0)
        >>> model = regressor.fit(X, np.sin(X[:, 0])).to_gpytorch()
        >>> mean = model(torch.tensor([[1.0], [2.0]], dtype=torch.float64)).mean
        >>> bool(np.allclose(mean.detach(), regressor.predict([[1.0], [2.0]]), atol=1e-8))
        True
        """
        check_is_fitted(self)
        model: ApproximateGP = adapter("gpytorch").CoresetGP.from_regressor(self)
        return model

    def to_botorch(self) -> Any:
        """Return the fitted coreset as a BoTorch model, which takes and gives values in the units of the data.

        The same as ``cvgp.adapters.botorch.CVGPModel.from_regressor(self)``, and it needs the extra ``botorch``. The
        estimator stays as it is. Its noise goes along, also one that depends on x.

        Returns
        -------
        cvgp.adapters.botorch.CVGPModel
            A ``botorch.models.model.Model`` in float64 and in eval mode.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If y is transformed, or the estimator was fitted to a table that is more than numbers.
        MissingDependencyError
            If BoTorch is not installed.

        Warns
        -----
        CVGPWarning
            If predictions of the estimator use more than the coreset and Gaussian noise: neighbours, outliers, or a
            noise with heavy tails. The message says what is lost.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> regressor = CVGPRegressor(n_coreset=8, neighbors=0, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> posterior = regressor.to_botorch().posterior(torch.tensor([[1.0], [2.0]], dtype=torch.float64))
        >>> bool(np.allclose(posterior.mean[:, 0].detach(), regressor.predict([[1.0], [2.0]]), atol=1e-8))
        True
        """
        check_is_fitted(self)
        return adapter("botorch").CVGPModel.from_regressor(self)
