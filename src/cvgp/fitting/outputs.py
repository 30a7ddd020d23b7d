"""Several outputs of a finished fit: the noise of each of them, at the kernel and pseudo-inputs that they share (§17).

By the coreset alone it follows from the sums over all rows; with neighbors, from the density of rows given their
nearest others. What is done for each output by itself sees one output with its own noise.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource, cut
from cvgp.fitting.compare import Residuals, log_normal
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import NeighborRows, gather_rows, ordered, residuals_given, whitened, without_copies
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood, prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.neighbors import RowIndex
from cvgp.gp.outputs import Outputs, Spectrum, best_factor
from cvgp.objectives import CHUNK_ROWS
from cvgp.parallel.group import ALONE, Group

LARGEST = 10.0  # of the noise of an output, in units of its mean square
LEAST_SIGNAL = 0.01  # about the least variance of f of an output whose variance is learned, over that of the output


def model_of(model: CVGP, q: int, c: Tensor) -> CVGP:
    """A model of one output with c times the noise, and with common kernel and pseudo-inputs."""
    noise = (c * model.noise).item()
    start = Coreset(model.X_c, model.y_c.reshape(len(model.X_c), -1)[:, q], model.beta)
    likelihood = gaussian_likelihood(noise, min(NOISE_FLOOR, 0.5 * noise))
    return CVGP(start, model.kernel, mean=model.mean, likelihood=likelihood).to(model.X_c.device)


def rows_of(rows: Rows[Tensor], q: int, c: Tensor | float) -> Rows[Tensor]:
    """Rows of one output, with c times the noise of their own."""
    known = rows.noise_variance
    return rows._replace(y=rows.y.reshape(len(rows.y), -1)[:, q], noise_variance=None if known is None else c * known)


def sums_of(sums: Statistics, q: int, c: Tensor) -> Statistics:
    """Sums of one output at its own noise, but for their normalizer."""
    return sums._replace(b=sums.b[:, [q]]).times(1.0 / c.item())


def over_outputs(factor: Tensor, learn: Callable[[int, Tensor], Residuals]) -> Residuals:
    """Residuals of outputs, each learned by itself, as those of n Q rows, so that they share a noise map.

    They are in units of the roots of the factors of noise. Those of one row are a cluster, which counts as one row.
    """
    parts, Q = [learn(q, c) for q, c in enumerate(factor)], len(factor)
    first = parts[0]
    cluster = torch.arange(len(first.x), device=factor.device) if first.cluster is None else first.cluster
    x, weight, cluster = (part.repeat_interleave(Q, 0) for part in (first.x, first.weight / Q, cluster))
    error = torch.cat([part.error for part in parts], 1) / factor.sqrt()  # [n, Q]
    f_var = (torch.stack([part.f_var for part in parts], 1) / factor).reshape(-1)
    return Residuals(x, error.reshape(-1, 1), f_var, torch.zeros_like(f_var), weight, cluster)


def _limits(model: CVGP, mean_square: Tensor) -> tuple[Tensor, Tensor]:
    """The range of factors [Q]: from the smallest noise to far more than the mean squares, in units of the noise."""
    floor = model.likelihood.noise_covar.raw_noise_constraint.lower_bound.to(mean_square)
    low = (2.0 * floor / model.noise.detach()).clamp_max(1.0).expand_as(mean_square)
    return low, (LARGEST * mean_square).maximum(2.0 * low)


@torch.no_grad()
def learn_factors(model: CVGP, source: DataSource, sums: Statistics) -> tuple[Tensor, Tensor]:
    """The noise of each output [Q], in units of the common one, under which all rows are most likely; their bounds."""
    squares = torch.zeros_like(sums.b[0])
    for rows in source.chunks(CHUNK_ROWS):
        data = ordered(model, rows)
        squares += data.precision @ data.y.square()
    (squares,), spectrum, weight = source.group.sum([squares]), Spectrum.of(sums), source.total_weight
    factor = best_factor(lambda c: spectrum.bound(c, squares, weight), *_limits(model, squares / weight))
    return factor, spectrum.bound(factor, squares, weight)


@torch.no_grad()
def learn_signals(model: CVGP, sources: Sequence[DataSource], sums: Statistics) -> tuple[Tensor, Tensor, Tensor]:
    """Factors [Q] of noise, and of the variance of f and noise, under which rows are most likely; their bounds (§17).

    The sums are those of all sources.
    """
    squares, weight = torch.zeros_like(sums.b[0]), sum(source.total_weight for source in sources)
    for rows in (rows for source in sources for rows in source.chunks(CHUNK_ROWS)):
        data = ordered(model, rows)
        squares += data.precision @ data.y.square()
    spectrum = Spectrum.of(sums)

    def signal(factor: Tensor) -> Tensor:
        return (squares / factor - (spectrum.b.square() / (factor * (factor + spectrum.values))).sum(0)) / weight

    def bound(factor: Tensor) -> Tensor:
        own = signal(factor)
        found = spectrum._replace(b=spectrum.b / own.sqrt()).bound(factor, squares / own, weight)
        return found - 0.5 * weight * own.log()

    factor = best_factor(bound, *_limits(model, squares / weight / LEAST_SIGNAL))
    return factor, signal(factor), bound(factor)


@torch.no_grad()
def learn_near_factors(model: CVGP, kept: NeighborRows, run: Run) -> Tensor:
    """The same, for a sample of the rows, each given its nearest others alone."""
    rows = kept.rows
    order = run.rng("outputs").permutation(len(rows.x))[: run.heuristics.judging_rows]
    drawn = torch.as_tensor(order, device=rows.x.device)
    near = without_copies(rows, RowIndex(model.kernel, rows.x, rows.cluster).others(drawn, kept.num_neighbors), drawn)

    def density(factor: Tensor) -> Tensor:
        found = []
        for q, c in enumerate(factor):
            own = model_of(model, q, c)
            left_out = residuals_given(near, own, rows_of(rows, q, c), drawn)
            found.append(left_out.weight @ log_normal(left_out.error[:, 0], left_out.f_var + own.noise))
        return torch.stack(found)

    return best_factor(density, *_limits(model, ordered(model, rows).y.square().mean(0) / model.noise))


@torch.no_grad()
def make_outputs(
    model: CVGP, sums: Statistics, factor: Tensor, kept: NeighborRows | None, group: Group = ALONE
) -> Outputs:
    """What predictions of outputs need; the model gets the pseudo-outputs whose posterior mean is theirs (§17)."""
    outputs = Outputs(factor, (sums,))
    if kept is not None:
        near = RowIndex(model.kernel, kept.rows.x).earlier(kept.num_neighbors, *cut(len(kept.rows.x), group))
        data = (ordered(model_of(model, q, c), rows_of(kept.rows, q, c)) for q, c in enumerate(factor))
        outputs = Outputs(factor, tuple(gather_rows(whitened(model), own, near, group) for own in data))
    set_pseudo_outputs(model, outputs)
    return outputs


@torch.no_grad()
def set_pseudo_outputs(model: CVGP, outputs: Outputs) -> None:
    """Give a model y_c = (K + 1/w) alpha, at which its posterior mean K_xc alpha is that of the outputs."""
    alpha = whitened(model).L_K_inv.mT @ outputs.u_mean
    y_c = square_matrix(model.kernel, model.X_c) @ alpha + alpha / model.site_precision[:, None]
    model.y_c.copy_(y_c + prior_mean(model.mean, model.X_c, model.y_c))
