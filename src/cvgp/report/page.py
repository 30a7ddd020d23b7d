"""The page: its parts in their order, its style and its script, as one file."""

from __future__ import annotations

import base64
import hashlib
import os
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp import __version__
from cvgp.estimators.scoring import score_as_text
from cvgp.files.atomic import atomic_write
from cvgp.report.cautions import cautions
from cvgp.report.column_charts import dependence_section, errors_section, relevance_section
from cvgp.report.coreset_charts import coreset_section
from cvgp.report.evaluated import Evaluated
from cvgp.report.markup import number, section, shortened, text
from cvgp.report.quality_charts import quality_section
from cvgp.report.score_table import Scores, compare, comparison_section
from cvgp.report.single_rows import rests_section
from cvgp.report.svg import text_of_any_length
from cvgp.report.tightness import tightness, training_section

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

KERNELS = {"rbf": "squared exponential", "matern12": "Matérn 1/2", "matern32": "Matérn 3/2", "matern52": "Matérn 5/2"}
CONTENTS = {
    "warnings": "Warnings",
    "scores": "Scores",
    "quality": "Calibration",
    "errors": "Errors",
    "coreset": "Coreset",
    "relevance": "Relevance",
    "dependence": "Dependence",
    "rests": "Single predictions",
    "training": "Training",
    "model": "Model",
}


class Report:
    """A page about a fitted model, which a notebook shows.

    `CVGPRegressor.report` makes one.

    Parameters
    ----------
    html : str
        The whole page.
    scores : dict
        RMSE, mean log-likelihood, CRPS and coverage, by the name of the model: ``cvgp``, and where there are any
        ``boosting``, ``linear`` and ``constant``.
    warnings : list of str
        What the page warns of.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X[::2], np.sin(X[::2, 0]))
    >>> report = model.report(X[1::2], np.sin(X[1::2, 0]))
    >>> report.html.startswith("<!doctype html>"), len(report.html) < 1_000_000
    (True, True)
    """

    def __init__(self, html: str, scores: Scores, warnings: list[str]) -> None:
        self.html, self.scores, self.warnings = html, scores, warnings

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={score_as_text(name, value)}" for name, value in self.scores["cvgp"].items())
        return f"Report({shown}, warnings={len(self.warnings)})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, whole or not at all.

        Parameters
        ----------
        path : str or path
            The file; one that exists is replaced.

        Raises
        ------
        MissingFileError, FileAccessError
            If the folder does not exist, or the disk refuses the file.

        Examples
        --------
        >>> import numpy as np, pathlib, tempfile
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 60)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X[::2], np.sin(X[::2, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.report(X[1::2], np.sin(X[1::2, 0])).save(pathlib.Path(folder) / "report.html")
        """
        with atomic_write(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # In a frame of its own, so that neither its style nor its script touches the notebook.
        return (
            f"<iframe srcdoc='{escape(self.html)}' title='cvgp report' sandbox='allow-scripts allow-downloads' "
            "style='width:100%;height:80vh;border:1px solid #8888'></iframe>"
        )


def make_report(
    model: CVGPRegressor, X: Any, y: Any, *, train: tuple[Any, Any] | None = None, output: int = 0
) -> Report:
    """The page about a fitted model and its predictions of some rows.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.
    X, y, train, output
        As for `CVGPRegressor.report`, which calls this.

    Returns
    -------
    Report
        The page.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the rows cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> from cvgp.report import make_report
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X[::2], np.sin(X[::2, 0]))
    >>> report = make_report(model, X[1::2], np.sin(X[1::2, 0]))
    >>> "What does a single prediction rest on?" in report.html
    True
    """
    rows = Evaluated.of(model, X, y, train, output)
    scores, gap = compare(rows), tightness(rows)
    found = cautions(rows, scores, gap)
    parts = [
        _warnings(found),
        comparison_section(rows, scores),
        quality_section(rows),
        errors_section(rows),
        coreset_section(rows),
        relevance_section(rows),
        dependence_section(rows),
        rests_section(rows),
        training_section(rows, gap),
        _facts(rows),
    ]
    return Report(_page(rows, parts), scores, found)


def sentence(rows: Evaluated) -> str:
    """What the model is, as plain text."""
    model, schema_columns = rows.model, rows.columns
    kernel = "+".join(KERNELS.get(name, name) for name in model.kernel_name_.split("+"))
    words = f"A Gaussian process ({kernel} kernel) that predicts {shortened(rows.target)} from "
    words += f"{len(schema_columns)} columns; " if len(schema_columns) > 1 else f"{shortened(schema_columns[0].name)}; "
    words += f"{len(model.coreset_)} weighted pseudo-points stand for the {model.n_rows_:.0f} rows of its fit"
    if model.n_neighbors_:
        words += f", and each prediction consults the {model.n_neighbors_} nearest of these rows too"
    if model.noise_ == "input-dependent":
        words += "; the noise depends on the columns"
    if model.target_ != "identity":
        words += (
            f"; it describes the {'logarithm' if model.target_ == 'log' else 'Yeo-Johnson transform'} of the target"
        )
    if rows.y.shape[1] > 1:
        words += f". It has {rows.y.shape[1]} outputs, and this page is about {shortened(rows.target)} alone"
    return words + "."


def _warnings(found: list[str]) -> str:
    if not found:
        return section("warnings", "Warnings", "<p>None.</p>")
    items = "".join(f"<li>{text_of_any_length(words)}</li>" for words in found)
    return section("warnings", "Warnings", f"<ul class='warnings'>{items}</ul>")


def _facts(rows: Evaluated) -> str:
    model = rows.model
    noise = float(np.sqrt(np.atleast_1d(model.noise_variance_)[rows.output]))
    facts = {
        "rows of the fit": f"{model.n_rows_:.0f}",
        "rows on this page": str(len(rows.y)),
        "columns": ", ".join(shortened(column.name) for column in rows.columns[:20])
        + (f" and {len(rows.columns) - 20} more" if len(rows.columns) > 20 else ""),
        "pseudo-points": f"{len(model.coreset_)} (effective size {model.coreset_.effective_size:.0f})",
        "neighbours": str(model.n_neighbors_),
        "kernel": model.kernel_name_,
        "noise": f"{model.noise_}, standard deviation {number(noise)}"
        + ("" if model.target_ == "identity" else " of the transformed target"),
        "target": model.target_,
        "inputs": model.inputs_,
        "bound": f"{model.elbo_ / model.n_rows_:.4f} nats per row",
        "solver": f"{model.solver_}, {model.n_iter_} iterations",
        "cvgp": __version__,
    }
    body = "".join(f"<tr><th scope='row'>{text(k)}</th><td>{text_of_any_length(v)}</td></tr>" for k, v in facts.items())
    return section(
        "model",
        "The model",
        "<div class='wide'><table class='facts'><caption>Facts about the model</caption>"
        f"<tbody>{body}</tbody></table></div>",
    )


def _page(rows: Evaluated, parts: list[str]) -> str:
    assets = files("cvgp.report") / "assets"
    style, script = (assets.joinpath(name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # No other script can run and nothing can be fetched, whatever a name or a value holds.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    links = "".join(f"<li><a href='#{key}'>{title}</a></li>" for key, title in CONTENTS.items())
    title = f"Report on predictions of {text(rows.target)}"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{title}</title><style>{style}</style></head><body>"
        f"<a class='skip' href='#main'>Skip to the report</a><header><h1>{title}</h1>"
        f"<p class='lead'>{text_of_any_length(sentence(rows))}</p>"
        f"<nav aria-label='Contents'><ul>{links}</ul></nav></header>"
        f"<main id='main'>{''.join(parts)}</main>"
        f"<footer><p>Made by cvgp {__version__}.</p></footer><script>{script}</script></body></html>\n"
    )
