"""CVGPRegressor: Gaussian process regression on a learned coreset, as a scikit-learn estimator."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from cvgp.coreset import Coreset
from cvgp.data.reading import CsvOptions
from cvgp.data.rows import Rows
from cvgp.data.schema import Schema
from cvgp.errors import InvalidInputError
from cvgp.estimators.boosted_trees import BoostedTrees
from cvgp.estimators.described_rows import describe
from cvgp.estimators.exporting import ExportMixin
from cvgp.estimators.frames import numeric_schema
from cvgp.estimators.growing import known_source, resize
from cvgp.estimators.importance import ImportanceMixin
from cvgp.estimators.inputs import (
    array_sources,
    check_callbacks,
    check_folder,
    check_seed,
    check_size,
    check_training,
    first_seed,
)
from cvgp.estimators.model_units import Sources, model_units, notice_constants, notice_one_output, notice_weights
from cvgp.estimators.modes import usual_modes
from cvgp.estimators.noted_rows import note_rows, seconds_to_note
from cvgp.estimators.predicting import PredictiveMixin
from cvgp.estimators.showing import ShowingMixin
from cvgp.estimators.table_options import TableOptions, is_table
from cvgp.estimators.tables import open_table, refuse_transform, table_sources
from cvgp.estimators.transformed_rows import transformed
from cvgp.estimators.units import ScaledGP
from cvgp.estimators.user_columns import named_inputs
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernel_names import name_of_kernel
from cvgp.gp.model import CVGP
from cvgp.host import reused_memory
from cvgp.parallel.process_group import current_group
from cvgp.threads import check_n_jobs, limited_threads
from cvgp.training.fit import reports_tight_bound
from cvgp.training.grow import grow_model
from cvgp.training.initialise import InitName
from cvgp.training.input_choice import InputsName, check_inputs_name, choose_inputs, suited_name
from cvgp.training.monitor import Callback, Watch, as_columns
from cvgp.training.neighbours import check_neighbors, fit_with_neighbours, reason_against
from cvgp.training.noise_fit import fit_noise, seconds_to_keep
from cvgp.training.noise_learning import NoiseName, check_noise_name
from cvgp.training.noise_trials import NoiseFit
from cvgp.training.plan import BoundName, Number, Settings, SolverName, choose_solver
from cvgp.training.progress_bar import progress_of_fit
from cvgp.training.prune import prune_model
from cvgp.training.start import (
    ROWS_TO_BE_ROUGH,
    alternative_kernels,
    begin_model,
    blank_model,
    starting_kernel,
    starting_mean,
)
from cvgp.training.stored_start import begin_or_recall, start_identity
from cvgp.training.target_choice import TargetName, check_target_name

Array = NDArray[np.float64]


class CVGPRegressor(RegressorMixin, PredictiveMixin, ImportanceMixin, ExportMixin, ShowingMixin):  # type: ignore[misc]
    """Gaussian process regression with a learned coreset.

    With no arguments it standardises the data, chooses where to start and how to train, and stops by itself.

    Parameters
    ----------
    n_coreset : int or "auto"
        Number of pseudo-points M. ``auto`` takes the fewest that predict unseen rows about as well as the most that
        `max_time` (or the default budget) affords. Where rows are few, or most of them would be needed, it learns
        kernel and noise as an exact GP, if that does not take much longer. Then it keeps all rows as points if more
        than half of them, or far more than 400, are needed.
    kernel : str, gpytorch kernel or None
        ``rbf``, ``matern12``, ``matern32``, ``matern52``, ``rq``, ``linear``, ``periodic``, or several of these joined
        by ``+`` and ``*``, as in ``rbf+linear``, each term with a scale of its own; or any GPyTorch kernel. Kernels act
        on standardised inputs. Priors that are registered on a GPyTorch kernel count. None is ``matern32``, the best
        single name by measurement; with `n_coreset` left to choose, 200 to 3000 rows take ``matern32+matern12`` if
        their likelihood gains clearly by the rough part. ``auto`` chooses among ``rbf``, ``matern32`` and
        ``matern52``, with and without ``+linear``, by the density of unseen rows, and tries the same sum;
        `kernel_name_` says what it chose.
    neighbors : int or "auto"
        How many nearest training rows a prediction consults beside the coreset, for what the coreset leaves. 0 is the
        coreset alone, which needs no training rows once it is fitted. With neighbours the estimator keeps the rows, and
        so does its file. ``auto`` learns kernel and noise with 20 neighbours, and consults these if the density of
        unseen rows gains by it; `n_neighbors_` says what it chose, and `history_` why. It is for up to 300,000 rows in
        memory, which each process of a group holds, and not where `solver`, `bound`, `max_iter` or `early_stopping`
        says how to train the coreset.
    ard : bool
        Learn one lengthscale per column rather than one for all.
    mean : {"zero", "constant"} or gpytorch mean
        Prior mean in standardised units: zero is the mean of y.
    noise : {"auto", "constant", "input-dependent"}
        Whether the noise may depend on x. It is learned after the fit, from what is left of each row when all others
        predict it. ``auto`` keeps a constant unless rows that were left out are clearly more likely otherwise. It also
        looks for rows whose y is wildly wrong, up to one in four, and counts rows by the probability that they are not;
        `outlier_share_` says what it found. The other two take all rows as they are.
    target : {"identity", "auto", "log", "yeo-johnson"}
        What the model describes as Gaussian: y itself, its logarithm, or a power of it that is learned (Yeo and
        Johnson, 2000). Predictions, densities and `elbo_` are those of y all the same. Intervals of a skewed y are
        skewed then, and those of ``log`` stay above 0. ``log`` needs y above 0. ``auto`` keeps the identity unless rows
        that were left out are clearly more likely otherwise; `target_` says what it chose. Known `noise_variance` and
        tables that are too large for memory allow the identity alone.
    inputs : {"auto", "identity", "rank", "mixed"}
        What the kernel's distances are those of: the columns of X, their ranks (as normal scores), or a monotone
        mixture of both, in which the share of the ranks is learned for each column. This matters where columns are
        skewed. ``auto`` keeps the columns as they are unless rows that were left out are clearly more likely with the
        mixture; `inputs_` says what it chose. It is for at least 200 rows, and for kernels by name without ``linear``
        and ``periodic`` and with `ard`. Ranks need `standardize`.
    dates : {"refuse", "features"}
        Whether columns of dates in a table are an error, or become features: their trend in days, and circles for
        season, weekday and hour, as far as these differ among rows. Dates are read in UTC; one without a time zone is
        taken as it is.
    init : {"kmeans", "random", "greedy"} or Coreset
        Where the coreset starts; a Coreset is in the units of the data.
    solver : {"auto", "lbfgs", "adam", "paper"}
        L-BFGS on Titsias' bound of all rows, Adam on minibatches, or the paper's own recipe. ``auto`` is L-BFGS for
        few rows. For more rows it is Adam, followed by L-BFGS where there is time for passes over all rows.
    bound : {"auto", "elbo", "tight", "power"}
        The paper's bound, the tighter one of Titsias (2025), or the estimate of log p(y) by power EP, which is no lower
        bound. ``auto`` is the tighter one with L-BFGS, where it costs little, and the paper's with Adam.
    power : float
        Only for ``bound="power"``: above 0 (towards Titsias' bound of 2009) and at most 1 (FITC).
    max_iter : int or None
        Adam steps, or evaluations of the bound for L-BFGS.
    batch_size, learning_rate : int, float or None
        For Adam.
    tol : float
        Stop when the bound gains less than this many nats per row in ten iterations.
    max_time : float or None
        Seconds. The learning rate falls to its end within this time, and the best model so far is kept.
    early_stopping : bool
        Hold out `validation_fraction` of the rows and keep the model with the lowest RMSE there, of y after its
        transform; stop after `n_iter_no_change` epochs (of at least 50 steps) without a better one.
    validation_fraction : float
        The share of the rows that `early_stopping` holds out.
    n_iter_no_change : int
        How many epochs `early_stopping` waits for a better model.
    standardize : bool
        Give every column of X and y mean zero and variance one during the fit; results are in the units of the data.
        Without it the prior is that of the data as they are: a mean of zero is the zero of y, a lengthscale for all
        columns is in their common unit, and a kernel or mean that is an object sees the data unchanged. Kernels and
        means by name are fitted in units of the solver's own all the same, so their result does not depend on units.
    dtype : {"auto", "float32", "float64"}
        Precision of the products with data; ``auto`` starts Adam in float32 while that is safe. M x M algebra and
        predictions are float64, unless ``float32`` asks for faster ones.
    device : str
        ``auto`` is the CPU; otherwise a torch device.
    n_jobs : int or None
        Threads of a fit: a number, or -1 for all. None is one thread where steps are small and several where products
        are large. A fit never has more than ``torch.get_num_threads()``. Another number of threads changes no more than
        rounding does.
    random_state : int, RandomState or None
        The same number gives the same result on the same machine.
    verbose : int
        1 shows progress: a bar in a notebook and in a terminal. Elsewhere, as in a log, it prints a line per phase of
        the search for a start and then a line every few seconds.
    checkpoint_dir : path or None
        Where to store progress. A fit that finds an unfinished run of the same data and parameters there continues it,
        so `random_state` must be a number.
    callbacks : sequence of callables or None
        Called with a `FitEvent` after each iteration; one that returns True ends the fit.

    Attributes
    ----------
    coreset_ : Coreset
        Pseudo-inputs, pseudo-outputs and weights, in the units of the data. With neighbours it stands for what rows say
        beyond their neighbours, and predictions need both. Where y is transformed, each pseudo-output is given as the y
        that it is the transform of.
    n_neighbors_ : int
        How many nearest training rows a prediction consults; 0 for none.
    elbo_ : float
        Lower bound on log p(y) in nats, for y in its own units; with ``bound="power"`` the estimate of log p(y) by
        power EP, which may lie above it. With neighbours it is a bound on log p(y) of the model in which each row
        depends on the coreset and on its neighbours. Where there are outliers, rows count by the probability that
        they are none.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Learned noise variance, in the units of y squared. Where the noise depends on x this is the constant of the fit,
        and ``predict(X, return_noise=True)`` has the noise at each row. Where y is transformed, it is the variance of
        the transformed y.
    target_ : {"identity", "log", "yeo-johnson"}
        How y is transformed.
    inputs_ : {"identity", "rank", "mixed"}
        How X is warped. ``gp_.scaling.warp`` has the functions and the shares of ranks.
    noise_ : {"constant", "input-dependent"}
        What the noise is.
    outlier_share_ : float
        The probability that an observation is wildly wrong; 0 where there are no such rows. Quantiles and densities
        count it. The mean and the standard deviation are those of observations that are not.
    kernel_name_ : str
        The name of the kernel, such as ``matern32`` or ``rbf+linear``.
    lengthscales_ : ndarray of shape (n_features,) or None
        In the units of X, infinite for a column that was constant in the fit; None for a kernel that has no single set
        of them. Of a column that is warped it is the width of one lengthscale about the column's middle; elsewhere it
        is another.
    feature_importances_ : ndarray of shape (n_columns,)
        The share of the variance of the predicted mean that needs each column of the data, alone or together with
        others: total Sobol indices over rows of the fit, in which features that stand for one column count together.
        They add up to one where no columns act together, and otherwise to more. A column that was constant in the fit
        has 0. `sobol_indices` has their standard errors, and the shares that columns explain alone.
    baselines_, columns_seen_ : dict
        What `report` and ``cvgp evaluate`` compare with: a constant and a line that were learned from a sample of the
        rows, and the distribution of each feature and output in it. There is no constant and no line for several
        outputs.
    boosting_ : BoostedTrees
        Gradient boosting that `report` compares with: scikit-learn's trees as plain arrays, learned from up to 20,000
        rows of the fit. There are none for several outputs, for fewer than 20 rows, and where `max_time` left no time.
    schema_ : dict
        After a fit to a table whose columns have names: how these become features.
    n_bad_rows_ : int
        After a fit to a table that is more than numbers, or in files: how many bad rows were left out.
    history_ : dict of ndarrays
        One entry per iteration: phase, bound, seconds, learning rate, events. A ``pandas.DataFrame`` can be made of it.
    n_iter_, converged_, solver_ : int, bool, str
        How many iterations the solver made, whether there was nothing left to gain, and which solver it was.
    model_ : CVGP
        The fitted torch module, in the units of ``gp_.scaling``: standardised ones, unless `standardize` is False.
    kernel_ : gpytorch kernel
        A copy of the fitted kernel, in the units of the data. Where y is transformed, it is in those of the transformed
        y. Where X is warped, its inputs are ``gp_.scaling.warp.apply(X)``.
    n_features_in_, feature_names_in_
        As in scikit-learn: the columns of the user's table, of which each may be several features of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.coreset_.X.shape
    (8, 1)
    >>> mean, sd = model.predict([[1.0], [2.0]], return_std=True)
    >>> mean.round(1).tolist()
    [0.8, 0.9]
    """

    def __init__(
        self,
        n_coreset: int | Literal["auto"] = "auto",
        *,
        kernel: str | Kernel | None = None,
        neighbors: int | Literal["auto"] = "auto",
        ard: bool = True,
        mean: Literal["zero", "constant"] | Mean = "zero",
        noise: NoiseName = "auto",
        target: TargetName = "identity",
        inputs: InputsName = "auto",
        dates: Literal["refuse", "features"] = "refuse",
        init: InitName | Coreset = "kmeans",
        solver: SolverName = "auto",
        bound: BoundName = "auto",
        power: float = 0.5,
        max_iter: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        tol: float = 1e-4,
        max_time: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        standardize: bool = True,
        dtype: Literal["auto", "float32", "float64"] = "auto",
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_coreset = n_coreset
        self.kernel = kernel
        self.neighbors = neighbors
        self.ard = ard
        self.mean = mean
        self.noise = noise
        self.target = target
        self.inputs = inputs
        self.dates = dates
        self.init = init
        self.solver = solver
        self.bound = bound
        self.power = power
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.max_time = max_time
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.standardize = standardize
        self.dtype = dtype
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks

    gp_: ScaledGP
    statistics_: Statistics
    baselines_: dict[str, Any]
    columns_seen_: dict[str, Any]
    boosting_: BoostedTrees
    n_rows_: float
    elbo_: float
    _log_slopes: float

    @usual_modes()
    @reused_memory()
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | str | None = None,
        noise_variance: ArrayLike | str | None = None,
        *,
        impute: Literal["mean", "median", "drop"] | None = None,
        on_bad_rows: Literal["error", "skip"] = "error",
        csv: CsvOptions | None = None,
        drop: str | Sequence[str] = (),
        features: str | Sequence[str] | None = None,
        keep: str | Sequence[str] = (),
    ) -> "CVGPRegressor":
        """Learn coreset, kernel and noise from data.

        Parameters
        ----------
        X : array-like, DataFrame or tensor of shape (n_samples, n_features), or a table in files
            A DataFrame (pandas, polars) or an Arrow table may hold text, categories, dates and missing values beside
            numbers. A table in files is a path, a glob, a folder, a list of paths, or a ``pyarrow.dataset.Dataset``. It
            is read in parts if it is too large to be loaded. Text of few categories becomes indicators, and of more
            the effects of its levels.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or the name of a column
            Outputs share one covariance. With a table in files, and also with a frame, the column (or a list of
            columns) to predict; all others are features.
        sample_weight : array-like of shape (n_samples,) or the name of a column, optional
            How many rows a row counts as: a weight of 100 is 100 copies of it, and rows of weight zero do not count at
            all. So equal weights other than one do change the result. Copies are evidence that their y is exact, and
            weights that add up to a few rows leave as little to learn as these. Weights that are to compare rows should
            have a mean of one.
        noise_variance : array-like of shape (n_samples,) or the name of a column, optional
            Known noise variances, to which a learned constant is added.
        impute : {"mean", "median", "drop"}, optional
            With a table: fill missing values of features, or leave their rows out. Text, and true and false,
            are filled with the most frequent value. The median of a table that is too large to be loaded is that of a
            random sample of 100,000 rows. None learns from missing values: a feature says where they are.
        on_bad_rows : {"error", "skip"}
            With a table: whether a row without a target, or with infinity, is an error or is left out; `n_bad_rows_`
            counts them.
        csv : dict, optional
            With a text table: how it is written, by the names of `pandas.read_csv`: ``sep``, ``decimal``, ``thousands``
            and ``encoding``. What is not given is found out from each file.
        drop, features : str or list of str, optional
            With a table: columns to leave out, or the only ones to use.
        keep : str or list of str, optional
            With a table: columns to use even if they have one value in all rows, or only number or name the rows.
            Others like that are left out, with a warning that names them.

        Returns
        -------
        CVGPRegressor
            The estimator itself, fitted.

        Raises
        ------
        InvalidInputError
            If a parameter or the data cannot be used: NaN or infinity, shapes that do not fit, an unknown name.
        InvalidTypeError
            If X or y holds no numbers, or a parameter is of the wrong kind.
        MissingFileError, FileAccessError, FileFormatError
            If a table in files does not exist, cannot be read or is damaged.

        Warns
        -----
        CVGPWarning
            If a column of X has one value in all rows: the model leaves it out, and predictions do not depend on it. If
            the sample weights add up to so few rows that there is little to learn. If y is the same in all rows, or
            there is one row: this says nothing of the spread of y, and the standard deviation of predictions is |y|
            divided by the number of rows (1 divided by it, where y is 0).
        ConvergenceWarning
            If a constant or a linear model describes the rows better than the fit.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> len(model.coreset_)
        8
        >>> CVGPRegressor().fit("houses/*.parquet", "price")  # doctest: +SKIP
        """
        group = current_group()
        rng = np.random.default_rng(first_seed(group, check_seed(self.random_state)))
        settings = self._settings(int(rng.integers(2**31)))
        neighbors = check_neighbors(self.neighbors)
        folder, n_jobs = check_folder(self.checkpoint_dir), check_n_jobs(self.n_jobs)
        check_noise_name(self.noise)
        check_target_name(self.target)
        check_inputs_name(self.inputs)
        shown = [progress_of_fit(self.max_time)] if self.verbose and group.rank == 0 else []
        watch = Watch(self.max_time, [*shown, *check_callbacks(self.callbacks)], group)
        reading = TableOptions(impute, on_bad_rows, csv, drop, features, keep)
        table = self._open_table(X, y, sample_weight, noise_variance, reading)
        prior: dict[str, Any] = {"kernel": self.kernel, "mean": self.mean, "ard": self.ard}
        units = partial(model_units, standardize=self.standardize, **prior)
        inputs = suited_name(self.inputs, standardize=self.standardize, solver=self.solver, **prior)
        # A run that goes on later, and every process of a group, must make the same choices.
        in_time = folder is None and group.world == 1
        warp = partial(choose_inputs, inputs, seed=settings.seed, watch=watch, in_time=in_time)
        options: dict[str, Any] = {"units": units, "choose_warp": warp, "device": self.device, "group": group}
        if table is None or table.fits_in_memory:
            if table is None:
                data, self._single_output = check_training(self, X, y, sample_weight, noise_variance)
                if hasattr(self, "feature_names_in_"):
                    self.schema_ = numeric_schema(self, X, data.x, y).to_json()
            else:
                data = table.load()
            look = self.noise == "auto" and self.solver != "paper"
            described = partial(
                describe,
                target=self.target,
                look_for_outliers=look,
                seed=settings.seed,
                watch=watch,
                in_time=in_time,
            )
            with limited_threads(n_jobs):
                sources = array_sources(data, settings, rng, describe=described, **options)
        else:
            refuse_transform(self.target)
            sources = table_sources(table, settings, rng, **options)
        source, held_out, scaling, spread = sources.train, sources.held_out, sources.scaling, sources.spread
        if group.rank == 0:
            columns = Schema.from_json(self.schema_).columns if hasattr(self, "schema_") else ()
            names = [name for column in columns for name in column.feature_names]
            effects = [name for column in columns for name in column.dims]  # levels may well have none
            names = names or [f"x{d}" for d in range(self.n_features_in_)]
            notice_constants(scaling, names, source.num_rows, quiet=effects)
            notice_weights(source.total_weight, source.num_rows)
            notice_one_output(sources.only_y, source.total_weight)
        is_auto, known_noise = self.n_coreset == "auto", sources.known_noise
        has_neighbours = neighbors != 0 and not reason_against(source)
        dims, mean = len(scaling.x_mean), starting_mean(self.mean, spread)
        make_kernels: dict[str, Any] = {"num_dims": dims, "ard": self.ard, "spread": spread}
        exact_if_few = choose_solver(settings, source.num_rows) == "lbfgs"
        may_be_rough = is_auto and exact_if_few and self.init == "kmeans" and source.num_rows >= ROWS_TO_BE_ROUGH
        others = alternative_kernels(self.kernel, may_be_rough=may_be_rough, **make_kernels)
        kernels = [starting_kernel(self.kernel, **make_kernels), *others]
        options = {
            "size": None if is_auto else check_size("n_coreset (unless 'auto')", self.n_coreset),
            "init": self._scaled(self.init, sources) if isinstance(self.init, Coreset) else self.init,
            "beta_transform": "softplus" if self.solver == "paper" else "log",
            "spread": spread,
            "exact_if_few": exact_if_few,
            "may_stay_untrained": settings.leaves_training_open and not has_neighbours,
            "has_neighbours": settings.leaves_training_open and has_neighbours,
            "known_noise": known_noise,
        }
        begin = partial(
            begin_or_recall,
            partial(begin_model, source, kernels[0], mean, rng, watch, alternatives=kernels[1:], **options),
            partial(
                blank_model,
                kernels,
                mean,
                options["beta_transform"],
                source.device,
                noise_is_known=known_noise is not None,
            ),
            rng,
            identity=partial(start_identity, kernels, mean, source, settings, options),
            group=group,
        )
        always = self.noise == "input-dependent"
        learns_noise = always or (self.noise == "auto" and self.solver != "paper")
        with limited_threads(n_jobs):
            with watch.shortened(seconds_to_note(source.num_rows, dims, len(scaling.y_mean), watch)):
                with watch.shortened(seconds_to_keep(source.num_rows, watch) if learns_noise else 0.0):
                    report, kept = fit_with_neighbours(
                        neighbors,
                        begin,
                        source,
                        settings,
                        watch,
                        checkpoint_dir=folder,
                        validation=held_out,
                        summary_rng=rng if is_auto else None,
                    )
                watch.keep_back(0.0)  # the fit is closed
                fit = NoiseFit(report, kept)
                if learns_noise:
                    is_wild = sources.outliers is not None
                    fit = fit_noise(report, kept, source, settings, watch, rng, always=always, is_normal=is_wild)
            self._set_results(fit, sources, watch.history)
            note_rows(self, source, settings.seed, watch)
        for progress in shown:
            progress.finish()
        return self

    @usual_modes()
    def prune(self, tolerance: float = 1e-3) -> int:
        """Drop pseudo-points from this estimator, in place, and return how many were dropped.

        It drops as many points as it can while the bound falls by less than `tolerance` nats per row in all. It solves
        for the points that are left from statistics that the fit kept, so no data are needed. A model with neighbours
        solves for them from its rows, and what a point is worth is then an estimate. `coreset_`, `elbo_` and
        `model_` change, and the predictions with them. The kernel and the noise stay as they are. To keep the larger
        model as well, prune a copy that ``copy.deepcopy`` makes.

        Parameters
        ----------
        tolerance : float
            Nats per row, at least 0.

        Returns
        -------
        int
            The number of points that were dropped; 0 if the bound needs all of them.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If `tolerance` is not a number of at least 0.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=12, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> dropped = model.prune(tolerance=0.1)
        >>> dropped + len(model.coreset_)
        12
        """
        check_is_fitted(self)
        if not isinstance(tolerance, Number) or not tolerance >= 0:
            raise InvalidInputError(f"tolerance must be a number of nats per row of at least 0; got {tolerance!r}.")
        pruned = prune_model(self.model_, self.statistics_, tolerance * self.n_rows_)
        self.gp_, self.statistics_, bound = resize(self.gp_, pruned.model, pruned.statistics)
        if bound is None:
            self.elbo_ -= pruned.loss
        else:
            self._set_bound(bound, self.n_rows_, self._log_slopes)
        return pruned.dropped

    @usual_modes()
    def grow(
        self,
        n: int,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | str | None = None,
        noise_variance: ArrayLike | str | None = None,
        *,
        impute: Literal["mean", "median", "drop"] | None = None,
        on_bad_rows: Literal["error", "skip"] = "error",
        csv: CsvOptions | None = None,
    ) -> int:
        """Add pseudo-points to this estimator, in place, until it has `n`, and return how many were added.

        Rows of X become points where those before them leave much prior variance (randomly pivoted Cholesky). The
        pseudo-outputs and weights of all points are then solved for in one pass over the rows. The kernel and the noise
        stay as they are, so nothing is trained, and the present points keep their places. With the rows of the fit the
        bound does not fall. With all of their inputs as points the model is the exact GP of its kernel and noise.

        Parameters
        ----------
        n : int
            How many points the model shall have in all.
        X, y, sample_weight, noise_variance, impute, on_bad_rows, csv
            All rows that the model shall stand for, with the columns of the fit and given as they are to `fit`. Usually
            they are those of the fit. Rows that are left out are forgotten. A model with neighbours consults these
            rows from now on.

        Returns
        -------
        int
            The number of points that were added. It is smaller than asked for where nothing is left to explain.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If `n` is not larger than the present number of points, or there are too few different rows to make points
            of; if the rows cannot be used, or have other columns or outputs than those of the fit.
        InvalidTypeError
            If X or y holds no numbers.

        Warns
        -----
        CVGPWarning
            If the model consults neighbours and cannot consult these rows: too many, or not in memory.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> model = CVGPRegressor(n_coreset=4, max_iter=20, random_state=0).fit(X, y)
        >>> before = model.elbo_
        >>> model.grow(10, X, y)
        6
        >>> len(model.coreset_), model.elbo_ > before
        (10, True)
        """
        check_is_fitted(self)
        size, present = check_size("n", n), len(self.model_.X_c)
        if size <= present:
            raise InvalidInputError(
                f"n is the number of points to grow to, and must be more than the present {present}; got {size}. "
                "To have fewer points, use prune."
            )
        group = current_group()
        rng = np.random.default_rng(first_seed(group, check_seed(self.random_state)))
        reading = TableOptions(impute, on_bad_rows, csv)
        source, log_slopes = known_source(self, X, y, sample_weight, noise_variance, group, reading)
        source = self.gp_.weighed(source)
        grown = grow_model(self.model_, source, size, rng)
        # The bound that the fit reported: the tighter one after L-BFGS, unless the user has chosen the paper's.
        tight = reports_tight_bound(self.bound, self.solver_)
        bound = grown.tight_bound(source) if tight else grown.bound
        seed = int(rng.integers(2**31))
        self.gp_, self.statistics_, with_rows = resize(self.gp_, grown.model, grown.statistics, source, seed)
        self._set_bound(bound if with_rows is None else with_rows, source.total_weight, log_slopes)
        with limited_threads(check_n_jobs(self.n_jobs)):
            note_rows(self, source, seed, Watch())
        return grown.added

    @usual_modes()
    def condition(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> "CVGPRegressor":
        """Return an estimator that has also seen new rows, without another fit. This one stays as it is.

        Kernel, noise and units stay those of the fit. With neighbours the new rows are appended to the rows that
        predictions consult, each given its nearest rows before it, and the coreset is solved for again. That is the
        model that the fit would have made of all rows in this order, with the same kernel, noise and pseudo-inputs.
        Without neighbours the new rows become points of the coreset: its posterior is conditioned on them exactly, in
        a time that grows with the cube of the number of points and new rows. `prune` makes the coreset smaller again.

        Rows of the fit must not be given again: they would count twice.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows, of the columns of the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their outputs.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts.
        noise_variance : array-like of shape (n_samples,), optional
            Known noise variances in the units of y squared, beside the learned noise.

        Returns
        -------
        CVGPRegressor
            Fitted. Its `elbo_` and `n_rows_` count the new rows; without neighbours the log density of the new rows is
            added to `elbo_`, which is then an estimate. `history_` is that of the fit.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If the rows cannot be used, or have other columns or outputs than those of the fit. If predictions would
            consult more than 300,000 rows.
        InvalidTypeError
            If X or y holds no numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> X_new = np.linspace(7, 9, 20)[:, None]
        >>> after = model.condition(X_new, np.sin(X_new[:, 0]))
        >>> after.predict([[8.0]]).round(1).tolist()
        [1.0]
        >>> len(model.coreset_), len(after.coreset_)
        (8, 28)
        """
        from cvgp.estimators.conditioning import condition  # no fit or prediction needs it

        check_is_fitted(self)
        return condition(self, X, y, sample_weight, noise_variance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which `cvgp.load` opens.

        The file holds arrays and JSON, and nothing that could be executed. It is written whole or not at all. With
        neighbours (`n_neighbors_` above 0) it holds all training rows, since predictions consult them: in float32 where
        that is exact, and otherwise in float64. With ``neighbors=0`` it is small and holds none but those that are
        points of the coreset.

        Parameters that are no plain values have their defaults again after loading: `callbacks`, `checkpoint_dir`, an
        `init` that is a Coreset and a `random_state` that is a generator.

        Parameters
        ----------
        path : str or path
            The file; one that exists is replaced.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidTypeError
            If a file cannot hold the kernel, the mean or another parameter, or the estimator is of a class of your own.
        InvalidInputError
            If the estimator could not be loaded again, such as one with NaN in its parameters.
        MissingFileError, FileAccessError
            If the folder does not exist, or the disk refuses the file.

        Examples
        --------
        >>> import numpy as np, pathlib, tempfile
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder) / "sine.cvgp")
        """
        from cvgp.estimators import saving  # which knows this class

        saving.save(self, path)

    @property
    def model_(self) -> CVGP:
        """The fitted torch module, in the units of ``gp_.scaling``."""
        return self.gp_.model

    @property
    def kernel_name_(self) -> str:
        """The name of the kernel that was fitted."""
        return name_of_kernel(self.model_.kernel)

    @property
    def kernel_(self) -> Kernel:
        """A copy of the fitted kernel, in the units of the data."""
        return self.gp_.kernel

    @property
    def coreset_(self) -> Coreset:
        """Pseudo-inputs, pseudo-outputs and weights in the units of the data."""
        own = self.gp_.coreset
        if not hasattr(self, "feature_names_in_"):
            return own
        return Coreset(own.X, own.y, own.beta, columns=named_inputs(self))

    @property
    def n_neighbors_(self) -> int:
        """How many nearest training rows a prediction consults."""
        return 0 if self.gp_.local is None else self.gp_.local.kept.num_neighbours

    @property
    def noise_variance_(self) -> float | Array:
        """Learned noise variance in the units of y squared."""
        variance = self.gp_.noise_variance
        return float(variance[0]) if self._single_output else variance.copy()

    @property
    def noise_(self) -> str:
        """Whether the noise is constant or depends on x."""
        return "constant" if self.gp_.noise is None else "input-dependent"

    @property
    def outlier_share_(self) -> float:
        """The probability that an observation is wildly wrong."""
        return 0.0 if self.gp_.outliers is None else self.gp_.outliers.share

    @property
    def target_(self) -> str:
        """How y is transformed."""
        return self.gp_.target.name

    @property
    def inputs_(self) -> str:
        """How X is warped."""
        return self.gp_.scaling.warp.name

    @property
    def lengthscales_(self) -> Array | None:
        """Lengthscales in the units of X."""
        return self.gp_.lengthscales

    @property
    def feature_importance_(self) -> Array:
        """Old name of `feature_importances_`. It warns, and will be removed in version 0.2."""
        warnings.warn(
            "feature_importance_ is now called feature_importances_; the old name will be removed in cvgp 0.2.",
            FutureWarning,
            stacklevel=2,
        )
        return self.feature_importances_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _settings(self, seed: int) -> Settings:
        """The parameters that training is told under their own names; the paper's recipe always stops early."""
        chosen_later = ("seed", "is_brief")
        shared = {field.name: getattr(self, field.name) for field in fields(Settings) if field.name not in chosen_later}
        return Settings(**shared | {"early_stopping": self.early_stopping or self.solver == "paper"}, seed=seed)

    def _open_table(self, x: Any, y: Any, weight: Any, noise: Any, reading: TableOptions) -> Any:
        """Rows that are read as a table, or None where x holds numbers; notes what is known of it on the estimator."""
        for name in ("schema_", "n_bad_rows_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if not is_table(x, y, reading):
            return None
        options = {"sample_weight": weight, "noise_variance": noise, **reading._asdict()}
        table = open_table(x, y, **options, dates=self.dates, group=current_group())
        self._single_output = table.single_output
        columns = table.schema.columns
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        self.n_bad_rows_ = table.survey.bad.skipped
        if self.verbose and not table.reading.is_plain:
            print(f"The table was read with {table.reading.describe()}.", flush=True)
        self.schema_ = table.schema.to_json()
        return table

    def _set_results(self, fit: NoiseFit, sources: Sources, history: list[dict[str, Any]]) -> None:
        report, kept, noise = fit
        dtype = torch.float32 if self.dtype == "float32" else torch.float64
        self.gp_ = ScaledGP(report.model, sources.scaling, dtype, kept, noise, sources.target, sources.outliers)
        self.statistics_ = report.statistics
        self._set_bound(report.bound, sources.train.total_weight, sources.log_slopes)
        self.history_ = as_columns(history)
        self.n_iter_ = report.result.num_iter
        self.converged_ = report.result.converged
        self.solver_ = report.solver

    def _set_bound(self, bound: float, num_rows: float, log_slopes: float) -> None:
        """Note a bound on the density of the scaled T(y), as one of y in its own units, for each row and output."""
        self.n_rows_ = num_rows
        self._log_slopes = log_slopes
        self.elbo_ = bound - num_rows * float(np.log(self.gp_.scaling.y_scale).sum()) + log_slopes

    def _scaled(self, given: Coreset, sources: Sources) -> Coreset:
        """A coreset in the user's units, brought to the model's."""
        scaling = sources.scaling
        dims, outputs = len(scaling.x_mean), len(scaling.y_mean)
        if given.num_dims != dims or given.num_outputs != outputs:
            raise InvalidInputError(
                f"init is a Coreset of {given.num_dims} inputs and {given.num_outputs} outputs; "
                f"the data have {dims} and {outputs}."
            )
        known = transformed(sources.target, Rows(given.X, given.y.reshape(len(given), -1)))
        y = scaling.scale_y(known.y)
        return Coreset(scaling.scale_x(given.X), y[:, 0] if outputs == 1 else y, given.beta)
