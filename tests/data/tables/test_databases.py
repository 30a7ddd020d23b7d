import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError
from tests.data.tables.tables import read_table

SCHEMES = ["sqlite", "duckdb"]
MAKE = (
    'CREATE TABLE "my ""table" (a INTEGER, b REAL, c TEXT)',
    "INSERT INTO \"my \"\"table\" VALUES (1, 0.5, 'x'), (2, NULL, 'y'), (3, 1.5, NULL)",
    'CREATE VIEW few AS SELECT a, b FROM "my ""table" WHERE a > 1',
)


def make(folder: Path, scheme: str, statements: tuple[str, ...] = MAKE) -> str:
    file = folder / f"file.{scheme}"
    with closing(sqlite3.connect(file) if scheme == "sqlite" else duckdb.connect(str(file))) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return f"{scheme}:///{file}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_table_is_read(tmp_path: Path, scheme: str) -> None:
    frame = read_table(make(tmp_path, scheme) + '::my "table')  # type: ignore[arg-type]
    assert frame["a"].tolist() == [1, 2, 3]
    assert frame["b"].isna().tolist() == [False, True, False]
    assert frame["c"].tolist()[:2] == ["x", "y"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_view_is_read(tmp_path: Path, scheme: str) -> None:
    assert len(read_table(make(tmp_path, scheme) + "::few")) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("table", ["", "::", "::absent", "::few; DROP VIEW few"])
def test_a_table_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, scheme: str, table: str) -> None:
    place = make(tmp_path, scheme)
    with pytest.raises(InvalidInputError, match=r"no table.*tables of that file are few, my \"table"):
        open_dataset(place + table)
    assert len(read_table(place + "::few")) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_file_that_is_not_there_is_refused_and_not_made(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(MissingFileError, match="There is no file"):
        open_dataset(f"{scheme}:///{tmp_path / 'absent'}::t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_database_is_refused(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "file").write_bytes(b"no database " * 500)
    with pytest.raises(FileFormatError, match="could not be read"):
        open_dataset(f"{scheme}:///{tmp_path / 'file'}::t")


def test_a_database_whose_text_is_damaged_is_refused(tmp_path: Path) -> None:
    place = make(tmp_path, "sqlite", ("CREATE TABLE t (abcdefgh, y)", "INSERT INTO t VALUES ('klmnopqr', 1)"))
    file = Path(place.removeprefix("sqlite:///"))
    content = file.read_bytes()
    for text in (b"abcdefgh", b"klmnopqr"):
        file.write_bytes(content.replace(text, text[:4] + b"\xff\xfe" + text[6:]))
        with pytest.raises(FileFormatError, match=r"sqlite:///.*could not be read"):
            open_dataset(f"{place}::t")


def test_rows_of_a_database_are_named_by_its_address(tmp_path: Path) -> None:
    place = make(tmp_path, "sqlite") + "::few"
    with pytest.raises(InvalidInputError, match=r"sqlite:///.*::few, data row 1: column 'b' is missing"):
        TrainingTable(place, "b")


def test_only_one_table_is_read_at_a_time(tmp_path: Path) -> None:
    place = make(tmp_path, "sqlite") + "::few"
    with pytest.raises(InvalidInputError, match="one table of a database"):
        open_dataset([place, place])


def test_a_column_of_several_types_is_text(tmp_path: Path) -> None:
    statements = ("CREATE TABLE t (a, y)", "INSERT INTO t VALUES (1, 1), ('x', 2), (2.5, 3), ('x', 4)")
    table = TrainingTable(make(tmp_path, "sqlite", statements) + "::t", "y")
    assert table.feature_names == ["a=1", "a=2.5", "a=x"]


def test_bytes_cannot_be_used(tmp_path: Path) -> None:
    statements = ("CREATE TABLE t (a, y)", "INSERT INTO t VALUES (x'00ff', 1), (x'01', 2)")
    with pytest.raises(InvalidTypeError, match=r"'a' holds values of type binary(.|\n)*--drop a"):
        TrainingTable(make(tmp_path, "sqlite", statements) + "::t", "y")


def test_a_view_of_a_duckdb_file_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    place = make(tmp_path, "duckdb", (f"CREATE VIEW t AS SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')",))
    with pytest.raises(FileFormatError, match="could not be read"):
        open_dataset(f"{place}::t")
