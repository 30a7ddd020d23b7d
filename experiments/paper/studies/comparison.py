"""Tables and box plots of a score for each data set, system and size, over folds."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from scipy import stats

from experiments.figures import STYLES, label, page_grid
from experiments.markdown import markdown_table, mean_and_error, number
from experiments.paper.methods import METHODS, method_class
from experiments.paper.study import Results, chosen_records
from experiments.store import Record


class Cell(NamedTuple):
    """One system on one data set."""

    dataset: str
    method: str
    size: int | None
    rate: float | None
    records: list[Record]

    @property
    def label(self) -> str:
        """The system with its size."""
        return label(self.method, self.size)

    def scores(self, name: str) -> list[float]:
        """A score of each fold."""
        return [r.number(name) for r in self.records]


def comparison(results: Results, methods: Sequence[str]) -> list[Cell]:
    """These systems at every size on every data set, in the order of the paper."""
    order = list(METHODS)
    records = [r for r in results.records if r.task["method"] in methods]
    found = {(r.task["dataset"], r.task["method"], r.task["size"]) for r in records}
    datasets = results.values("dataset")
    ordered = sorted(found, key=lambda c: (datasets.index(c[0]), order.index(str(c[1])), int(c[2] or 0)))
    made = []
    for dataset, method, size in ordered:
        records = chosen_records(results, dataset=dataset, method=method, size=size)
        rate = records[0].task["learning_rate"] if records else None
        chosen = rate if isinstance(rate, float) else None
        made.append(Cell(str(dataset), str(method), None if size is None else int(size), chosen, records))
    return made


def score_table(found: Sequence[Cell]) -> str:
    """Means and standard errors over folds."""
    header = ["set", "system", "RMSE", "log-likelihood", "joint log-likelihood / n", "90 % coverage"]
    header += ["learning rate", "seconds", "folds"]
    rows = [
        [
            cell.dataset,
            cell.label,
            mean_and_error(cell.scores("rmse"), ".4f"),
            mean_and_error(cell.scores("log_likelihood"), ".4f"),
            mean_and_error(cell.scores("joint_log_likelihood"), ".4f"),
            number(_mean(cell.scores("coverage"))),
            number(cell.rate, "g"),
            number(_mean([r.seconds for r in cell.records]), ".1f"),
            str(len(cell.records)),
        ]
        for cell in found
    ]
    return markdown_table(header, rows, num_text=2)


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if v == v]
    return mean(known) if known else math.nan


SCORES = {"rmse": "RMSE (lower is better)", "joint_log_likelihood": "PPLL per row (higher is better)"}
"""What the paper draws."""
GAP = 0.8
"""Between the boxes of two systems, in boxes."""
MEAN = {"marker": "^", "mfc": "white", "mec": "black", "ms": 3.5, "mew": 0.6}
STAR = {"marker": "*", "ls": "none", "ms": 8, "mfc": "#F0E442", "mec": "black", "mew": 0.7, "zorder": 5}


def best_stochastic(found: Sequence[Cell], name: str) -> Cell | None:
    """The stochastic system with the best mean, among those with the most folds."""
    scored = [cell for cell in found if method_class(cell.method).stochastic and _known(cell, name)]
    folds = max((len(_known(cell, name)) for cell in scored), default=0)
    rivals = [cell for cell in scored if len(_known(cell, name)) == folds]
    sign = -1.0 if name == "rmse" else 1.0
    return max(rivals, key=lambda cell: sign * mean(_known(cell, name)), default=None)


def box_plots(found: Sequence[Cell], scores: Mapping[str, str] = SCORES, *, by_size: bool = False) -> Any:
    """A row for each data set and a column for each score, a box for each system and size, grouped by either."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    datasets = list(dict.fromkeys(cell.dataset for cell in found))
    places = _places(found, by_size)
    figure, axes = page_grid(len(datasets), len(scores), 1.45 if len(datasets) > 1 else 2.0, sharex=True)
    for row, dataset in enumerate(datasets):
        for ax, (name, title) in zip(axes[row], scores.items(), strict=True):
            _boxes(ax, [cell for cell in found if cell.dataset == dataset and _known(cell, name)], name, places)
            if row == 0:
                ax.set_title(title)
        axes[row][0].set_ylabel(dataset)
    for ax in axes[-1]:
        ax.set_xticks(list(places.values()), ["all" if size is None else str(size) for _, size in places])
        ax.tick_params(axis="x", rotation=90 if len(places) > 8 else 0)
        ax.set_xlabel("number of points M")
    methods = list(dict.fromkeys(method for method, _ in places))
    handles: list[Any] = [Patch(fc=STYLES[m].color, ec="black", alpha=0.75, label=m) for m in methods]
    handles.append(Line2D([], [], **MEAN, ls="none", label="mean over folds"))
    handles.append(Line2D([], [], **STAR, label="best mean of a stochastic system"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _known(cell: Cell, name: str) -> list[float]:
    return [v for v in cell.scores(name) if v == v]


def _places(found: Sequence[Cell], by_size: bool) -> dict[tuple[str, int | None], float]:
    """Where the box of a system and size stands, the same for all data sets."""
    order = list(METHODS)
    kinds = sorted({(cell.method, cell.size) for cell in found}, key=lambda k: (order.index(k[0]), k[1] or 0))
    groups = sorted({size or 0 for _, size in kinds}) if by_size else list(dict.fromkeys(m for m, _ in kinds))
    numbers = [groups.index(size or 0 if by_size else method) for method, size in kinds]  # type: ignore[arg-type]
    order = sorted(range(len(kinds)), key=lambda i: numbers[i])
    return {kinds[i]: place + GAP * numbers[i] for place, i in enumerate(order)}


def _boxes(ax: Any, found: Sequence[Cell], name: str, places: Mapping[tuple[str, int | None], float]) -> None:
    from matplotlib.transforms import offset_copy

    shown = _limit(ax, found, name, places)
    drawn = ax.boxplot(
        [_known(cell, name) for cell in shown],
        positions=[places[cell.method, cell.size] for cell in shown],
        widths=0.7,
        patch_artist=True,
        showmeans=True,
        manage_ticks=False,
        meanprops=MEAN,
        boxprops={"lw": 0.6},
        whiskerprops={"lw": 0.6},
        capprops={"lw": 0.6},
        medianprops={"color": "black", "lw": 0.8},
        flierprops={"marker": ".", "ms": 3},
    )
    for patch, cell in zip(drawn["boxes"], shown, strict=True):
        patch.set(facecolor=STYLES[cell.method].color, alpha=0.75)
    ax.grid(axis="y", alpha=0.3)
    best = best_stochastic(found, name)
    if best is not None:
        # On the worse side of the box, where the panel is empty.
        end, away = (max, 1) if name == "rmse" else (min, -1)
        beside = offset_copy(ax.transData, ax.figure, y=6.0 * away, units="points")
        ax.plot(places[best.method, best.size], end(_known(best, name)), transform=beside, **STAR)


def _limit(ax: Any, found: Sequence[Cell], name: str, places: Mapping[tuple[str, int | None], float]) -> list[Cell]:
    """Write the mean of a system that is far off at the edge, lest it squeeze all others; returns the others."""
    means = [mean(_known(cell, name)) for cell in found]
    center = median(means)
    reach = 5.0 * max(float(stats.median_abs_deviation(means)), 0.02)
    inside = [abs(value - center) <= reach for value in means]
    shown = [cell for cell, near in zip(found, inside, strict=True) if near]
    values = [value for cell in shown for value in _known(cell, name)]
    margin = 0.22 * (max(values) - min(values) or 1.0)
    ax.set_ylim(min(values) - margin, max(values) + margin)
    for cell, value, near in zip(found, means, inside, strict=True):
        if not near:
            top = value > center
            ax.annotate(
                f"{value:.2f} →" if top else f"← {value:.2f}",
                (places[cell.method, cell.size], 0.97 if top else 0.03),
                xycoords=("data", "axes fraction"),
                rotation=90,
                fontsize=6,
                ha="center",
                va="top" if top else "bottom",
            )
    return shown
