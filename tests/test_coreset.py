import copy
import dataclasses
import logging
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvgp.coreset import Coreset
from cvgp.coreset_table import NamedColumn
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError

X = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
Y = np.array([0.1, 0.2, 0.3])
Y2 = np.column_stack([Y, -Y])
BETA = np.array([2.0, 0.0, 1.0])


@pytest.fixture
def coreset() -> Coreset:
    return Coreset(X, Y, BETA)


@st.composite
def coresets(draw: st.DrawFn) -> Coreset:
    M, D, T = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(0, 3))
    finite = st.floats(allow_nan=False, allow_infinity=False)
    weights = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
    return Coreset(
        draw(hnp.arrays(np.float64, (M, D), elements=finite)),
        draw(hnp.arrays(np.float64, (M, T) if T else (M,), elements=finite)),
        draw(hnp.arrays(np.float64, (M,), elements=weights)),
    )


# Construction.


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        lambda a: a.astype(np.float32),
        lambda a: np.asfortranarray(a),
        pd.DataFrame,
        torch.tensor,
        lambda a: torch.tensor(a, requires_grad=True),
        lambda a: torch.nn.Parameter(torch.tensor(a)),
        lambda a: torch.tensor(a, dtype=torch.bfloat16),
    ],
    ids=["list", "float32", "fortran", "frame", "tensor", "requires grad", "parameter", "bfloat16"],
)
def test_x_may_be_any_array_like(convert) -> None:
    np.testing.assert_array_equal(Coreset(convert(X), Y, BETA).X, X)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.longdouble])
def test_weights_may_have_any_real_dtype(dtype) -> None:
    np.testing.assert_array_equal(Coreset(X, Y, np.array([1, 0, 1], dtype=dtype)).beta, [1.0, 0.0, 1.0])


@pytest.mark.parametrize("name", ["X", "y", "beta"])
def test_arrays_are_float64(name: str) -> None:
    made = Coreset(X.astype(np.float32), Y.astype(np.float32), torch.ones(3))
    assert getattr(made, name).dtype == np.float64


def test_changing_the_source_array_leaves_the_coreset_alone() -> None:
    source = X.copy()
    made = Coreset(source, Y, BETA)
    source[:] = -1.0
    np.testing.assert_array_equal(made.X, X)


def test_changing_the_source_tensor_leaves_the_coreset_alone() -> None:
    source = torch.tensor(X)
    made = Coreset(source, Y, BETA)
    source.zero_()
    np.testing.assert_array_equal(made.X, X)


@pytest.mark.parametrize(("y", "expected"), [(Y, 1), (Y[:, None], 1), (Y2, 2)])
def test_num_outputs_is_the_number_of_columns_of_y(y: np.ndarray, expected: int) -> None:
    assert Coreset(X, y, BETA).num_outputs == expected


def test_num_dims_is_the_number_of_columns_of_x(coreset: Coreset) -> None:
    assert coreset.num_dims == 2


def test_len_is_the_number_of_points(coreset: Coreset) -> None:
    assert len(coreset) == 3


def test_repr_is_short(coreset: Coreset) -> None:
    assert repr(coreset) == "Coreset(M=3, D=2, Q=1, effective_size=1.8)"


# Immutability.


@pytest.mark.parametrize("name", ["X", "y", "beta"])
def test_arrays_cannot_be_written_to(coreset: Coreset, name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(coreset, name)[0] = 1.0


@pytest.mark.parametrize("name", ["X", "y", "beta", "n_pruned"])
def test_fields_cannot_be_set(coreset: Coreset, name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(coreset, name, 0)


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), dataclasses.replace],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
class TestDuplicates:
    def test_equal_the_original(self, coreset: Coreset, duplicate) -> None:
        assert duplicate(coreset) == coreset

    def test_cannot_be_written_to(self, coreset: Coreset, duplicate) -> None:
        assert not duplicate(coreset).y.flags.writeable

    def test_keep_n_pruned(self, coreset: Coreset, duplicate) -> None:
        assert duplicate(coreset.prune(0.5)).n_pruned == 1


# Equality.


def test_equal_values_are_equal(coreset: Coreset) -> None:
    assert coreset == Coreset(X.tolist(), torch.tensor(Y), BETA)


@pytest.mark.parametrize(
    "other",
    [
        Coreset(X + 1, Y, BETA),
        Coreset(X, Y + 1, BETA),
        Coreset(X, Y, BETA + 1),
        Coreset(X, Y[:, None], BETA),
        Coreset(X[:2], Y[:2], BETA[:2]),
        (X, Y, BETA),
    ],
    ids=["X", "y", "beta", "shape of y", "size", "another type"],
)
def test_different_values_are_not_equal(coreset: Coreset, other: object) -> None:
    assert coreset != other


def test_n_pruned_is_no_part_of_the_value(coreset: Coreset) -> None:
    assert coreset.prune(0.5) == Coreset(X[[0, 2]], Y[[0, 2]], BETA[[0, 2]])


def test_a_coreset_has_no_hash(coreset: Coreset) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(coreset)


# Bad input at construction.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[:, 0], Y, BETA), r"X must have shape \[M, D\].*got \(3,\).*reshape"),
        ((X[None], Y, BETA), r"X must have shape \[M, D\].*got \(1, 3, 2\)"),
        ((5.0, Y, BETA), r"X must have shape \[M, D\].*got \(\)"),
        ((X[:0], Y[:0], BETA[:0]), r"M >= 1.*got \(0, 2\)"),
        (([], [], []), r"M >= 1.*got \(0,\)"),
        ((X[:, :0], Y, BETA), r"D >= 1.*got \(3, 0\)"),
        ((X, Y[:2], BETA), r"y must have shape \[3\] or \[3, Q\].*got \(2,\)"),
        ((X, Y2.T, BETA), r"y must have shape \[3\] or \[3, Q\].*got \(2, 3\)"),
        ((X, Y2[:, :0], BETA), r"y must have shape.*Q >= 1.*got \(3, 0\)"),
        ((X, Y[:, None, None], BETA), r"y must have shape.*got \(3, 1, 1\)"),
        ((X, 1.0, BETA), r"y must have shape.*got \(\)"),
        ((X, Y, BETA[:2]), r"beta must have shape \[3\], got \(2,\)"),
        ((X, Y, BETA[:, None]), r"beta must have shape \[3\], got \(3, 1\)"),
        ((X, Y, 1.0), r"beta must have shape \[3\], got \(\)"),
        ((X, Y, [1.0, -2.0, -1.0]), r"at least 0, but the smallest is -2, at index 1; clip"),
        (([[0.0, 1.0], [2.0]], Y[:2], BETA[:2]), "X must be a rectangular array"),
        ((X, torch.eye(3).to_sparse(), BETA), "y must be a rectangular array.*Tensor.*dense tensor"),
        ((torch.empty(3, 2, device="meta"), Y, BETA), "X must be a rectangular array.*Tensor"),
        ((X, [torch.ones((), requires_grad=True)] * 3, BETA), "y must be a rectangular array.*list"),
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


@pytest.mark.parametrize(("beta", "builtin"), [(-BETA, ValueError), (["a", "b", "c"], TypeError)])
def test_errors_belong_to_the_tree_and_are_built_in(beta: object, builtin: type[Exception]) -> None:
    with pytest.raises(builtin) as caught:
        Coreset(X, Y, beta)
    assert isinstance(caught.value, CVGPError)


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


@pytest.mark.parametrize("y", [Y, Y[:, None], Y2], ids=["vector", "one column", "two columns"])
def test_merge_puts_the_other_points_last(y: np.ndarray) -> None:
    whole = Coreset(X, y, BETA)
    assert Coreset(X[:1], y[:1], BETA[:1]).merge(Coreset(X[1:], y[1:], BETA[1:])) == whole


@pytest.mark.parametrize(("first", "second"), [(Y, Y[:, None]), (Y[:, None], Y)])
def test_merge_of_one_output_keeps_the_layout_of_the_first(first: np.ndarray, second: np.ndarray) -> None:
    merged = Coreset(X, first, BETA).merge(Coreset(X, second, BETA))
    np.testing.assert_array_equal(merged.y, np.concatenate([first, first]))


def test_merge_refuses_other_input_dimensions(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match=r"same inputs and outputs.*D=2.*D=1"):
        coreset.merge(Coreset(X[:, :1], Y, BETA))


def test_merge_refuses_another_number_of_outputs(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match=r"same inputs and outputs.*Q=1.*Q=2"):
        coreset.merge(Coreset(X, Y2, BETA))


def test_merge_refuses_what_is_no_coreset(coreset: Coreset) -> None:
    with pytest.raises(InvalidTypeError, match=r"Expected a Coreset.*got tuple"):
        coreset.merge((X, Y, BETA))


# Pruning.


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [(0, [0, 1, 2]), (1e-9, [0, 2]), (1.0, [0, 2]), (np.float32(1.5), [0]), (2.0, [0])],
)
def test_prune_keeps_weights_from_the_threshold(coreset: Coreset, threshold: float, kept: list[int]) -> None:
    assert coreset.prune(threshold) == Coreset(X[kept], Y[kept], BETA[kept])


def test_prune_says_how_many_points_went(coreset: Coreset) -> None:
    assert coreset.prune(1.5).n_pruned == 2


def test_n_pruned_counts_the_last_prune_only(coreset: Coreset) -> None:
    assert coreset.prune(0.5).prune(1.5).n_pruned == 1


def test_prune_leaves_the_original_alone(coreset: Coreset) -> None:
    coreset.prune(1.5)
    assert coreset == Coreset(X, Y, BETA)


def test_prune_logs_how_many_points_went(coreset: Coreset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="cvgp"):
        coreset.prune(0.5)
    expected = ("cvgp", logging.INFO, "Pruned 1 of 3 coreset points, with weights below 0.5.")
    assert caplog.record_tuples == [expected]


def test_prune_refuses_to_drop_all_points(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match=r"at least one point, but all 3.*2\.5; use at most.*2"):
        coreset.prune(2.5)


@pytest.mark.parametrize("threshold", [-1.0, np.nan, np.inf, [0.1, 0.2]])
def test_prune_refuses_an_unusable_threshold(coreset: Coreset, threshold: object) -> None:
    with pytest.raises(InvalidInputError, match="threshold must be"):
        coreset.prune(threshold)


@pytest.mark.parametrize("threshold", ["0.1", None, 1j])
def test_prune_refuses_a_threshold_that_is_no_number(coreset: Coreset, threshold: object) -> None:
    with pytest.raises(InvalidTypeError, match="threshold must hold real numbers"):
        coreset.prune(threshold)


# To a table.


def test_table_has_features_then_output_then_weight(coreset: Coreset) -> None:
    expected = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": Y, "beta": BETA})
    pd.testing.assert_frame_equal(coreset.to_frame(), expected)


def test_table_numbers_several_outputs() -> None:
    assert list(Coreset(X, Y2, BETA).to_frame()) == ["x0", "x1", "y0", "y1", "beta"]


@pytest.mark.parametrize("container", [list, tuple, pd.Index, np.array, lambda n: np.array(n, dtype=object)])
def test_table_uses_the_given_feature_names(coreset: Coreset, container) -> None:
    assert list(coreset.to_frame(container(["age", "dose"]))) == ["age", "dose", "y", "beta"]


def test_writing_to_the_table_leaves_the_coreset_alone(coreset: Coreset) -> None:
    frame = coreset.to_frame()
    frame.loc[0, "x0"] = 99.0
    assert coreset == Coreset(X, Y, BETA)


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], [], "ab"])
def test_table_refuses_a_wrong_number_of_names(coreset: Coreset, names: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="Expected 2 feature names, got"):
        coreset.to_frame(names)


@pytest.mark.parametrize("names", [["a", 1], [None, "b"], 5, [["a"], ["b"]]])
def test_table_refuses_names_that_are_not_text(coreset: Coreset, names: object) -> None:
    with pytest.raises(InvalidTypeError, match="Feature names must be text"):
        coreset.to_frame(names)


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (Y, ["a", "a"]),
        (Y, ["a", "y"]),
        (Y, ["beta", "a"]),
        (Y2, ["a", "y0"]),
        (Y2, ["a", "y2"]),
        (Y2, ["a", "y7"]),
        (Y2, ["y", "a"]),
    ],
)
def test_table_refuses_names_that_would_not_be_read_back(y: np.ndarray, names: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="must be unique, and not the names of outputs"):
        Coreset(X, y, BETA).to_frame(names)


# From a table.


@given(coresets())
def test_table_gives_the_coreset_back(made: Coreset) -> None:
    assert Coreset.from_frame(made.to_frame()) == made


@pytest.mark.parametrize(("y", "names"), [(Y, ["y0", "Beta"]), (Y2, ["y01", "yield"])])
def test_table_with_names_like_the_outputs_gives_the_coreset_back(y: np.ndarray, names: list[str]) -> None:
    made = Coreset(X, y, BETA)
    assert Coreset.from_frame(made.to_frame(names)) == made


def test_columns_are_found_by_name_in_any_order() -> None:
    frame = Coreset(X, Y2, BETA).to_frame()[["beta", "y1", "x0", "y0", "x1"]]
    assert Coreset.from_frame(frame) == Coreset(X, Y2, BETA)


def test_outputs_are_ordered_by_number() -> None:
    y = np.arange(36.0).reshape(3, 12)
    frame = Coreset(X, y, BETA).to_frame().sort_index(axis=1)
    np.testing.assert_array_equal(Coreset.from_frame(frame).y, y)


def test_index_of_the_table_does_not_matter(coreset: Coreset) -> None:
    assert Coreset.from_frame(coreset.to_frame().set_axis([7, 7, 7])) == coreset


@pytest.mark.parametrize("dtype", ["int64", "float32", "Int64", "Float64"])
def test_every_numeric_column_type_is_read(dtype: str) -> None:
    made = Coreset(X, 10 * Y, BETA)
    frame = made.to_frame().round().astype(dtype)
    assert Coreset.from_frame(frame) == Coreset(X, [1, 2, 3], BETA)


def test_boolean_feature_is_read_as_zero_and_one() -> None:
    frame = pd.DataFrame({"flag": [True, False], "y": [0.5, 1.5], "beta": [1, 2]})
    assert Coreset.from_frame(frame) == Coreset([[1.0], [0.0]], [0.5, 1.5], [1.0, 2.0])


def test_missing_value_in_a_table_is_refused() -> None:
    frame = Coreset(X, Y, BETA).to_frame().astype("Float64")
    frame.loc[1, "x1"] = pd.NA
    with pytest.raises(InvalidInputError, match=r"X must be finite.*index \[1, 1\]"):
        Coreset.from_frame(frame)


@pytest.mark.parametrize("missing", ["y", "beta"])
def test_table_without_a_needed_column_is_refused(coreset: Coreset, missing: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Expected a column 'beta' and a column 'y'.*got"):
        Coreset.from_frame(coreset.to_frame().drop(columns=missing))


@pytest.mark.parametrize("missing", ["y0", "y1"])
def test_table_with_a_gap_in_the_outputs_is_refused(missing: str) -> None:
    frame = Coreset(X, np.column_stack([Y, Y, Y]), BETA).to_frame().drop(columns=missing)
    with pytest.raises(InvalidInputError, match="without a gap"):
        Coreset.from_frame(frame)


def test_table_without_features_is_refused(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match="D >= 1 features"):
        Coreset.from_frame(coreset.to_frame()[["y", "beta"]])


def test_table_without_rows_is_refused(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match="M >= 1 points"):
        Coreset.from_frame(coreset.to_frame().iloc[:0])


def test_table_with_repeated_columns_is_refused(coreset: Coreset) -> None:
    with pytest.raises(InvalidInputError, match="Column names must be unique"):
        Coreset.from_frame(coreset.to_frame().rename(columns={"x1": "x0"}))


@pytest.mark.parametrize("column", ["x1", "y", "beta"])
@pytest.mark.parametrize("dtype", [str, object, "category", complex])
def test_table_with_a_column_that_is_not_numeric_is_refused(coreset: Coreset, column: str, dtype) -> None:
    with pytest.raises(InvalidTypeError, match=f"real numbers, but \\['{column}'\\] do not"):
        Coreset.from_frame(coreset.to_frame().astype({column: dtype}))


def test_from_frame_refuses_what_is_no_table() -> None:
    with pytest.raises(InvalidTypeError, match="Expected a DataFrame, got ndarray"):
        Coreset.from_frame(np.column_stack([X, Y, BETA]))


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
    frame = named().to_frame(["size", "colour=blue", "colour=red"])
    assert Coreset.from_frame(frame) == named()


def test_outputs_give_way_to_a_column_of_their_name() -> None:
    coreset = Coreset([[1.0]], [2.0], [3.0], columns=[NamedColumn("beta")])
    assert coreset.to_frame().to_dict("records") == [{"beta": 1.0, "y_2": 2.0, "beta_2": 3.0}]


def test_several_outputs_stand_beside_known_columns() -> None:
    coreset = Coreset([[1.0]], [[2.0, 4.0]], [3.0], columns=[NamedColumn("size")])
    assert list(coreset.to_frame().columns) == ["size", "y0", "y1", "beta"]


def test_known_columns_of_the_same_name_are_refused() -> None:
    coreset = Coreset([[1.0, 2.0]], [2.0], [3.0], columns=[NamedColumn("size"), NamedColumn("size")])
    with pytest.raises(InvalidInputError, match="same name twice"):
        coreset.to_frame()


def test_columns_must_stand_for_all_inputs() -> None:
    with pytest.raises(InvalidInputError, match="stand for the 2 inputs"):
        Coreset([[1.0, 2.0]], [2.0], [3.0], columns=[NamedColumn("size")])


def test_columns_stay_when_a_coreset_is_pruned_merged_and_copied() -> None:
    whole = named()
    for other in (whole.prune(5.5), whole.merge(whole), pickle.loads(pickle.dumps(whole))):
        assert other.columns == whole.columns


def test_columns_that_differ_are_forgotten_by_a_merge() -> None:
    plain = Coreset(named().X, named().y, named().beta)
    assert named().merge(plain).columns is None


def test_columns_are_no_part_of_the_value() -> None:
    assert Coreset(named().X, named().y, named().beta) == named()


def test_a_masked_array_with_hidden_values_is_no_coreset() -> None:
    with pytest.raises(InvalidInputError, match="y is a masked array"):
        Coreset([[1.0], [2.0]], np.ma.masked_array([1.0, 2.0], mask=[True, False]), [1.0, 1.0])


def test_a_notebook_shows_the_heaviest_points_and_names_stay_text() -> None:
    columns = [NamedColumn("<b>size"), NamedColumn("colour", ("<i>red", "blue"))]
    coreset = Coreset([[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]], [0.5, 0.25], [1.0, 3.0], columns=columns)
    shown = coreset._repr_html_()
    assert "<th scope='col'>&lt;b&gt;size</th><th scope='col'>colour</th>" in shown
    assert "<tr><td>2</td><td>&lt;i&gt;red</td><td>0.25</td><td>3</td></tr><tr><td>1</td><td>blue</td>" in shown


def test_a_notebook_shows_few_of_many_columns() -> None:
    shown = Coreset(np.zeros((9, 30)), np.zeros(9), np.ones(9))._repr_html_()
    assert "and 22 more" in shown
    assert shown.count("<tr>") == 6
