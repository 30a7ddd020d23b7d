"""Tables and box plots of a score for each data set, system and size, over folds."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from scipy import stats

from experiments.figures import STYLES, grid, label
from experiments.markdown import markdown_table, mean_and_error, number
from experiments.paper.methods import METHODS
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


SCORES = {"rmse": "RMSE (lower is better)", "log_likelihood": "mean log-likelihood (higher is better)"}


def box_plots(found: Sequence[Cell], scores: Mapping[str, str] = SCORES) -> Any:
    """A row for each score and a column for each data set, one box for each system and size."""
    datasets = list(dict.fromkeys(cell.dataset for cell in found))
    figure, axes = grid(len(scores), len(datasets), size=(3.4, 3.2), sharex="col")
    for row, (name, title) in enumerate(scores.items()):
        for ax, dataset in zip(axes[row], datasets, strict=True):
            _boxes(ax, [cell for cell in found if cell.dataset == dataset and cell.records], name)
            if row == 0:
                ax.set_title(dataset)
        axes[row][0].set_ylabel(title)
    return figure


def _boxes(ax: Any, found: Sequence[Cell], name: str) -> None:
    drawn = ax.boxplot(
        [[v for v in cell.scores(name) if v == v] for cell in found],
        tick_labels=[cell.label for cell in found],
        widths=0.65,
        patch_artist=True,
        showmeans=True,
        meanprops={"marker": "^", "mfc": "white", "mec": "black", "ms": 5},
        medianprops={"color": "black"},
        flierprops={"marker": ".", "ms": 4},
    )
    for patch, cell in zip(drawn["boxes"], found, strict=True):
        patch.set(facecolor=STYLES[cell.method].color, alpha=0.75)
    ax.tick_params(axis="x", rotation=90, labelsize=8)
    ax.grid(axis="y", alpha=0.3)
    _limit(ax, found, name)


def _limit(ax: Any, found: Sequence[Cell], name: str) -> None:
    """Keep one system that is far off from squeezing all others into a line; what lies outside is named."""
    means = {cell.label: _mean(cell.scores(name)) for cell in found}
    center = median(means.values())
    reach = 5.0 * max(float(stats.median_abs_deviation(list(means.values()))), 0.02)
    inside = [v for cell in found if abs(means[cell.label] - center) <= reach for v in cell.scores(name) if v == v]
    margin = 0.06 * (max(inside) - min(inside) or 1.0)
    ax.set_ylim(min(inside) - margin, max(inside) + margin)
    outside = [f"{text}: {value:.2f}" for text, value in means.items() if abs(value - center) > reach]
    if outside:
        # In the corner that is worst by the score: few systems are there.
        height, anchor = (0.97, "top") if name == "rmse" else (0.03, "bottom")
        ax.text(0.03, height, "off the scale\n" + "\n".join(outside), transform=ax.transAxes, fontsize=7, va=anchor)
