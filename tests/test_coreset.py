import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

from cvgp.coreset import Coreset, NamedColumn
from cvgp.errors import InvalidInputError, InvalidTypeError

X = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
Y = np.array([0.1, 0.2, 0.3])
Y2 = np.column_stack([Y, -Y])
BETA = np.array([2.0, 0.0, 1.0])


@pytest.fixture
def coreset() -> Coreset:
    return Coreset(X, Y, BETA)


# Construction.


def test_changing_the_source_array_leaves_the_coreset_alone() -> None:
    source = X.copy()
    made = Coreset(source, Y, BETA)
    source[:] = -1.0
    np.testing.assert_array_equal(made.X, X)


# Immutability.


# Equality.


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), dataclasses.replace],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
def test_a_duplicate_is_equal_and_cannot_be_written_to(duplicate: Callable[[Coreset], Coreset]) -> None:
    other = duplicate(named())
    assert other == named()
    assert other.columns == named().columns
    assert not any(array.flags.writeable for array in (other.X, other.y, other.beta))
    assert other != Coreset(other.X, other.y + 1.0, other.beta)


# Bad input at construction.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[:, 0], Y, BETA), r"X must have shape \[M, D\].*got \(3,\).*reshape"),
        ((X[:0], Y[:0], BETA[:0]), r"M >= 1.*got \(0, 2\)"),
        ((X[:, :0], Y, BETA), r"D >= 1.*got \(3, 0\)"),
        ((X, Y[:2], BETA), r"y must have shape \[3\] or \[3, Q\].*got \(2,\)"),
        ((X, Y, BETA[:2]), r"beta must have shape \[3\], got \(2,\)"),
        ((X, Y, [1.0, -2.0, -1.0]), r"at least 0, but the smallest is -2, at index 1; clip"),
        (([[0.0, 1.0], [2.0]], Y[:2], BETA[:2]), "X must be a rectangular array"),
        ((X, torch.eye(3).to_sparse(), BETA), "y must be a rectangular array.*Tensor.*dense tensor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_value_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Coreset(*arguments)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("position", [0, 1, 2], ids=["X", "y", "beta"])
def test_value_that_is_not_finite_is_refused(position: int, bad: float) -> None:
    arguments = [X.copy(), Y.copy(), BETA.copy()]
    arguments[position][1] = bad
    with pytest.raises(InvalidInputError, match=r"must be finite.*first at index \[1"):
        Coreset(*arguments)


@pytest.mark.parametrize(
    "bad",
    [
        np.array([1 + 0j, 2, 3]),
        torch.ones(3, dtype=torch.complex64),
        np.array([1.0, 2.0, 3.0], dtype=object),
        ["1", "2", "3"],
        [1.0, "a", 2.0],
        [1.0, None, 2.0],
        np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
        None,
    ],
    ids=["complex", "complex tensor", "object", "text", "mixed", "none inside", "dates", "none"],
)
@pytest.mark.parametrize("position", [0, 1, 2], ids=["X", "y", "beta"])
def test_data_that_are_not_real_numbers_are_refused(position: int, bad: object) -> None:
    arguments = [X, Y, BETA]
    arguments[position] = bad
    with pytest.raises(InvalidTypeError, match=r"must hold real numbers, got dtype.*convert"):
        Coreset(*arguments)


# Effective size.


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        ([2.0, 2.0, 2.0], 3.0),
        ([5.0, 0.0, 0.0], 1.0),
        ([0.0, 0.0, 0.0], 0.0),
        ([2.0, 0.0, 1.0], 9 / 5),
        ([1e300, 1e300, 0.0], 2.0),
        ([1e-300, 1e-300, 0.0], 2.0),
    ],
)
def test_effective_size(beta: list[float], expected: float) -> None:
    assert Coreset(X, Y, beta).effective_size == pytest.approx(expected, rel=1e-12)


# Merging.


# Pruning.


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [(0, [0, 1, 2]), (1e-9, [0, 2]), (1.0, [0, 2]), (np.float32(1.5), [0]), (2.0, [0])],
)
def test_prune_keeps_weights_from_the_threshold(coreset: Coreset, threshold: float, kept: list[int]) -> None:
    assert coreset.prune(threshold) == Coreset(X[kept], Y[kept], BETA[kept])


def test_prune_refuses_to_drop_all_points(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match=r"to the largest weight, 2, .*got 2\.5"):
        coreset.prune(2.5)


@pytest.mark.parametrize("threshold", [-1.0, np.nan, np.inf, [0.1, 0.2]])
def test_prune_refuses_an_unusable_threshold(coreset: Coreset, threshold: object) -> None:
    with pytest.raises(InvalidInputError, match="threshold must be"):
        coreset.prune(threshold)


# To a table.


def test_table_has_features_then_output_then_weight(coreset: Coreset) -> None:
    expected = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": Y, "beta": BETA})
    pd.testing.assert_frame_equal(coreset.to_frame(), expected)


# From a table.


def test_importing_the_module_does_not_import_pandas() -> None:
    code = "import sys, cvgp.coreset; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Names of a user's columns


def named() -> Coreset:
    columns = [NamedColumn("size"), NamedColumn("colour", ("blue", "red"))]
    return Coreset([[1.0, 0.9, 0.2], [2.0, -0.1, 0.7]], [3.0, 4.0], [5.0, 6.0], columns=columns)


def test_known_columns_are_shown_and_categories_decoded() -> None:
    frame = named().to_frame()
    assert list(frame.columns) == ["size", "colour", "y", "beta"]
    assert frame["colour"].tolist() == ["blue", "red"]
    assert frame["size"].tolist() == [1.0, 2.0]


def test_names_for_all_inputs_show_them_as_numbers() -> None:
    frame = named().to_frame(["size", "colour=blue", "y"])
    assert list(frame.columns) == ["size", "colour=blue", "y", "y_2", "beta_2"]
    np.testing.assert_array_equal(frame.to_numpy(), np.column_stack([named().X, named().y, named().beta]))


@pytest.mark.parametrize("names", [["a"], ["a", "a"]])
def test_a_table_needs_a_different_name_for_each_input(coreset: Coreset, names: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="2 different feature names, one per input"):
        coreset.to_frame(names)


def test_columns_must_stand_for_all_inputs() -> None:
    with pytest.raises(InvalidInputError, match="stand for the 2 inputs"):
        Coreset([[1.0, 2.0]], [2.0], [3.0], columns=[NamedColumn("size")])


def test_a_masked_array_with_hidden_values_is_no_coreset() -> None:
    with pytest.raises(InvalidInputError, match="y is a masked array"):
        Coreset([[1.0], [2.0]], np.ma.masked_array([1.0, 2.0], mask=[True, False]), [1.0, 1.0])


def test_a_notebook_shows_the_heaviest_points_and_names_stay_text() -> None:
    columns = [NamedColumn("<b>size"), NamedColumn("colour", ("<i>red", "blue"))]
    coreset = Coreset([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]], [0.5, 0.25], [1.0, 3.0], columns=columns)
    shown = "".join(line.strip() for line in coreset._repr_html_().splitlines())
    assert "<th>&lt;b&gt;size</th><th>colour</th>" in shown
    assert "<tr><td>2</td><td>&lt;i&gt;red</td><td>0.25</td><td>3</td></tr><tr><td>1</td><td>blue</td>" in shown


RNG = np.random.default_rng(4)
ROWS, OUTPUTS = RNG.normal(size=(60, 2)), RNG.normal(size=(60, 2))


@pytest.mark.parametrize("kernel", [None, RBFKernel().double()], ids=["k-means", "pivoted Cholesky"])
@pytest.mark.parametrize("y", [OUTPUTS, OUTPUTS[:, 0]], ids=["two outputs", "one output"])
def test_a_coreset_from_data_has_their_weight_and_mean(kernel: RBFKernel | None, y: np.ndarray) -> None:
    weight = RNG.uniform(0.0, 2.0, size=60)
    coreset = Coreset.from_data(ROWS, y, 7, kernel=kernel, sample_weight=weight)
    assert len(coreset) == 7
    assert coreset.beta.sum() == pytest.approx(weight.sum())
    np.testing.assert_allclose(coreset.beta @ coreset.y, weight @ y)
    if kernel is None:
        np.testing.assert_allclose(coreset.beta @ coreset.X, weight @ ROWS)


def test_as_many_points_as_rows_are_the_rows() -> None:
    coreset = Coreset.from_data(torch.tensor(ROWS), OUTPUTS, 60)
    order, expected = np.lexsort(coreset.X.T), np.lexsort(ROWS.T)
    np.testing.assert_allclose(coreset.X[order], ROWS[expected])
    np.testing.assert_allclose(coreset.y[order], OUTPUTS[expected])
    np.testing.assert_array_equal(coreset.beta, 1.0)


def test_pivoted_cholesky_takes_the_row_with_the_largest_variance_left() -> None:
    x = np.array([[0.0], [0.1], [5.0], [2.4]])
    assert Coreset.from_data(x, x[:, 0], 3, kernel=RBFKernel().double()).X[:, 0].tolist() == [0.0, 5.0, 2.4]


def test_copies_of_rows_become_one_point() -> None:
    for kernel in (None, RBFKernel().double()):
        coreset = Coreset.from_data(np.repeat([[0.0], [1.0]], 5, axis=0), np.arange(10.0), 4, kernel=kernel)
        assert coreset.beta.tolist() == [5.0, 5.0]
        assert coreset.y.tolist() == [2.0, 7.0]


def test_units_of_the_columns_do_not_matter_to_k_means() -> None:
    scale = np.array([1e3, 1e-3])
    plain, scaled = (Coreset.from_data(X, OUTPUTS, 7) for X in (ROWS, ROWS * scale))
    np.testing.assert_allclose(scaled.X, plain.X * scale)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "at least 1; got 0"),
        ({"size": 2.5}, "whole number"),
        ({"y": OUTPUTS[:3]}, "y must have shape"),
        ({"X": ROWS[0]}, "X must have shape"),
        ({"sample_weight": -np.ones(60)}, "at least 0"),
        ({"X": ROWS * np.nan}, "must be finite"),
    ],
)
def test_data_that_cannot_be_summarized_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Coreset.from_data(**{"X": ROWS, "y": OUTPUTS, "size": 5, **change})
