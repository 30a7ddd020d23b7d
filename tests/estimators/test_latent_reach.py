"""Classes and counts: checkpoints, pinned decisions, groups, tables read in parts, and likelihoods of GPyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gpytorch.likelihoods import BernoulliLikelihood, LaplaceLikelihood, SoftmaxLikelihood

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor, Heuristics, TrainingOptions, read_table
from cvgp.errors import InvalidInputError
from cvgp.fitting.monitor import FitEvent

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, (300, 2))
F = np.sin(X[:, 0]) + 0.3 * X[:, 1]
KINDS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "counts": (lambda **own: CVGPRegressor(12, likelihood="poisson", random_state=0, **own), rng.poisson(np.exp(F))),
    "classes": (lambda **own: CVGPClassifier(12, random_state=0, **own), np.where(F + rng.normal(size=300) > 0, 1, 0)),
}


def predicted(model: Any, x: Any = X) -> np.ndarray:
    found: np.ndarray = model.predict_proba(x) if isinstance(model, CVGPClassifier) else model.predict(x)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_an_interrupted_fit_is_resumed_with_its_decisions(kind: str, tmp_path: Path) -> None:
    make, y = KINDS[kind]

    def fitted(callback: Callable[[FitEvent], Any]) -> Any:
        return make(training=TrainingOptions(checkpoint_dir=tmp_path, callbacks=[callback])).fit(X, y)

    events: list[FitEvent] = []
    first = fitted(lambda event: event.phase == "sites" and event.iteration >= 2)
    resumed = fitted(events.append)
    assert first.n_iter_ < resumed.n_iter_
    assert [event.phase for event in events if event.phase == "choose kernel"] == []
    whole = make().fit(X, y)
    assert resumed.elbo_ == pytest.approx(whole.elbo_, abs=0.1)
    np.testing.assert_allclose(predicted(resumed), predicted(whole), rtol=0.02)
    again = fitted(events.append)
    assert again.n_iter_ == resumed.n_iter_
    with pytest.raises(InvalidInputError, match="belongs to another fit"):
        make(training=TrainingOptions(checkpoint_dir=tmp_path)).fit(X[:200], y[:200])


@pytest.mark.parametrize("kind", KINDS)
def test_pinned_decisions_give_the_same_model_without_a_search(kind: str) -> None:
    make, y = KINDS[kind]
    few, y = np.hstack([X, rng.normal(size=(300, 18))])[:150], y[:150]  # rows are few, so kernels are compared
    model = make().fit(few, y)
    assert "linear" in model.decisions_.kernel.candidates
    again = make().set_params(random_state=9).fit(few, y, decisions=model.decisions_)
    np.testing.assert_allclose(predicted(again, few), predicted(model, few), rtol=0.1, atol=0.02)
    assert again.kernel_name_ == model.kernel_name_
    of_numbers = CVGPRegressor(random_state=0).fit(X[:60], F[:60])
    with pytest.raises(InvalidInputError, match="only a fit with likelihood='gaussian' decides"):
        make().fit(few, y, decisions={"solver": of_numbers.decisions_.solver})


@pytest.mark.parametrize("kind", KINDS)
def test_new_groups_are_as_likely_as_groups_that_are_left_out(kind: str) -> None:
    make, _ = KINDS[kind]
    own, group = np.random.default_rng(1), np.arange(1200) // 10
    x = own.uniform(-2, 2, (120, 2))[group] + 0.05 * own.normal(size=(1200, 2))  # inputs tell groups apart
    f = x[:, 0] + (0.5 if kind == "counts" else 1.0) * own.normal(size=120)[group]
    y = own.poisson(np.exp(f)) if kind == "counts" else np.where(f + 0.5 * own.normal(size=1200) > 0, 1, 0)
    is_old = group < 40
    density = []
    for groups in (None, group[is_old]):
        model = make().fit(x[is_old], y[is_old], groups=groups)
        if kind == "counts":
            new, left_out = model.log_predictive_density(x[~is_old], y[~is_old]).mean(), model.left_out_log_density_
        else:
            p = model.predict_proba(x[~is_old])[np.arange((~is_old).sum()), y[~is_old]]
            new, left_out = np.log(p).mean(), -model.left_out_log_loss_
        density.append((new, left_out))
    (without, _), (new, honest) = density
    assert new > without
    assert honest == pytest.approx(new, abs=0.2)


def large_table(folder: Path) -> pd.DataFrame:
    own = np.random.default_rng(2)
    a, b, years = own.uniform(-3, 3, 2000), own.uniform(-3, 3, 2000), own.uniform(0.5, 3.0, 2000)
    f = np.sin(a) + 0.3 * b
    noisy = f + 0.5 * own.normal(size=2000)
    facts = {"claims": own.poisson(years * np.exp(f)), "kind": np.select([noisy > 1, noisy > 0], ["x", "y"], "z")}
    frame = pd.DataFrame({"a": a, "b": b, "years": years, **facts})
    frame.to_csv(folder / "table.csv", index=False)
    return frame


@pytest.mark.parametrize("target", ["claims", "kind"])
@pytest.mark.slow
def test_a_table_that_is_read_in_parts_gives_the_model_of_one_in_memory(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, few = large_table(tmp_path), TrainingOptions(heuristics=Heuristics(latent_rows=600))
    options = {"random_state": 0, "training": few}

    def fitted(**own: Any) -> Any:
        if target == "kind":
            model = CVGPClassifier(15, **options, class_weight="balanced")
            return model.fit(read_table(tmp_path / "table.csv", "kind", features=["a", "b"]))
        model = CVGPRegressor(15, likelihood="poisson", **options)
        return model.fit(read_table(tmp_path / "table.csv", "claims", features=["a", "b"], exposure="years"))

    whole = fitted()
    monkeypatch.setattr("cvgp.tables.stream.IN_MEMORY_BYTES", 10)
    parts = fitted()
    assert parts.n_rows_ == pytest.approx(2000)
    assert parts.elbo_ == pytest.approx(whole.elbo_, rel=0.01)
    np.testing.assert_allclose(predicted(parts, frame), predicted(whole, frame), rtol=0.2, atol=0.03)
    if target == "kind":
        np.testing.assert_allclose(parts.class_prior_, frame["kind"].value_counts(normalize=True).sort_index())


def test_all_rows_of_a_table_that_is_read_in_parts_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = large_table(tmp_path)
    monkeypatch.setattr("cvgp.tables.stream.IN_MEMORY_BYTES", 10)
    for column, value, message in (("claims", -1, "got -1"), ("years", 0.0, "first in row 1991")):
        frame.assign(**{column: frame[column].where(frame.index != 1990, value)}).to_csv(
            tmp_path / "bad.csv", index=False
        )
        with pytest.raises(InvalidInputError, match=message):
            CVGPRegressor(likelihood="poisson").fit(
                read_table(tmp_path / "bad.csv", "claims", drop="kind", exposure="years")
            )


@pytest.mark.parametrize("target", ["claims", "kind"])
@pytest.mark.slow
def test_groups_of_a_table_that_is_read_in_parts_are_left_out_whole(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, person = np.random.default_rng(1), np.arange(1600) // 10
    x = own.uniform(-2, 2, (160, 2))[person] + 0.05 * own.normal(size=(1600, 2))  # inputs tell persons apart
    f = x[:, 0] + 0.7 * own.normal(size=160)[person]
    kind = np.where(f + 0.5 * own.normal(size=1600) > 0, "y", "x")
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "person": person, "claims": own.poisson(np.exp(f)), "kind": kind})
    old, new = frame[person < 80], frame[person >= 80]
    old.sample(frac=1.0, random_state=0).to_csv(tmp_path / "table.csv", index=False)
    options: dict[str, Any] = {"random_state": 0, "training": TrainingOptions(heuristics=Heuristics(latent_rows=300))}

    def fitted() -> Any:
        table = read_table(tmp_path / "table.csv", target, features=["a", "b"], groups="person")
        if target == "kind":
            return CVGPClassifier(12, **options).fit(table)
        return CVGPRegressor(12, likelihood="poisson", **options).fit(table)

    whole = fitted()
    monkeypatch.setattr("cvgp.tables.stream.IN_MEMORY_BYTES", 10)
    parts = fitted()
    assert parts.n_rows_ == pytest.approx(whole.n_rows_, rel=0.3)
    if target == "kind":
        p = parts.predict_proba(new[["a", "b"]])[np.arange(len(new)), (new["kind"] == "y").astype(int)]
        assert -parts.left_out_log_loss_ == pytest.approx(np.log(p).mean(), abs=0.15)
    else:
        density = parts.log_predictive_density(new[["a", "b"]], new["claims"]).mean()
        assert density - 0.4 < parts.left_out_log_density_ < density + 0.15


def test_a_likelihood_of_gpytorch_is_fitted_stored_and_given_again(tmp_path: Path) -> None:
    own = np.random.default_rng(3)
    x = own.uniform(-3, 3, (200, 1))
    y = 10.0 + 5.0 * np.sin(x[:, 0]) + own.laplace(size=200)
    likelihood = LaplaceLikelihood()
    likelihood.noise = 1.0
    model = CVGPRegressor(12, likelihood=likelihood, random_state=0).fit(x[:150], y[:150])
    truth = 10.0 + 5.0 * np.sin(x[:, 0])
    assert np.sqrt(np.mean((model.predict(x) - truth) ** 2)) < 0.5
    low, high = model.predict_interval(x[150:], level=0.9).T
    assert 0.8 <= ((low < y[150:]) & (y[150:] < high)).mean() <= 1.0
    assert model.left_out_log_density_ == pytest.approx(-1.0 - np.log(2.0), abs=0.15)  # that of the noise
    model.save(tmp_path / "m")
    again = cvgp.load(tmp_path / "m", likelihood=LaplaceLikelihood())
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    with pytest.raises(InvalidInputError, match=r"likelihood=LaplaceLikelihood\("):
        cvgp.load(tmp_path / "m")
    with pytest.raises(InvalidInputError, match="not built like the LaplaceLikelihood"):
        cvgp.load(tmp_path / "m", likelihood=BernoulliLikelihood())


def test_a_likelihood_of_gpytorch_must_have_one_latent_value_and_may_lack_quantiles(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="one latent value"):
        CVGPRegressor(likelihood=SoftmaxLikelihood(3, 3)).fit(X, X[:, 0])
    model = CVGPRegressor(8, likelihood=BernoulliLikelihood(), random_state=0).fit(X[:80], X[:80, 0] > 0)
    with pytest.raises(InvalidInputError, match="does not know the quantiles of Bernoulli"):
        model.predict_interval(X)
    model = CVGPRegressor(8, likelihood="gamma", random_state=0).fit(X[:80], np.exp(X[:80, 0]))
    model.save(tmp_path / "m")
    with pytest.raises(InvalidInputError, match="without likelihood="):
        cvgp.load(tmp_path / "m", likelihood=BernoulliLikelihood())


@pytest.mark.slow
def test_a_probit_link_is_that_of_gpytorch_and_is_for_two_classes(tmp_path: Path) -> None:
    _, y = KINDS["classes"]
    model = CVGPClassifier(12, link="probit", random_state=0).fit(X, y)
    peer = CVGPRegressor(12, likelihood=BernoulliLikelihood(), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], peer.predict(X), atol=0.05)
    model.save(tmp_path / "m")
    again = cvgp.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(InvalidInputError, match="is for two classes"):
        CVGPClassifier(link="probit").fit(X, np.arange(300) % 3)


def test_training_options_that_a_classifier_does_not_use_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="training__solver is for"):
        CVGPClassifier().set_params(training__solver="adam").fit(X, F > 0)
