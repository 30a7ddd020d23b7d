"""The page: its charts and tables, and the template that arranges them in one file."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cvgp import __version__
from cvgp.data.rows import Array
from cvgp.errors import optional_packages, printable
from cvgp.estimators.display import model_facts, number, shortened
from cvgp.estimators.frames import UserColumn, user_columns
from cvgp.estimators.predictive import score_as_text, score_rows
from cvgp.files import atomic_write
from cvgp.plots import drawing
from cvgp.plots import model as pictures
from cvgp.report.facts import Facts, Scores, cautions
from cvgp.runtime import sklearn_alone

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.regressor import CVGPRegressor

MODEL_NAMES = {"cvgp": "this model", "boosting": "gradient boosting", "linear": "linear", "constant": "constant"}
MODEL_NAMES["frequencies"] = "class frequencies"
MOST_CHARTS, FEWEST_BARS, MOST_BARS = 6, 6, 20
BINS, FEWEST_IN_BIN, MOST_ERRORS = 10, 5, 800  # groups of rows along a column, and dots in a chart of errors
CHOICES = {"target_transform": "transform of the target", "input_warp": "transform of the columns"}
CHOICES |= {"n_coreset": "pseudo-points", "n_neighbors": "nearest training rows", "solver": "training"}
CHOICES |= {"audit": "check on unseen rows"}
INK = "#1c1e21"
THEME = {INK: "--ink", drawing.BLUE.lower(): "--blue", drawing.ORANGE.lower(): "--orange", drawing.GRAY: "--gray"}
"""Colors of charts that become variables of the page's style, which knows them for light and dark."""
STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "svg.fonttype": "none",
}


class Report:
    """A page about a fitted model, which a notebook shows; `report` of an estimator makes one.

    Parameters
    ----------
    html : str
        The whole page.
    scores : dict
        RMSE, mean log-likelihood, CRPS and coverage, or those of classes, by the name of the model: ``cvgp``, and if
        they could be trained ``boosting``, ``linear``, ``constant`` and ``frequencies``.
    cautions : list of str
        What the page warns of.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X[::2], np.sin(X[::2, 0]))
    >>> model.report(X[1::2], np.sin(X[1::2, 0])).html[:15]
    '<!doctype html>'
    """

    def __init__(self, html: str, scores: Scores, cautions: list[str]) -> None:
        self.html, self.scores, self.cautions = html, scores, cautions

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={score_as_text(name, value)}" for name, value in self.scores["cvgp"].items())
        return f"Report({shown}, cautions={len(self.cautions)})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all.

        Parameters
        ----------
        path : str or path
            The file; one that exists is replaced.

        Examples
        --------
        >>> model.report(X, y).save("report.html")  # doctest: +SKIP
        """
        with atomic_write(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style away from the notebook.
        return (
            f"<iframe srcdoc='{escape(self.html)}' title='cvgp report' sandbox "
            "style='width:100%;height:80vh;border:1px solid #8888'></iframe>"
        )


def make_report(
    model: Any, X: Any, y: Any, *, train: tuple[Any, Any] | None = None, output: int = 0, exposure: Any = None
) -> Report:
    """The page about a fitted model and some rows, for its method `report`."""
    with optional_packages():
        import matplotlib  # noqa: F401
        from jinja2 import Environment, PackageLoader, StrictUndefined
    facts = Facts(model, X, y, train, output, exposure)
    found, columns = cautions(facts), facts.varying[:MOST_CHARTS]
    if facts.is_of_classes:
        parts: dict[str, Any] = {"reliability": _reliability(facts), "confusion": _confusion(facts)}
    else:
        parts = {
            "quality": [_calibration(facts), _predicted(facts)],
            "errors": [_errors(facts, column) for column in columns],
            "coreset": _coreset(facts),
            "dependence": [_dependence(facts, column) for column in columns],
        }
    environment = Environment(
        loader=PackageLoader("cvgp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        # Control characters in names are shown by their escapes.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"number": number, "short": shortened}
    html = environment.get_template("classes.html" if facts.is_of_classes else "page.html").render(
        facts=facts,
        model=model,
        version=__version__,
        cautions=found,
        scores=_scores(facts.scores),
        relevance=_relevance(facts),
        decisions=_decisions(model),
        training=Chart(
            svg("Training", partial(pictures.plot_training, model)),
            "The log-likelihood of the standardized target in the training rows, or the lower bound of it that "
            "pseudo-points give, over the iterations.",
        ),
        about_model=model_facts(model),
        **parts,
    )
    return Report(html.lstrip(), facts.scores, found)


class Table(NamedTuple):
    """A table whose first column names the rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Chart(NamedTuple):
    """A chart, its caption and its numbers."""

    svg: Markup
    caption: str
    table: Table | None = None


def svg(title: str, draw: Callable[[Axes], object], height: float = 3.0) -> Markup:
    """What is drawn on new axes, as SVG for a page that has a dark mode. Matplotlib escapes the texts in it."""
    from markupsafe import Markup
    from matplotlib import style
    from matplotlib.figure import Figure

    file, settings = io.StringIO(), {**STYLE, "svg.hashsalt": title}
    # Settings and filters of warnings belong to the whole process, so one thread at a time may change them, and none
    # while scikit-learn changes filters.
    with sklearn_alone(), style.context(settings, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts for all scripts
        figure = Figure(figsize=(4.2, height), layout="constrained")
        ax = figure.add_subplot()
        draw(ax)
        ax.set_title("")  # the caption says it
        figure.savefig(file, format="svg", dpi=130, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    text = re.sub(r"\s*\n\s*", "\n", text[text.index("<svg") :])
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # other charts have the same
    text = re.sub(r'<svg [^>]*(viewBox="[^"]*")[^>]*>', r"<svg \1>", text, count=1)
    for color, variable in THEME.items():
        text = text.replace(f": {color}", f": var({variable})")
    return Markup(text)


def _scores(scores: Scores) -> Table:
    return Table("Scores", ["", *(MODEL_NAMES[name] for name in scores)], score_rows(scores))


def _decisions(model: CVGPRegressor | CVGPClassifier) -> Table | None:
    """What the fit decided and why; a merged model has decided nothing."""
    if not hasattr(model, "decisions_"):
        return None
    rows = []
    for name, choice in model.decisions_:
        scores = [f"{label} {mean:.3f} ± {error:.3f}" for label, (mean, error) in choice.candidates.items()]
        rows.append([CHOICES.get(name, name), choice.taken, choice.reason, "; ".join(scores)])
    return Table("Decisions", ["choice", "taken", "reason", "log-likelihood per unseen row, ± standard error"], rows)


def _calibration(facts: Facts) -> Chart:
    inside, chance = pictures.shares_inside(facts.quantiles, facts.observed), pictures.chance_of_shares(len(facts.y))
    rows = [
        [f"{level:.0%}", f"{share:.1%}", f"± {far:.1%}"]
        for level, share, far in zip(pictures.LEVELS, inside, chance, strict=True)
    ]
    return Chart(
        svg("Calibration", partial(pictures.draw_calibration, inside=inside, count=len(facts.y))),
        "Calibration: on the diagonal, intervals hold as many observations as they claim. Above it they are wider than "
        "needed, below it too narrow. The gray band is what chance allows."
        + (" Intervals of counts end at whole numbers, and hold more than they claim." if facts.is_discrete else ""),
        Table("Observations inside intervals", ["claimed", "observed inside", "by chance (95 %)"], rows),
    )


def _reliability(facts: Facts) -> Chart:
    found = facts.reliability
    far = pictures.chance_of_bins(found)
    rows = [
        [f"{p:.1%}", number(count), f"{share:.1%}", f"± {by:.1%}"]
        for p, share, count, by in zip(*found, far, strict=True)
    ]
    own = f"of “{shortened(str(facts.model.classes_[1]))}”" if facts.p.shape[1] == 2 else "of the predicted class"
    return Chart(
        svg("Reliability", partial(pictures.draw_reliability, model=facts.model, found=found)),
        f"Reliability: the probability {own}, and how often it came true. On the diagonal, probabilities are "
        "calibrated. The gray bars are what chance allows.",
        Table("Groups of rows by probability", ["mean probability", "rows", "came true", "by chance (95 %)"], rows),
    )


def _confusion(facts: Facts) -> Table:
    names, K = [shortened(str(name)) for name in facts.model.classes_], facts.p.shape[1]
    counts = np.bincount(facts.codes * K + facts.p.argmax(axis=1), minlength=K * K).reshape(K, K)
    rows = [[name, *map(number, own)] for name, own in zip(names, counts.tolist(), strict=True)]
    return Table("Number of rows", ["", *names], rows)


def _predicted(facts: Facts) -> Chart:
    low, high = facts.quantiles(np.array([0.025, 0.975])).T
    outside = (facts.observed < low) | (facts.observed > high)
    rows = []
    for part in np.array_split(np.argsort(facts.mean, kind="stable"), min(BINS, len(facts.y))):
        mean, observed = facts.mean[part], facts.observed[part]
        values = len(part), observed.mean(), float(np.sqrt(np.mean((observed - mean) ** 2)))
        ends = f"{number(mean[0])} to {number(mean[-1])}"
        rows.append([ends, *map(number, values), f"{1.0 - outside[part].mean():.1%}"])
    few = "." if len(facts.y) <= drawing.MOST_DOTS else ", for a random sample of the rows."
    return Chart(
        svg("Predictions", lambda ax: pictures.draw_predicted(ax, facts.mean, facts.observed, outside, facts.target)),
        f"Observed against predicted “{shortened(facts.target)}”, inside and outside the 95 % intervals{few}",
        Table("Groups of rows", ["predicted", "rows", "mean observed", "RMSE", "inside 95 %"], rows),
    )


def _errors(facts: Facts, column: UserColumn) -> Chart:
    """Errors along a column: of each row, and of each of a few values or tenth of the rows."""
    at, error = drawing.places(facts.x, column), facts.observed - facts.mean
    values = np.unique(np.rint(at) if column.is_boolean else at)
    has_groups = bool(column.labels) or len(values) <= BINS
    if has_groups:
        groups = [np.flatnonzero(np.abs(at - value) <= 0.5 * column.is_boolean) for value in values]
        spots = at + np.random.default_rng(0).uniform(-0.2, 0.2, len(at)) * np.diff(values).min(initial=1.0)
    else:
        groups = np.array_split(np.argsort(at, kind="stable"), max(1, min(BINS, len(at) // FEWEST_IN_BIN)))
        spots = at
    ends = [[drawing.place_text(column, at[g[i]]) for i in (0, -1)] for g in groups]
    names = [first if has_groups else f"{first} to {last}" for first, last in ends]
    middle, mean = (np.array([of(values[g]) for g in groups]) for of, values in ((np.median, at), (np.mean, error)))
    far = np.array([drawing.Z95 * error[g].std() / np.sqrt(len(g)) for g in groups])
    rms, sd, noise = (
        np.array([np.sqrt(np.mean(values[g] ** 2)) for g in groups]) for values in (error, facts.sd, facts.noise_sd)
    )

    def draw(ax: Axes) -> None:
        shown = drawing.some_rows(len(at), MOST_ERRORS)
        ax.scatter(spots[shown], error[shown], s=7, color=drawing.GRAY, alpha=0.5, lw=0, rasterized=True)
        edges = np.array([*(at[g[0]] for g in groups), at.max()])
        for half, width in ((drawing.Z95 * sd, 9), (drawing.Z95 * noise, 4)):
            if has_groups:
                ax.vlines(middle, -half, half, color=drawing.BLUE, alpha=0.3, lw=width)
            else:
                ax.stairs(half, edges, baseline=-half, fill=True, color=drawing.BLUE, alpha=0.3, lw=0)
        ax.axhline(0.0, color=drawing.GRAY, lw=1)
        ax.errorbar(middle, mean, far, fmt="o", ms=4, color=drawing.ORANGE)
        limit = max(float(np.quantile(np.abs(error), 0.995)), 1.1 * drawing.Z95 * float(sd.max()))
        ax.set(ylabel=f"error of {drawing.as_label(facts.target, 24)}", ylim=(-limit, limit))
        drawing.readable_ticks(ax)
        drawing.name_axis(ax.xaxis, column)

    head = [shortened(column.name), "rows", "mean error", "± 95 %", "RMS error", "expected sd", "noise sd"]
    title = f"Errors by “{shortened(column.name)}”"
    return Chart(svg(title, draw), title, _table(title, head, names, map(len, groups), mean, far, rms, sd, noise))


def _coreset(facts: Facts) -> list[Chart]:
    """The points over the most important columns, in pairs, and their weights."""
    columns, name = facts.varying[:3] or facts.columns[:1], shortened(facts.target)
    charts = []
    for pair in [columns[:2], columns[::2]] if len(columns) > 2 else [columns]:
        title = "Pseudo-points over " + " and ".join(f"“{shortened(column.name)}”" for column in pair)
        draw = partial(pictures.draw_coreset, model=facts.model, columns=pair, target=facts.target, output=facts.output)
        colors = f" and colors values of “{name}”" if len(pair) > 1 else f", and heights values of “{name}”"
        charts.append(Chart(svg(title, draw), f"{title}: areas are weights{colors}."))
    weights = svg("Weights", partial(pictures.plot_weights, facts.model))
    return [*charts, Chart(weights, "Weights of the pseudo-points.")]


def _relevance(facts: Facts) -> Chart:
    found, columns = facts.model.sobol_indices(), user_columns(facts.model)
    # Columns without a share are not listed, unless there are few.
    ranked = np.argsort(-found.total, kind="stable")[: max(FEWEST_BARS, min(MOST_BARS, int((found.total > 0.0).sum())))]
    parts = (found.total, drawing.Z95 * found.total_error, found.first_order, found.interaction)
    rows = [[shortened(columns[j].name), *(f"{part[j]:.3f}" for part in parts)] for j in ranked]
    return Chart(
        svg("Relevance", partial(pictures.plot_relevance, facts.model, top=len(ranked)), 2.0 + 0.2 * len(ranked)),
        "The share of the variance of predictions that needs a column (total Sobol indices): by itself, and in "
        "interaction with other columns. An interaction counts for each of its columns."
        + (
            f" The other {len(columns) - len(ranked)} columns have smaller shares."
            if len(columns) > len(ranked)
            else ""
        ),
        Table("Importance of columns", ["column", "total", "± 95 %", "by itself", "in interaction"], rows),
    )


def _dependence(facts: Facts, column: UserColumn) -> Chart:
    drawn: list[Array] = []

    def draw(ax: Axes) -> None:
        along = pictures.Along(ax, facts.model, column)
        drawn.extend([along.at, *pictures.draw_dependence(along, facts.output)])
        along.finish()
        ax.set_ylabel(f"mean {drawing.as_label(facts.expected_target)}")

    title = f"Dependence on “{shortened(column.name)}”"
    chart = svg(title, draw)
    at, mean, sd = (values[:: 1 if column.labels else 3] for values in drawn)
    head = [shortened(column.name), f"mean {shortened(facts.expected_target)}", "from", "to"]
    places = [drawing.place_text(column, place) for place in at]
    return Chart(chart, title, _table(title, head, places, mean, mean - drawing.Z95 * sd, mean + drawing.Z95 * sd))


def _table(title: str, head: Sequence[str], *columns: Iterable[Any]) -> Table:
    cells = [[value if isinstance(value, str) else number(value) for value in column] for column in columns]
    return Table(title, head, list(zip(*cells, strict=True)))
