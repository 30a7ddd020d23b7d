import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from tests.data.tables.tables import read_table
from tests.data.tables.test_text_files import put


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json"])
def test_lines_are_rows(tmp_path: Path, ending: str) -> None:
    content = b'{"a": 1, "b": "x", "c": true}\n\n{"b": "\xc3\xa9", "a": 2, "c": null}\n'
    path = put(tmp_path, gzip.compress(content) if ending.endswith("gz") else content, f"a{ending}")
    frame = read_table(path)
    assert frame["a"].tolist() == [1, 2]
    assert frame["b"].tolist() == ["x", "é"]
    assert frame["c"].tolist() == [True, None]


def test_keys_that_come_late_or_are_absent_are_missing_values(tmp_path: Path) -> None:
    lines = ['{"a": 1}'] * 20_000 + ['{"a": 1.5, "b": "x"}']
    frame = read_table(put(tmp_path, "\n".join(lines), "a.jsonl"))
    assert (frame["a"].iloc[-1], frame["b"].isna().sum(), frame["b"].iloc[-1]) == (1.5, 20_000, "x")


def test_several_files_are_one_table(tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path, f'{{"a": {number}, "y": 1}}\n', f"{number}.jsonl")
    dataset = open_dataset(tmp_path)
    assert dataset.to_table()["a"].to_pylist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1, 2]\n", "line 1: it holds a list"),
        ('[{"a": 1},\n {"a": 2}]', "line 1: it is no JSON"),
        ('{"a": 1}\n{"a": \n', "line 2: it is no JSON"),
        ('{"a": 1}\n3\n', "line 2: it holds a int"),
        ("[" * 100_000 + "\n", "line 1: it is nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}\n", "line 1: it is no JSON"),
        (b'{"a": "caf\xe9"}\n', "line 1: it is no JSON"),
    ],
)
def test_what_is_no_object_is_named_by_its_line(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=f"a\\.jsonl could not be read as JSON lines, {words}.*one object"):
        open_dataset(put(tmp_path, content, "a.jsonl"))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="holds no rows"):
        open_dataset(put(tmp_path, "\n\n", "a.jsonl"))


def test_an_endless_line_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(b'{"a": 1}\n{"a": "' + b"x" * (30 << 20))
    with pytest.raises(FileFormatError, match=r"Line 2 of .* is longer than 1048576 bytes"):
        open_dataset(put(tmp_path, content, "a.jsonl.gz"))


def test_a_damaged_packed_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="could not be read"):
        open_dataset(put(tmp_path, gzip.compress(b'{"a": 1}\n' * 1000)[:-20], "a.jsonl.gz"))


def test_ever_new_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVGP_MAX_COLUMNS", "100")
    lines = "\n".join(json.dumps({f"k{i}": 1}) for i in range(200))
    with pytest.raises(InvalidInputError, match="up to line 101 has 101 columns"):
        open_dataset(put(tmp_path, lines, "a.jsonl"))


def test_a_nested_column_cannot_be_used_but_left_out(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(f'{{"a": {i}, "n": [1], "y": {i}}}\n' for i in range(5)), "a.jsonl")
    with pytest.raises(InvalidTypeError, match=r"'n' holds values of type list(.|\n)*--drop n"):
        TrainingTable(path, "y")
    assert TrainingTable(path, "y", drop="n").feature_names == ["a"]


def test_numbers_with_a_few_words_among_them_are_numbers_with_bad_rows(tmp_path: Path) -> None:
    lines = [f'{{"a": {i}, "y": 1}}' for i in range(99)] + ['{"a": "x", "y": 2}']
    path = put(tmp_path, "\n".join(lines), "a.jsonl")
    with pytest.raises(InvalidInputError, match=r"a\.jsonl, data row 100: column 'a' is infinite or not a number"):
        TrainingTable(path, "y")


def test_words_with_numbers_among_them_are_text(tmp_path: Path) -> None:
    lines = ['{"a": 1, "y": 1}', '{"a": "x", "y": 2}', '{"a": true, "y": 3}', '{"a": 1.0, "y": 3}']
    path = put(tmp_path, "\n".join(lines), "a.jsonl")
    assert TrainingTable(path, "y").feature_names == ["a=1", "a=true", "a=x"]


def test_a_number_beyond_64_bits_is_a_real_one(tmp_path: Path) -> None:
    frame = read_table(put(tmp_path, '{"a": 100000000000000000000}\n{"a": 1}\n', "a.jsonl"))
    assert frame["a"].tolist() == [1e20, 1.0]


def test_halves_of_characters_do_no_harm(tmp_path: Path) -> None:
    assert read_table(put(tmp_path, '{"a": "\\ud800"}\n', "a.jsonl"))["a"].tolist() == ["?"]


def test_the_rows_are_not_in_a_file_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    dataset = open_dataset(put(tmp_path, '{"a": 1}\n', "a.jsonl"))
    assert list(folder.iterdir()) == []
    assert dataset.to_table() == pa.table({"a": [1]})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    from cvgp.data.tables.writer import write_table

    frame = pd.DataFrame({"a": [0.1, 1e-300], "b": ["=x", "é\n"], "c": [True, False]})
    for ending in (".jsonl", ".jsonl.gz"):
        write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / f"a{ending}")
        pd.testing.assert_frame_equal(read_table(tmp_path / f"a{ending}"), frame)
