"""Every constant by which a fit decides, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Heuristics:
    """The constants by which a fit decides; pass another instance to `TrainingOptions` to try other values.

    Examples
    --------
    >>> from cvgp import CVGPRegressor, Heuristics, TrainingOptions
    >>> model = CVGPRegressor(training=TrainingOptions(heuristics=Heuristics(largest_coreset=100)))
    """

    # Samples on which choices are made
    enough_seconds: float = 10.0
    """A time limit from which on choices use as many rows as without one."""
    least_rows_to_choose: int = 200
    """With fewer, outliers, transforms and rough kernels cannot be told from chance."""
    sample_rows: int = 500
    """Of each part: an exact GP of 500 rows takes 5 ms per evaluation."""
    sample_evaluations: int = 20
    """Of L-BFGS for a GP of the sample: differences between candidates show by then."""
    judging_rows: int = 1000
    """A difference of .05 nats is then two standard errors."""
    margin: float = 0.05
    """Nats per row that a fit may be behind a constant or a line, or a sum behind a single kernel, and that a transform
    has to gain."""

    # Dates
    latest_share: float = 0.25
    """Of the rows: a trend is judged by predicting these from the earlier ones."""
    least_trend_gain: float = 0.01
    """Nats per row."""

    # Outliers and transforms
    largest_outlier_share: float = 0.25
    """With more, it is not clear which rows are regular."""
    outlier_variance: float = 50.0
    """Least ratio to that of regular rows: seven standard deviations."""
    least_transform_gain: float = 0.01
    """Nats per row; a transform that makes y no more normal than this is not tried."""
    irrelevant_column: float = 0.01
    """Share of the largest inverse lengthscale below which a column is not warped."""

    # Kernel
    start_factors: tuple[float, ...] = (1.0, 0.25, 4.0)
    """Multiples of the typical lengthscale."""
    start_noise: float = 0.1
    """Share of the variance of y."""
    least_start_noise: float = 100.0
    """In units of the noise floor, where the logarithm of the noise has no slope."""
    start_tol: float = 1e-3
    """Nats per row that ten iterations have to gain."""
    few_rows_per_column: float = 100.0
    """Up to this many, lengthscales have a weak prior that keeps them from becoming short."""
    very_few_rows_per_column: float = 2.0
    """Up to this many, they have a prior around the typical one."""
    linear_rows_per_column: float = 10.0
    """With fewer, a linear kernel is not tried, as its variances overfit, but one lengthscale for all columns is."""
    fewest_rows_to_share: int = 20
    """With fewer rows, cross-fitting cannot tell whether one lengthscale is enough."""
    least_lengthscale: float = 0.1
    """Share of the smallest gap in a column: below it, distances are lost to rounding."""
    leave_one_out_rows: int = 750
    """Up to this many, each is left out in turn; of more, some judge the others."""
    kernel_evaluations: int = 40
    """Of the exact likelihood, for a start."""
    alternative_evaluations: int = 20
    """For another kernel, which begins where the first has ended."""
    race_rows: int = 300
    """Several starts are compared on few rows, and only the best is continued."""
    race_evaluations: int = 15
    periods_tried: int = 3
    noise_ladder: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
    """Shares of the variance of y."""

    # Size
    smallest_coreset: int = 16
    rows_per_point: int = 1
    """Rows whose mean a point begins at, and for which there is at most one point; 10 with ``private=True``."""
    largest_coreset: int = 400
    """Without a time limit: well under a minute on two cores."""
    size_held_out: float = 0.2
    size_margin: float = 0.01
    """Nats per held-out row by which the chosen size may be behind the best one."""
    exact_evaluations: int = 60
    """That the exact GP usually takes."""
    exact_seconds: float = 8.0
    """The longest by the cost model: about 1480 rows."""
    unexplained_share: float = 0.01
    """Of the noise, by the prior variance that fewer points leave: .005 nats per row."""
    bearable_loss: float = 5.0
    """Times more that the largest coreset may leave unexplained: .025 nats per row."""

    # Classes and counts
    latent_rows: int = 20_000
    """Used to learn the kernel; sites are solved for with all rows."""
    largest_latent_coreset: int = 200
    """Each latent value costs as much as a regression, so fewer points are affordable."""
    rough_latent_rows: int = 1000
    """With as many, a rough kernel beside the smooth one is tried for classes: log-odds often have steps."""
    rough_trial_rows: int = 2000
    """By which both are learned for the choice."""
    latent_rows_per_column: float = 20.0
    """With fewer, one lengthscale and a linear kernel are tried too."""

    # Solvers
    lbfgs_rows: int = 3000
    """Up to this many, a full pass costs about as much as a minibatch."""
    lbfgs_evaluations: int = 200
    fewest_lbfgs_evaluations: int = 30
    lbfgs_seconds: float = 8.0
    """The longest without a time limit: a good start needs few evaluations."""
    brief_rows: int = 50_000
    """Where neighbors did not help, longer training gains little."""
    brief_seconds: float = 4.0
    brief_evaluations: tuple[int, int] = (12, 60)
    polish_evaluations: int = 150
    """Of L-BFGS after Adam."""
    fewest_polish_evaluations: int = 10
    longest_polish: int = 1500
    polish_seconds: float = 9.0
    """For up to 20,000 rows."""
    longest_growth: float = 2.0
    """How many times longer it may take for more rows."""
    learning_rate: float = 0.03
    """Three times as much for the pseudo-inputs gains .003 nats on one set, and loses .03 to .2 on others."""
    adam_share: float = 0.65
    """Of a time limit, if L-BFGS follows."""
    adam_steps: int = 2000
    """For up to the usual number of rows."""
    most_adam_steps: int = 6000
    """For 180,000 rows and more, or within a time limit."""
    usual_rows: int = 20_000
    paper_learning_rate: float = 1e-3
    """Of the recipe of the paper."""
    paper_batch: int = 512
    paper_epochs: int = 100_000
    largest_closing_share: float = 0.4
    """Of the remaining time, for the pass over the rows at the end."""
    compared_rows: int = 2000
    """On which a finished fit is compared with a constant and a line."""

    # Neighbors
    default_neighbors: int = 20
    """A step of fitting a kernel costs the cube of their number."""
    more_neighbors: tuple[int, ...] = (60, 120)
    least_neighbor_gain: float = 0.01
    """Nats per row that more neighbors, or another kernel for them, have to gain."""
    neighbor_kernels: tuple[str, ...] = ("matern12", "matern32", "matern52", "rbf")
    """That neighbors choose from, from rough to smooth."""
    alternative_steps: int = 60
    """For another kernel, which begins where the first has ended."""
    most_neighbor_rows: int = 300_000
    """The search grows with the square of the rows: beyond, it takes many minutes."""
    judged_neighbor_rows: int = 2000
    """The last rows that neighbors are judged by, at most."""
    judged_neighbor_share: float = 0.25
    """And as a share of all."""
    late_rows: int = 10_000
    """The last rows, at most half of all, that are predicted one by one."""
    early_rows: int = 20_000
    """Before the late ones, for the coreset's part: 8000 in place of 12,900 cost .01 nats."""
    early_rows_per_point: int = 100
    largest_neighbor_share: float = 0.4
    """Of a time limit."""
    vecchia_steps: int = 200
    vecchia_batch: int = 256
    vecchia_pool: int = 5000
    vecchia_learning_rate: float = 0.15
    least_noise_gain: float = 0.2
    """Nats per row that a noise map has to gain before it also weights the rows that the kernel is fitted to."""
    far_lengthscale: float = 1.5
    """Neighbors are searched for again after a change by more than this factor."""
    largest_outputscale: float = 100.0
    """Over the variance of y."""

    # Noise
    least_noise_rows: int = 100
    """With fewer, a noise for each x is a guess."""
    noise_rows: int = 10_000
    noise_rows_to_choose: int = 2000
    fewest_noise_rows: int = 500
    noise_centers: int = 200
    rows_per_noise_center: int = 10
    noise_precision: float = 0.3
    """Of the prior on the features' weights; a choice among .03, .3, 3 and 30 loses .01 nats per row."""
    noise_choice_margin: float = 1e-3
    """Nats per row by which a simpler shape of the noise may be behind."""
    reweighting_rounds: int = 1
    reweighting_rows: int = 100_000
    noise_seconds: float = 4.0
    """To reserve for the noise."""
    noise_row_seconds: float = 1e-4
    """For each row."""
    noise_share: float = 0.2
    """At most, of a time limit."""

    # Audit
    audit_from: int = 500
    """With fewer rows, none can be spared."""
    audit_share: float = 0.1
    most_audit_rows: int = 2000
    """A coverage of 90 % is then known to 1 %."""
    calibrated_by_audit_from: int = 2000
    """With fewer rows, rows of the fit calibrate too, each left out in turn."""
    audit_p_value: float = 0.01
    """Of the coverage of 90 % intervals, below which a model fails."""

    # Costs, in seconds on two cores; a fit measures how much faster or slower its machine is
    step_cost: tuple[float, float, float] = (1.8e-3, 3e-11, 2e-11)
    """Of Adam: fixed, per M^2 B and M^3."""
    evaluation_cost: tuple[float, float, float] = (2.5e-8, 6.4e-11, 1.2e-10)
    """Of the bound: per N M, N M^2, N M D."""
    exact_cost: tuple[float, float, float] = (2e-3, 4e-11, 5e-11)
    """Of the exact likelihood: fixed, per N^3, N^2 D."""
    neighbor_cost: tuple[float, float, float] = (2e-5, 3e-7, 2e-9)
    """Per row, row and point, and pair of rows."""
    noise_cost: float = 1.2e-9
    """Of the factorizations that the noise needs, per M^3."""
