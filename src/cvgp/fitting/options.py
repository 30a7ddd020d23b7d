"""How a fit is trained: the options that users give, and the checked values that a fit goes by."""

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from sklearn.base import BaseEstimator

from cvgp.coreset import Coreset
from cvgp.data.transforms import TransformName, WarpName
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Callback

NoiseName = Literal["auto", "constant", "input-dependent"]
LikelihoodName = Literal["gaussian", "student_t", "poisson", "negative_binomial", "gamma", "beta"]
OutputCovarianceName = Literal["independent", "learned"]
InitName = Literal["kmeans", "random", "greedy"]
TargetName = Literal["auto"] | TransformName
InputWarpName = Literal["auto"] | WarpName
SolverName = Literal["auto", "lbfgs", "adam", "paper"]
BoundName = Literal["auto", "elbo", "tight"]
DtypeName = Literal["auto", "float32", "float64"]
Number = int | float | np.integer | np.floating


@dataclass(frozen=True)
class ModelOptions:
    """What the user says about the model, checked; without a size, the fit chooses it."""

    kernel: str | Kernel | None = None
    mean: str | Mean = "zero"
    ard: bool = True
    noise: NoiseName = "auto"
    n_coreset: int | None = None
    n_neighbors: int | str = "auto"
    input_warp: InputWarpName = "auto"
    target_transform: TargetName = "identity"
    standardize: bool = True
    device: str = "cpu"
    private: bool = False
    sphere: tuple[int, ...] = ()  # features that are a place on the sphere, which share scale and lengthscale

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, get_args(NoiseName))
        check_choice("target_transform", self.target_transform, ("auto", *get_args(TransformName)))
        check_choice("input_warp", self.input_warp, ("auto", *get_args(WarpName)))


class TrainingOptions(BaseEstimator):  # type: ignore[misc]
    """How `CVGPRegressor` trains its coreset. The defaults leave every choice to the fit.

    They can be set as in ``set_params(training__max_iter=100)``, and searched by ``GridSearchCV``.

    Parameters
    ----------
    solver : {"auto", "lbfgs", "adam", "paper"}
        L-BFGS on all rows, Adam on minibatches, or the paper's own recipe. ``auto`` is L-BFGS for few rows, and for
        more rows Adam, followed by L-BFGS if there is time.
    bound : {"auto", "elbo", "tight"}
        The paper's bound, or the tighter one of Titsias (2025). ``auto`` is the tighter one with L-BFGS.
    init : {"kmeans", "random", "greedy"} or Coreset
        Where the coreset starts. A Coreset is in the units of the data.
    max_iter : int or None
        Adam steps, or evaluations of the bound for L-BFGS.
    batch_size : int or None
        Rows in each step of Adam.
    learning_rate : float or None
        The largest learning rate of Adam.
    tol : float
        Stop when the bound gains less than this many nats per row in ten iterations.
    early_stopping : bool
        Hold out `validation_fraction` of the rows and keep the model with the lowest RMSE there, of y after its
        transform. Stop after `n_iter_no_change` epochs (of at least 50 steps) without improvement.
    validation_fraction : float
        The share of the rows that `early_stopping` holds out.
    n_iter_no_change : int
        How many epochs `early_stopping` waits for an improvement.
    dtype : {"auto", "float32", "float64"}
        Precision of the products with data. ``auto`` starts Adam in float32; ``float32`` applies to predictions too.
    checkpoint_dir : path or None
        Where to store progress. A fit that finds an unfinished run of the same data and parameters there continues it,
        so `random_state` must be a number.
    callbacks : sequence of callables or None
        Called with a `FitEvent` after each iteration; a callback that returns True ends the fit.
    heuristics : Heuristics or None
        The constants by which a fit decides.

    Examples
    --------
    >>> from cvgp import CVGPRegressor, TrainingOptions
    >>> model = CVGPRegressor(training=TrainingOptions(solver="adam", max_iter=500))
    >>> model.set_params(training__learning_rate=0.01).training
    TrainingOptions(learning_rate=0.01, max_iter=500, solver='adam')
    """

    def __init__(
        self,
        *,
        solver: SolverName = "auto",
        bound: BoundName = "auto",
        init: InitName | Coreset = "kmeans",
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        dtype: DtypeName = "auto",
        checkpoint_dir: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        heuristics: Heuristics | None = None,
    ) -> None:
        self.solver = solver
        self.bound = bound
        self.init = init
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.dtype = dtype
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.heuristics = heuristics


class WithTraining:
    """An estimator with training options, whose parameters are known by name also where they are None."""

    training: TrainingOptions | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; those of `training` as ``training__...``, also where it is None.

        Parameters
        ----------
        deep : bool
            Whether to include those of `training`.

        Returns
        -------
        dict

        Examples
        --------
        >>> from cvgp import CVGPRegressor
        >>> CVGPRegressor(kernel="rbf").get_params()["training__solver"]
        'auto'
        """
        parameters: dict[str, Any] = super().get_params(deep=deep)  # type: ignore[misc]
        if deep and self.training is None:
            parameters |= {f"training__{name}": value for name, value in TrainingOptions().get_params().items()}
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of `training` as ``training__...``, also where it is None.

        Parameters
        ----------
        **params
            The new values.

        Returns
        -------
        object
            The estimator itself.

        Examples
        --------
        >>> from cvgp import CVGPRegressor
        >>> CVGPRegressor().set_params(training__max_iter=100).training.max_iter
        100
        """
        if any(name.startswith("training__") for name in params) and params.get("training", self.training) is None:
            params["training"] = TrainingOptions()
        super().set_params(**params)  # type: ignore[misc]
        return self

    def _training_options(self) -> TrainingOptions:
        if self.training is not None and not isinstance(self.training, TrainingOptions):
            raise InvalidTypeError(f"training must be a cvgp.TrainingOptions or None; got {self.training!r}.")
        return TrainingOptions() if self.training is None else self.training


def settings_of(training: TrainingOptions) -> TrainingOptions:
    """A checked copy of training options, in which the paper's recipe stops early."""
    check_choice("solver", training.solver, get_args(SolverName))
    check_choice("bound", training.bound, get_args(BoundName))
    check_choice("dtype", training.dtype, get_args(DtypeName))
    for name in ("max_iter", "batch_size", "n_iter_no_change"):
        _check_count(name, getattr(training, name))
    check_positive("learning_rate", training.learning_rate)
    tol, fraction, callbacks = training.tol, training.validation_fraction, training.callbacks
    if not (isinstance(tol, Number) and tol >= 0):
        raise InvalidInputError(f"tol must be a number of at least 0; got {tol!r}.")
    if not (isinstance(fraction, Number) and 0.0 < fraction < 1.0):
        raise InvalidInputError(f"validation_fraction must be between 0 and 1; got {fraction!r}.")
    if training.early_stopping and training.solver == "lbfgs":
        raise InvalidInputError(
            "early_stopping watches the epochs of Adam, and L-BFGS has none; use solver='adam' or 'auto' with it."
        )
    if callbacks is not None and not (isinstance(callbacks, Sequence) and all(callable(f) for f in callbacks)):
        raise InvalidTypeError(f"callbacks must be a list of functions of one argument; got {callbacks!r}.")
    if not isinstance(training.checkpoint_dir, str | os.PathLike | None):
        raise InvalidTypeError(f"checkpoint_dir must be a path or None; got {training.checkpoint_dir!r}.")
    if not isinstance(training.heuristics, Heuristics | None):
        raise InvalidTypeError(f"heuristics must be a cvgp.Heuristics or None; got {training.heuristics!r}.")
    settings = copy(training)
    settings.early_stopping = training.early_stopping or training.solver == "paper"
    return settings


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise if a value is not one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def _check_count(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidTypeError(f"{name} must be a whole number or None; got {value!r}.")
    if value < 1:
        raise InvalidInputError(f"{name} must be at least 1; got {value}.")


def check_positive(name: str, value: Any) -> None:
    """Raise if a number is given that is not above 0."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Number):
        raise InvalidTypeError(f"{name} must be a number or None; got {value!r}.")
    if not value > 0:
        raise InvalidInputError(f"{name} must be positive; got {value}.")
