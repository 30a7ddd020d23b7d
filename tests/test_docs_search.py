"""What a user would type into the search of the pages leads to the page that answers it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TERMS = {
    "install windows": "install.md",
    "install macos": "install.md",
    "gpu cuda": "howto/gpu_and_threads.md",
    "threads n_jobs": "howto/gpu_and_threads.md",
    "shell completion": "install.md",
    "categorical": "tables.md",
    "missing values": "tables.md",
    "dates season": "tables.md",
    "csv semicolon": "cli.md",
    "excel": "cli.md",
    "sqlite": "cli.md",
    "parquet": "scaling.md",
    "larger than memory": "scaling.md",
    "torchrun": "scaling.md",
    "ray cluster": "scaling.md",
    "federated": "merging.md",
    "merge models": "merging.md",
    "multi output": "howto/many_outputs.md",
    "multitask": "howto/many_outputs.md",
    "pickle": "howto/saving_and_serving.md",
    "web service": "howto/saving_and_serving.md",
    "grid search": "howto/pipelines.md",
    "cross-validation": "howto/pipelines.md",
    "pipeline": "howto/pipelines.md",
    "kernel": "howto/kernels_and_priors.md",
    "lengthscale prior": "howto/kernels_and_priors.md",
    "forecast": "time_series.md",
    "period": "time_series.md",
    "privacy": "howto/privacy.md",
    "differential privacy": "howto/privacy.md",
    "number of inducing points": "explanation/coreset_idea.md",
    "pseudo-points": "howto/size_and_time.md",
    "heteroscedastic": "explanation/noise.md",
    "heavy tails": "explanation/noise.md",
    "outliers": "explanation/noise.md",
    "confidence interval": "tutorials/first_fit.md",
    "prediction interval": "tutorials/first_fit.md",
    "calibration": "explanation/noise.md",
    "vecchia": "explanation/neighbors.md",
    "nearest neighbor": "explanation/neighbors.md",
    "feature importance": "regressor.md",
    "sobol": "regressor.md",
    "log transform": "regressor.md",
    "checkpoint": "regressor.md",
    "early stopping": "regressor.md",
    "sample_weight": "regressor.md",
    "lightgbm": "explanation/when_not.md",
    "xgboost": "explanation/when_not.md",
    "tabpfn": "explanation/when_not.md",
    "gpboost": "explanation/when_not.md",
    "classification": "explanation/when_not.md",
    "svgp": "gpytorch.md",
    "singletaskgp": "botorch.md",
    "thompson sampling": "tutorials/bayesian_optimization.md",
    "expected improvement": "tutorials/bayesian_optimization.md",
    "elbo": "mathematics.md",
    "notation": "mathematics.md",
    "jitter": "numerics.md",
    "float32": "numerics.md",
    "convergencewarning": "api/errors.md",
    "factorizationerror": "api/errors.md",
    "file format version": "file_format.md",
    "safetensors": "file_format.md",
    "callback": "api/callbacks.md",
    "reproduce the paper": "paper.md",
}


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]+", text.lower()))


def is_found(term: str, text: str) -> bool:
    """Whether a page has each word of a term, or a longer word that begins with it, as the search of the site does."""
    found = words(text)
    return all(any(word.startswith(part) for word in found) for part in term.split())


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_on_the_page_that_answers_it(term: str) -> None:
    text = (DOCS / TERMS[term]).read_text(encoding="utf-8")
    assert is_found(term, re.sub(r"\]\([^)]*\)", "]", text))  # without the targets of links


@pytest.mark.slow
def test_the_built_site_finds_every_term_and_has_no_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the packages of the documentation: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    pages: dict[str, str] = {}
    for entry in index:
        place = entry["location"].split("#")[0]
        pages[place] = f"{pages.get(place, '')} {entry['title']} {entry['text']}"
    missing = [term for term, page in TERMS.items() if not is_found(term, pages[f"{page.removesuffix('.md')}/"])]
    assert missing == []
