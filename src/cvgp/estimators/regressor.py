"""CVGPRegressor: Gaussian process regression on a learned coreset, as a scikit-learn estimator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood as GPyTorchObject
from gpytorch.means import Mean
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.estimators import inputs
from cvgp.estimators.audit import audit, draw_audit, draw_audit_of_table, posterior
from cvgp.estimators.correlated import Unmixed, check_correlated, check_outputs, refuse_beside
from cvgp.estimators.display import DisplayMixin
from cvgp.estimators.explaining import ExplainMixin
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import named_inputs
from cvgp.estimators.importance import seconds_for_importance
from cvgp.estimators.latent import check_combination, fit_latent_values
from cvgp.estimators.missing import begin_with_block
from cvgp.estimators.predictive import PredictiveMixin
from cvgp.estimators.training_summary import Baselines, FeatureQuantiles, summarize_features, summarize_rows
from cvgp.estimators.updating import UpdatingMixin, in_units_of_model
from cvgp.fitting.decide import Fit, Request, fit, with_all_rows
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.kinds import LATENT_SOLVER
from cvgp.fitting.monitor import FitLog, as_columns
from cvgp.fitting.options import (
    InputWarpName,
    LikelihoodName,
    NoiseName,
    OutputCovarianceName,
    TargetName,
    TrainingOptions,
    WithTraining,
    check_choice,
)
from cvgp.fitting.prepare import (
    FitData,
    decide_trends,
    is_of_fingerprints,
    memory_data,
    merge_copies,
    transformed,
    warn_about,
)
from cvgp.fitting.privacy import FEWEST, check_rows, without_rows
from cvgp.gp.likelihoods import Likelihood
from cvgp.gp.model import CVGP
from cvgp.parallel.group import Group, current_group
from cvgp.runtime import clean_torch_state, limited_threads, reused_memory
from cvgp.tables.columns import Schema

Array = NDArray[np.float64]
OF_A_GAUSSIAN = ("_statistics", "_log_slopes", "_baselines", "_feature_quantiles")


class CVGPRegressor(WithTraining, RegressorMixin, PredictiveMixin, ExplainMixin, UpdatingMixin, DisplayMixin):  # type: ignore[misc]
    """Gaussian process regression with a learned coreset.

    Parameters
    ----------
    n_coreset : int or "auto"
        Number of pseudo-points M. ``auto`` takes the fewest that predict unseen rows about as well as many.
    kernel : str, gpytorch kernel or None
        ``rbf``, ``matern12``, ``matern32``, ``matern52``, ``rq``, ``linear``, ``periodic``, or several joined by ``+``
        and ``*``; ``tanimoto`` for fingerprints of molecules, taken as they are; or any GPyTorch kernel. None is
        ``matern32``, or a smoother or rougher one if the data ask for it. ``auto`` chooses among more by the density of
        unseen rows, sums with a line included.
    n_neighbors : int or "auto"
        How many nearest training rows a prediction uses beside the coreset, for up to 300,000 rows in memory. The
        estimator and its file then hold the rows. ``auto`` uses 20 or more if unseen rows are then clearly more likely.
    ard : bool
        Learn one lengthscale per column rather than one for all.
    mean : {"zero", "constant"} or gpytorch mean
        Prior mean in standardized units: zero is the mean of y.
    noise : {"auto", "constant", "input-dependent"}
        Whether the noise may depend on x. ``auto`` decides by the density of left-out rows, and also detects gross
        outliers in y, up to one row in four.
    likelihood : {"gaussian", "student_t", "poisson", "negative_binomial", "gamma", "beta"} or gpytorch likelihood
        The distribution of y given f: ``gaussian``, ``student_t``, ``poisson``, ``negative_binomial``, ``gamma`` or
        ``beta``. ``student_t`` has heavy tails; ``poisson`` and ``negative_binomial`` are for counts and ``gamma`` for
        positive numbers, with the mean exp(f); ``beta`` is for proportions between 0 and 1, with the mean sigmoid(f).
        A GPyTorch likelihood with one latent value per row is used with its parameters as they are. All but
        ``gaussian`` neither use neighbors nor can be updated.
    input_warp : {"auto", "identity", "rank", "mixed"}
        Whether distances are those of the columns of X, of their ranks (which need `standardize`), or a mixture.
    target_transform : {"auto", "identity", "log", "yeo-johnson"}
        What the model describes as Gaussian: y, its logarithm, or a learned power of it (Yeo and Johnson, 2000).
        ``auto`` takes a transform if unseen rows are clearly likelier under it and not less accurately predicted.
        Predictions and `elbo_` are those of y all the same. It needs the rows in memory and no known noise.
    missing_targets : bool
        Whether rows of arrays may lack some targets (NaN). Each output is then learned, without neighbors, from the
        rows that have it.
    output_covariance : {"independent", "learned"}
        Whether several outputs are independent given the kernel, or have covariances of f and of noise that the fit
        learns, of rows in memory that have all targets. The noise is then constant, and no neighbors are used.
    standardize : bool
        Give every column of X and y mean zero and variance one during the fit; results are in the units of the data.
    private : bool
        Keep training rows out of the model: no point of the coreset equals one, and no value of a single row is stored.
        This is not differential privacy, and needs at least 100 different rows.
    max_time : float or None
        Seconds that the fit may take. The learning rate falls to its end in this time, and the best model is kept.
    n_jobs : int or None
        Threads of a fit, or -1 for all of ``torch.get_num_threads()``. None is one thread where steps are small.
    device : str
        ``auto`` is the CPU; otherwise a torch device.
    random_state, verbose : int
        The same seed gives the same result on the same machine; a `verbose` of 1 prints progress.
    training : TrainingOptions or None
        How the coreset is trained. ``set_params(training__max_iter=100)`` works from None as well.

    Attributes
    ----------
    elbo_ : float
        Lower bound on log p(y) in nats, for y in its own units.
    decisions_ : Decisions
        Everything that the fit has decided, with candidates, scores and reasons: print it, or give it to `fit`.
    schema_, n_bad_rows_ : dict, int
        After a fit to a table: how its columns become features, and how many bad rows were left out.
    history_ : dict of ndarrays
        One entry per iteration: phase, bound, seconds, learning rate, events.
    solver_, n_iter_, converged_, n_rows_ : str, int, bool, float
        The solver, its iterations, whether there was nothing left to gain, and the number of rows by weight.
    left_out_log_density_ : float
        With another likelihood than ``gaussian``, the mean log density of up to 20,000 rows, each predicted without
        itself, or without its group.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.coreset_.X.shape
    (8, 1)
    """

    _baselines: Baselines
    _feature_quantiles: FeatureQuantiles

    def __init__(
        self,
        n_coreset: int | Literal["auto"] = "auto",
        *,
        kernel: str | Kernel | None = None,
        n_neighbors: int | Literal["auto"] = "auto",
        ard: bool = True,
        mean: Literal["zero", "constant"] | Mean = "zero",
        noise: NoiseName = "auto",
        likelihood: LikelihoodName | GPyTorchObject = "gaussian",
        input_warp: InputWarpName = "auto",
        target_transform: TargetName = "auto",
        missing_targets: bool = False,
        output_covariance: OutputCovarianceName = "independent",
        standardize: bool = True,
        private: bool = False,
        max_time: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        training: TrainingOptions | None = None,
    ) -> None:
        self.n_coreset = n_coreset
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.ard = ard
        self.mean = mean
        self.noise = noise
        self.likelihood = likelihood
        self.input_warp = input_warp
        self.target_transform = target_transform
        self.missing_targets = missing_targets
        self.output_covariance = output_covariance
        self.standardize = standardize
        self.private = private
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.training = training

    @clean_torch_state()
    @reused_memory()
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | str | None = None,
        noise_variance: ArrayLike | str | None = None,
        *,
        groups: ArrayLike | str | None = None,
        decisions: Decisions | Mapping[str, Choice] | None = None,
        exposure: ArrayLike | str | None = None,
        geo: Sequence[str] | None = None,
        time: ArrayLike | str | None = None,
    ) -> "CVGPRegressor":
        """Learn coreset, kernel and noise from data.

        Parameters
        ----------
        X : array-like, DataFrame or tensor of shape (n_samples, n_features), or a table in files
            NaN is a missing value. A frame or an Arrow table may also hold text and dates. A table in files is a path,
            a glob, a folder, a list of paths or a ``pyarrow.dataset.Dataset``; `cvgp.read_table` opens it with options.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or the names of columns
            Outputs share one kernel, and each has its own noise. With a table, the columns to predict; None if
            `read_table` has named them.
        sample_weight : array-like of shape (n_samples,) or the name of a column, optional
            A weight of 100 is 100 copies of a row. Weights that only compare rows should have a mean of one.
        noise_variance : array-like of shape (n_samples,) or the name of a column, optional
            Known noise variances, to which a learned constant is added.
        groups : array-like of shape (n_samples,) or the name of a column, optional
            The person, day or site that each row belongs to, if predictions are for new ones. Rows are then judged
            without their group in every choice, and intervals hold for new groups. It is not an input.
        decisions : Decisions or dict, optional
            Decisions of an earlier fit, or some of them, that are taken as they are, without a search.
        exposure : array-like of shape (n_samples,), number or the name of a column, optional
            For counts, the time, area or number at risk in which the events of each row were counted: the expected
            count is the exposure times exp(f). It is not an input, and predictions need it too.
        geo : sequence of str, optional
            The columns of latitude and longitude in degrees, of a table: distances are then those on the sphere.
        time : array-like of shape (n_samples,) or the name of a column, optional
            The date, or a number such as the year, of each row, if predictions are for later ones. The end of the
            series is then held out in every choice, and intervals are calibrated by it. The column stays an input.

        Returns
        -------
        CVGPRegressor
            The estimator itself, fitted.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> cvgp.CVGPRegressor().fit("houses/*.parquet", "price")  # doctest: +SKIP
        """
        if not isinstance(self.likelihood, GPyTorchObject):
            check_choice("likelihood", self.likelihood, get_args(LikelihoodName))
        check_choice("output_covariance", self.output_covariance, get_args(OutputCovarianceName))
        if self.output_covariance == "learned":
            given_beside = {"noise_variance": noise_variance, "groups": groups, "time": time}
            check_correlated(self, self._training_options(), given_beside, current_group())
        inputs.check_exposed(self.likelihood, exposure)
        if self.likelihood != "gaussian":
            observed = {"x": X, "y": y, "sample_weight": sample_weight, "exposure": exposure}
            beside = {"groups": groups, "decisions": decisions, "geo": geo, "time": time}
            return self._fit_likelihood(observed, noise_variance, **beside)
        group, training = current_group(), self._training_options()
        options, pinned = inputs.model_options(self, training.solver), Decisions.pinned(decisions)
        given = {"x": X, "y": y, "sample_weight": sample_weight, "noise_variance": noise_variance}
        begun = inputs.begin_fit(self, training, pinned, given, groups, geo=geo, time=time)
        run, settings, table, audited, rows, join = begun.run, begun.settings, begun.table, None, None, None
        unmixed: Unmixed | None = None
        # A run that may be resumed later, and every process of a group, must make the same choices.
        choosing = run.choosing(settings.checkpoint_dir)
        with limited_threads(begun.n_jobs):
            if table is not None and not table.fits_in_memory:
                inputs.refuse_transform(self.target_transform)
                refuse_beside({"a table that is read in parts": self.output_covariance == "learned"})
                apart = None
                if training.solver != "paper":
                    table, apart = draw_audit_of_table(table, run.heuristics, run.rng("audit"))
                if begun.has_groups:
                    table = inputs.weigh_groups(table, choosing, lambda rows: rows)
                dates = decide_trends(table.common_sample, begun.trends, choosing, pinned)
                (table,) = begun._replace(table=table).without_trends(self, dates)
                audited = apart and table.features(apart)
                options = inputs.with_sphere(self, options)
                data = inputs.table_data(table, options, settings, choosing, pinned)
            else:
                rows = inputs.training_rows(self, table, **given, groups=begun.groups, time=begun.time)
                if self.output_covariance == "learned":
                    check_outputs(rows.y)
                    options = replace(options, n_neighbors=0, noise="constant", target_transform="identity")
                elif np.isnan(rows.y).any():
                    rows, options, join = begin_with_block(rows, options)
                if training.solver != "paper":
                    rows, audited = draw_audit(rows, run.heuristics, run.rng("audit"))
                dates = decide_trends(rows, begun.trends, choosing, pinned)
                _, rows, audited = begun.without_trends(self, dates, rows, audited)
                if self.output_covariance == "learned":
                    unmixed = Unmixed.learn(rows, choosing)
                    rows, audited = unmixed.rows, unmixed.take(audited)
                options = inputs.with_sphere(self, options)
                train, held_out = inputs.hold_out(rows, settings, run.rng("validation"))
                # With groups, what is far off may be a group that is unlike the others. Fingerprints have no distances.
                look = options.noise == "auto" and training.solver != "paper" and not begun.has_groups and join is None
                look = look and not is_of_fingerprints(self.kernel)
                data = memory_data(train, held_out, options, choosing, pinned, audited, look_for_outliers=look)
            if dates is not None:
                data = data._replace(decisions=data.decisions.with_choice("dates", dates))
            if self.private:
                check_rows(data.train.num_rows, options.n_coreset)
            if group.rank == 0:
                self._warn_about(data)
            budget = run.budget.reserving(seconds_for_importance(len(data.scaling.x_mean), self.max_time))
            init = self._scaled(training.init, data) if isinstance(training.init, Coreset) else training.init
            request = Request(data, options, settings, run._replace(budget=budget), pinned, init)
            found, dtype = fit(request), torch.float32 if training.dtype == "float32" else torch.float64
            gp = posterior(found.result, data, dtype)
            if training.solver != "paper":
                found, gp = audit(request, found, audited, dtype)
            calibration = None
            if unmixed is not None and audited is not None:
                own, *_ = unmixed.mixed(gp, found.result.solution.statistics, data.train)
                calibration = unmixed.calibration(own, audited)
            is_loaded = isinstance(data.train, MemorySource) and group.world == 1
            if audited is not None and found.is_exact and is_loaded and run.has_time:
                # A tenth of few rows matters to kernel and noise too.
                every = Rows[Array].join([train, audited])
                data = memory_data(every, held_out, options, choosing, found.decisions, look_for_outliers=look)
                data = data._replace(decisions=found.decisions)
                found = with_all_rows(request, found, data)
                gp = replace(posterior(found.result, data, dtype), calibration=gp.calibration)
                audited = None
            if self.private:
                given_x = [part.x for part in (rows, audited) if part is not None]
                solution = without_rows(found.result.solution, data, given_x, run, in_parts=rows is None)
                gp = gp.with_model(solution.model, sums=solution.statistics)
                found = found._replace(result=found.result._replace(solution=solution, outputs=gp.outputs))
                gp = replace(gp, calibration=gp.calibration and gp.calibration.pooled(FEWEST))
            self._set_results(found, gp, data, run.log)
            if join is not None:
                join(self, run.rng("missing targets"))
                return self
            # A fit that was stopped early is not at the best coreset for its kernel, so no rows are added to it.
            if audited is not None and not settings.early_stopping:
                self._add_rows(audited, found.result.solution, group, is_exact=found.is_exact)
            if unmixed is not None:
                added = [] if audited is None else [in_units_of_model(gp, merge_copies(audited))[0]]
                unmixed.finish(self, calibration, data.train, *added)
                return self
            summarize_rows(self, data.train, run.seed)
        return self

    def _fit_likelihood(self, given: dict[str, Any], noise_variance: Any, **beside: Any) -> "CVGPRegressor":
        """Fit by a likelihood that is not Gaussian."""
        training = self._training_options()
        likelihood = check_combination(self, noise_variance, training)
        options = replace(inputs.model_options(self, training.solver), noise="constant", n_neighbors=0)

        def observed(rows: Rows[Array]) -> Rows[Array]:
            if rows.y.shape[1] > 1:
                raise InvalidInputError(
                    f"likelihood={likelihood.name!r} is for one output, and y has {rows.y.shape[1]}. Fit each by "
                    "itself, or use likelihood='gaussian'."
                )
            return rows

        def looked_at(rows: Rows[Array], group: Group) -> Callable[[Rows[Array]], Rows[Array]]:
            likelihood.check(rows.y[:, 0])
            return lambda rows: rows

        own = fit_latent_values(self, likelihood, given, observed, looked_at, options, training, **beside)
        (self._gp,), density, rows = own
        self.left_out_log_density_ = density
        for name in OF_A_GAUSSIAN:
            self.__dict__.pop(name, None)  # of an earlier fit
        self.solver_ = LATENT_SOLVER
        summarize_features(self, rows.x, rows.y, rows.sample_weight)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None) -> float:
        """Return the coefficient of determination R² of the predicted means.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
            Rows to predict, and what was observed there.
        exposure : as for `predict`

        Returns
        -------
        float

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> round(model.score(X, np.sin(X[:, 0])), 1)
        1.0
        """
        return float(r2_score(y, self.predict(X, exposure=exposure), sample_weight=sample_weight))

    @property
    def model_(self) -> CVGP:
        """The fitted torch module, in the units that it was fitted in."""
        return self._gp.model

    @property
    def kernel_(self) -> Kernel:
        """A copy of the fitted kernel, in the units of the data."""
        return self._gp.kernel

    @property
    def coreset_(self) -> Coreset:
        """Pseudo-inputs, pseudo-outputs and weights in the units of the data; with neighbors, predictions need both.

        With a likelihood that is not Gaussian, the pseudo-outputs are values of f, such as logarithms of rates.
        """
        own = self._gp.coreset
        if not hasattr(self, "feature_names_in_"):
            return own
        return Coreset(own.X, own.y, own.beta, columns=named_inputs(self))

    @property
    def n_neighbors_(self) -> int:
        """How many nearest training rows a prediction uses."""
        return 0 if self._gp.kept is None else self._gp.kept.num_neighbors

    @property
    def coresets_(self) -> list[Coreset]:
        """The coreset in a list, as a classifier has one for each latent value."""
        return [self.coreset_]

    @property
    def likelihood_(self) -> Likelihood | None:
        """The likelihood with its learned parameters; None if it is Gaussian."""
        return self._gp.likelihood

    @property
    def noise_variance_(self) -> float | Array:
        """Learned noise variance of y, or of its transform; where it depends on x, what a constant would be."""
        if self._gp.likelihood is not None:
            raise AttributeError("noise_variance_ is of a Gaussian likelihood; likelihood_ has the learned parameters")
        variance = self._gp.noise_variance
        return float(variance[0]) if self._single_output else variance.copy()

    @property
    def output_covariance_(self) -> Array:
        """Prior covariance of f between outputs [Q, Q] at a row, after a fit with output_covariance='learned'."""
        return self._gp.output_covariances()[0]

    @property
    def noise_covariance_(self) -> Array:
        """Covariance of the noise between outputs [Q, Q], after a fit with output_covariance='learned'."""
        return self._gp.output_covariances()[1]

    @property
    def noise_(self) -> str:
        """Whether the noise is constant or depends on x; the name of a likelihood that is not Gaussian."""
        if self._gp.likelihood is not None:
            return self._gp.likelihood.name
        return "constant" if self._gp.noise is None else "input-dependent"

    @property
    def outlier_share_(self) -> float:
        """The probability of a gross outlier, which quantiles, densities and draws include; mean and sd do not."""
        return 0.0 if self._gp.outliers is None else self._gp.outliers.share

    @property
    def target_transform_(self) -> str:
        """How y is transformed."""
        return self._gp.target.name

    @property
    def input_warp_(self) -> str:
        """How X is warped."""
        return self._gp.scaling.warp.name

    @property
    def lengthscales_(self) -> Array | None:
        """In the units of X, infinite for a constant column; None for a kernel that has no single set of them."""
        return self._gp.lengthscales

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.likelihood == "gaussian"
        tags.target_tags.positive_only = self.likelihood in ("poisson", "negative_binomial", "gamma")
        return tags

    def _warn_about(self, data: FitData) -> None:
        columns = Schema.from_json(self.schema_).columns if hasattr(self, "schema_") else ()
        names = [name for column in columns for name in column.feature_names]
        effects = [name for column in columns for name in column.dims]  # levels may well have none
        warn_about(data, names or [f"x{d}" for d in range(self.n_features_in_)], quiet=effects)

    def _set_results(self, found: Fit, gp: FittedGP, data: FitData, log: FitLog) -> None:
        solution = found.result.solution
        self.__dict__.pop("left_out_log_density_", None)  # of an earlier fit with another likelihood
        self._gp = gp
        self._statistics = solution.statistics
        self._set_bound(solution.bound, data.train.total_weight, data.log_slopes)
        self.decisions_ = found.decisions
        self.history_ = as_columns(log.history)
        self.n_iter_ = solution.result.num_iter
        self.converged_ = solution.result.converged
        self.solver_ = solution.solver

    def _scaled(self, given: Coreset, data: FitData) -> Coreset:
        scaling = data.scaling
        dims, outputs = len(scaling.x_mean), len(scaling.y_mean)
        if given.num_dims != dims or given.num_outputs != outputs:
            raise InvalidInputError(
                f"init is a Coreset of {given.num_dims} inputs and {given.num_outputs} outputs; "
                f"the data have {dims} and {outputs}."
            )
        known = transformed(data.target, Rows(given.X, given.y.reshape(len(given), -1)))
        y = scaling.scale_y(known.y)
        return Coreset(scaling.scale_x(given.X), y[:, 0] if outputs == 1 else y, given.beta)
