"""Small files that ask for much: refused before they are read, whatever they unpack to or claim."""

import gzip
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from cvgp.errors import InvalidInputError
from cvgp.files import MOST_COLUMNS
from cvgp.tables.read import open_table
from tests.robustness.mutations import tensor_file

MEGABYTES = 300
"""By which the memory of a process may grow while it refuses all of them."""


def packed(path: Path, begin: bytes, repeated: bytes, times: int) -> Path:
    """A gzip file of many equal members, which is quickly made."""
    path.write_bytes(gzip.compress(begin) + times * gzip.compress(repeated))
    return path


def header_line(folder: Path) -> Path:
    return packed(folder / "header.csv.gz", b'y,"', b"a\n" * 500_000, 400)


def gzip_rows(folder: Path) -> Path:
    return packed(folder / "rows.csv.gz", b"a,y\n", b"1,2\n" * 250_000, 400)


def json_line(folder: Path) -> Path:
    return packed(folder / "line.jsonl.gz", b'{"y": "', b"a" * 1_000_000, 400)


def json_keys(folder: Path) -> Path:
    keys = b"".join(json.dumps({f"k{i}": 1}).encode() + b"\n" for i in range(900))
    return packed(folder / "keys.jsonl.gz", keys, b'{"y":1}\n' * 10_000, 8)


def wide_text(folder: Path) -> Path:
    names = ",".join(f"c{i}" for i in range(20_000))
    (folder / "wide.csv").write_text(f"{names},y\n{'1,' * 20_000}1\n")
    return folder / "wide.csv"


def feather_batch(folder: Path) -> Path:
    zeros = pa.table({"a": np.zeros(4_000_000), "y": np.zeros(4_000_000)})
    feather.write_feather(zeros, folder / "zeros.feather", compression="zstd", chunksize=4_000_000)
    return folder / "zeros.feather"


def feather_schema(folder: Path) -> Path:
    feather.write_feather(pa.table({f"c{i}": [1.0] for i in range(MOST_COLUMNS + 1)}), folder / "wide.feather")
    return folder / "wide.feather"


def row_group(folder: Path) -> Path:
    zeros = pa.table({"a": np.zeros(4_000_000), "y": np.zeros(4_000_000)})
    pq.write_table(zeros, folder / "zeros.parquet", row_group_size=4_000_000, data_page_size=1 << 30)
    return folder / "zeros.parquet"


def parquet_text(folder: Path) -> Path:
    column = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 1_000_000])
    pq.write_table(pa.table({"a": column, "y": np.zeros(1000)}).cast(TEXT), folder / "text.parquet", compression="zstd")
    return folder / "text.parquet"


TEXT = pa.schema([("a", pa.dictionary(pa.int32(), pa.string())), ("y", pa.float64())])


def parquet_page(folder: Path) -> Path:
    """The one page of a column says that it unpacks to 134 MB, and the header of the file says 4 MB."""
    path = folder / "page.parquet"
    text = [word.hex() for word in np.random.default_rng(0).bytes(2_000_000).split(b"\x00")]
    rows = pa.table({"a": text, "y": np.zeros(len(text))})
    pq.write_table(rows, path, use_dictionary=False, compression="zstd", data_page_size=1 << 30)
    content = bytearray(path.read_bytes())
    begin = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    # A header begins with its type (15 00) and its size when unpacked: 15, and a number of four bytes.
    assert content[begin : begin + 3] == b"\x15\x00\x15"
    assert content[begin + 6] < 0x80 <= content[begin + 5]
    content[begin + 3 : begin + 7] = b"\xfe\xff\xff\x7f"
    path.write_bytes(content)
    return path


def parquet_schema(folder: Path) -> Path:
    pq.write_table(pa.table({f"c{i}": [1.0] for i in range(MOST_COLUMNS + 1)}), folder / "wide.parquet")
    return folder / "wide.parquet"


def excel_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/worksheets/sheet1.xml", b"<row/>" * 5_000_000)
    return folder / "bomb.xlsx"


def holes_in_table(folder: Path) -> Path:
    with (folder / "holes.csv").open("wb") as file:
        file.write(b"a,y\n1,2\n")
        file.truncate(2 << 30)
    return folder / "holes.csv"


def model_header(path: Path, header: object, size: int = 0) -> Path:
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)
    return path


def holes_in_model(folder: Path) -> Path:
    array = {"dtype": "F64", "shape": [1 << 28], "data_offsets": [0, 1 << 31]}
    return model_header(folder / "holes.cvgp", {"a": array, "__metadata__": {"cvgp": "{}"}}, 1 << 31)


def many_tensors(folder: Path) -> Path:
    empty = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
    return model_header(folder / "many.cvgp", {f"t{i}": empty for i in range(20_000)})


def long_metadata(folder: Path) -> Path:
    path = folder / "long.cvgp"
    path.write_bytes(tensor_file({"a": np.zeros(3)}, '{"x": [' + "[]," * 3_000_000 + "[]]}"))
    return path


BOMBS: list[Callable[[Path], Path | str]] = [
    header_line,
    gzip_rows,
    json_line,
    json_keys,
    wide_text,
    feather_batch,
    feather_schema,
    row_group,
    parquet_text,
    parquet_page,
    parquet_schema,
    excel_zip,
    holes_in_table,
    holes_in_model,
    many_tensors,
    long_metadata,
]

REFUSED = """
import json, resource, sys
import cvgp, openpyxl, safetensors.numpy, sklearn.cluster
from cvgp.tables.table import read_table
from cvgp.errors import CVGPError
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
for path in json.loads(sys.argv[1]):
    before = peak()
    try:
        cvgp.load(path) if path.endswith(".cvgp") else read_table(path, "y").learn()
        print("read")
    except CVGPError as error:
        print(type(error).__name__, round(peak() - before))
"""


@pytest.mark.slow
def test_no_bomb_is_read_or_takes_memory(tmp_path: Path) -> None:
    paths = [str(make(tmp_path)) for make in BOMBS]
    command = [sys.executable, "-W", "ignore", "-c", REFUSED, json.dumps(paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = {make.__name__: line.split() for make, line in zip(BOMBS, done.stdout.splitlines(), strict=True)}
    assert {name: words[0] for name, words in found.items() if not words[0].endswith("Error")} == {}
    assert {name: words[1] for name, words in found.items() if int(words[1]) > MEGABYTES} == {}


def test_the_environment_switches_limits_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "rows.csv.gz", b"a,y\n", b"1,2\n" * 250_000, 20)
    with pytest.raises(InvalidInputError, match="CVGP_TRUST_FILES"):
        open_table(path)
    monkeypatch.setenv("CVGP_TRUST_FILES", "1")
    assert open_table(path).names == ["a", "y"]


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize("packing", ["zstd", "lz4", "uncompressed"])
def test_an_honest_table_passes_the_checks(tmp_path: Path, ending: str, packing: str) -> None:
    rng = np.random.default_rng(0)
    text = pa.array(rng.choice(["x", "yy", None], 500)).dictionary_encode()
    table = pa.table({"a": rng.normal(size=500), "c": text, "d": pa.array(["z" * 9] * 500), "y": rng.normal(size=500)})
    path = tmp_path / f"a{ending}"
    if ending == ".parquet":
        pq.write_table(table, path, compression="none" if packing == "uncompressed" else packing)
    else:
        feather.write_feather(table, path, compression=packing, chunksize=100)
    assert open_table(path).names == ["a", "c", "d", "y"]
