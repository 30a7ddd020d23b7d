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
    """Seconds of a time limit from which on choices use all the rows that they would use without one."""
    least_rows_to_choose: int = 200
    """With fewer rows, outliers, transforms and rough kernels cannot be told from chance."""
    sample_rows: int = 500
    """Rows of each part of the sample: an exact GP of 500 rows takes 5 ms per evaluation."""
    sample_evaluations: int = 20
    """Evaluations of L-BFGS for a GP of the sample: differences between candidates show by then."""
    judging_rows: int = 1000
    """Rows that decide between candidates or noise levels: a difference of .05 nats is then two standard errors."""
    margin: float = 0.05
    """Nats per row by which a fit may be behind a constant or a line, and a sum of kernels behind a single one."""

    # Outliers and transforms
    largest_outlier_share: float = 0.25
    """With more than one outlier in four rows, it is not clear which are regular."""
    outlier_variance: float = 50.0
    """Least ratio of the variance of outliers to that of regular rows: seven standard deviations."""
    least_transform_gain: float = 0.01
    """Nats per row. A transform that makes y as a whole no more normal than this is not tried."""
    irrelevant_column: float = 0.01
    """Share of the largest inverse lengthscale below which a column is not warped."""

    # Kernel
    start_factors: tuple[float, ...] = (1.0, 0.25, 4.0)
    """Multiples of the typical lengthscale that are tried."""
    start_noise: float = 0.1
    """Share of the variance of y."""
    least_start_noise: float = 100.0
    """In units of the noise floor: at the floor, the logarithm of the noise has no slope."""
    start_tol: float = 1e-3
    """Nats per row that ten iterations have to gain in a search for a start."""
    leave_one_out_rows: int = 750
    """Up to this many rows, all of them choose the kernel, each left out in turn; of more, some judge the others."""
    kernel_evaluations: int = 40
    alternative_evaluations: int = 20
    """Of the exact likelihood: for a start, and for another kernel that begins where the first has ended."""
    race_rows: int = 300
    race_evaluations: int = 15
    """Several starts are compared by a short search on few rows, and only the best is continued."""
    periods_tried: int = 3
    noise_ladder: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
    """Shares of the variance of y that a noise may be raised to; one, which explains nothing, is not among them."""

    # Size
    smallest_coreset: int = 16
    largest_coreset: int = 400
    """The most points that are trained without a time limit: well under a minute on two cores."""
    size_held_out: float = 0.2
    size_margin: float = 0.01
    """Nats per held-out row by which the chosen size may be behind the best one."""
    exact_evaluations: int = 60
    """Evaluations that the exact GP usually takes."""
    exact_seconds: float = 8.0
    exact_seconds_with_neighbors: float = 2.4
    """The longest that the exact GP may take by the cost model: about 1480 and 950 rows."""
    unexplained_share: float = 0.01
    """The prior variance that fewer points leave unexplained may be this share of the noise: .005 nats per row."""
    bearable_loss: float = 5.0
    """The largest coreset by default may leave this many times more unexplained: .025 nats per row."""

    # Solvers
    lbfgs_rows: int = 3000
    """Up to this many rows a full pass costs about as much as a minibatch, and L-BFGS needs fewer of them."""
    lbfgs_evaluations: int = 200
    fewest_lbfgs_evaluations: int = 30
    lbfgs_seconds: float = 8.0
    """The longest that L-BFGS may take without a time limit: a good start needs few evaluations."""
    brief_rows: int = 50_000
    brief_seconds: float = 4.0
    brief_evaluations: tuple[int, int] = (12, 60)
    """Where neighbors were no better than the coreset at its start, little is gained by longer training."""
    polish_evaluations: int = 60
    fewest_polish_evaluations: int = 10
    longest_polish: int = 1500
    polish_seconds: float = 5.0
    longest_growth: float = 2.0
    """L-BFGS after Adam: seconds for 20,000 rows, and how many times longer it may take for more."""
    learning_rate: float = 0.03
    adam_steps: int = 1000
    most_adam_steps: int = 3000
    usual_rows: int = 20_000
    """Steps of Adam for up to 20,000 rows, and for 180,000 and more or within a time limit."""
    paper_learning_rate: float = 1e-3
    paper_batch: int = 512
    paper_epochs: int = 100_000
    """The paper's recipe."""
    largest_closing_share: float = 0.4
    """Share of the remaining time that may be reserved for the pass over the rows at the end of a fit."""
    compared_rows: int = 2000
    """Rows on which a finished fit is compared with a constant and a line."""

    # Neighbors
    default_neighbors: int = 20
    """A kernel is never fitted to more of them: a step costs the cube of their number."""
    most_neighbor_rows: int = 300_000
    """Beyond this the search for neighbors, which grows with the square of the rows, takes many minutes."""
    judged_neighbor_rows: int = 2000
    judged_neighbor_share: float = 0.25
    """The last rows that neighbors are judged by, at most and as a share of all."""
    late_rows: int = 10_000
    """The last rows, at most half of all, that are predicted one by one."""
    early_rows: int = 20_000
    early_rows_per_point: int = 100
    """Rows before the late ones that determine the coreset's part: 8000 in place of 12,900 cost elevators .01 nats."""
    largest_neighbor_share: float = 0.4
    """Share of a time limit for neighbors."""
    vecchia_steps: int = 200
    vecchia_batch: int = 256
    vecchia_pool: int = 5000
    vecchia_learning_rate: float = 0.15
    far_lengthscale: float = 1.5
    """Neighbors are searched for again if a lengthscale has changed by more than this factor."""
    rough_factors: tuple[float, ...] = (0.3, 0.1, 0.03)
    """Lengthscales that are tried beside those of the start, over the spread of the inputs."""
    trial_steps: int = 40
    trial_batch: int = 128
    trial_rows: int = 1000
    trial_judged: int = 500
    trial_share: float = 0.5
    """Each start gets a few steps on few rows: the gradient at a start says little about its end."""
    largest_outputscale: float = 100.0
    """Over the variance of y."""

    # Noise
    least_noise_rows: int = 100
    """With fewer rows, a noise for each x is a guess."""
    noise_rows: int = 10_000
    noise_rows_to_choose: int = 2000
    fewest_noise_rows: int = 500
    noise_centers: int = 200
    rows_per_noise_center: int = 10
    noise_strengths: tuple[float, ...] = (0.3, 0.03, 3.0, 30.0)
    """Precisions of the prior on the weights of the features that are tried."""
    noise_choice_margin: float = 1e-3
    """Nats per row by which a simpler shape of the noise may be behind."""
    reweighting_rounds: int = 1
    reweighting_rows: int = 100_000
    noise_seconds: float = 4.0
    noise_row_seconds: float = 1e-4
    noise_share: float = 0.2
    """Time to reserve for the noise: fixed, per row, and at most this share of a time limit."""

    # Costs, in seconds
    step_cost: tuple[float, float, float] = (1.8e-3, 3e-11, 2e-11)
    """A step of Adam: fixed, per M^2 B and per M^3."""
    evaluation_cost: tuple[float, float, float] = (2.5e-8, 6.4e-11, 1.2e-10)
    """An evaluation of the bound on all rows with its gradient: per N M, N M^2 and N M D."""
    exact_cost: tuple[float, float, float] = (2e-3, 4e-11, 5e-11)
    """An evaluation of the exact marginal likelihood with its gradient: fixed, per N^3 and per N^2 D."""
    neighbor_cost: tuple[float, float, float] = (2e-5, 3e-7, 2e-9)
    """Neighbors: per row (fixed, and per pseudo-point) and per pair of rows in the search."""
    noise_cost: float = 1.2e-9
    """The factorizations that the noise needs at least, per M^3."""
