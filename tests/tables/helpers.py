"""Tables in files whose cells tell where they are."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from cvgp import read_table
from cvgp.tables.columns import Schema
from cvgp.tables.read import open_table
from cvgp.tables.table import TrainingTable

NUM_ROWS = 40_000


def frame(num_rows: int = NUM_ROWS, start: int = 0) -> pd.DataFrame:
    """Row i holds a = i, b = -2 i and y = i / 2."""
    row = np.arange(start, start + num_rows, dtype=np.float64)
    return pd.DataFrame({"a": row, "b": -2.0 * row, "y": row / 2.0})


def write_parts(
    folder: Path, table: pd.DataFrame, cuts: Sequence[int] = (10_000, 22_000), group: int = 9_000
) -> list[Path]:
    """The table as Parquet files that begin at these rows, in row groups of at most so many."""
    files = []
    for number, rows in enumerate(np.split(np.arange(len(table)), cuts)):
        files.append(folder / f"part-{number}.parquet")
        write(files[-1], table.iloc[rows], group)
    return files


def write(path: Path, table: pd.DataFrame, group: int = 9_000) -> Path:
    """One file, in the format of its ending."""
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path, row_group_size=group)
    elif path.name.endswith((".feather", ".arrow")):
        pa.feather.write_feather(pa.Table.from_pandas(table, preserve_index=False), path, chunksize=group)
    else:
        table.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


def put(folder: Path, content: str | bytes, name: str = "a.csv") -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_frame(location: Any, **options: Any) -> pd.DataFrame:
    """All columns of all rows of a table, as the package reads them."""
    opened = open_table(location, **options)
    kinds = {name: opened.kind(name) for name in opened.names}
    batches = [batch for part in opened.parts for batch in opened.batches(part, opened.names, kinds)]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    plain = [
        table.cast(
            pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema])
        )
        for table in tables
    ]
    return pa.concat_tables(plain, promote_options="permissive").to_pandas()


def learned(location: Any, target: Any = "y", **options: Any) -> TrainingTable:
    """What a fit would learn of a table."""
    return read_table(location, target, **options).learn()


def learn(table: pd.DataFrame, target: str, impute: Any = None) -> Schema:
    """The schema of a frame."""
    return learned(table, target, impute=impute).schema


def damage(path: Path, position: int = 2000, length: int = 4000) -> None:
    """Overwrite some bytes, and leave size and time as they were."""
    stat = path.stat()
    content = bytearray(path.read_bytes())
    content[position : position + length] = b"\xff" * len(content[position : position + length])
    path.write_bytes(bytes(content))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
