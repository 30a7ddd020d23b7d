"""Tables in files whose cells tell where they are."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq

from cvgp.data.schema import Impute, Schema
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.reader import list_parts, read_batches
from cvgp.data.tables.training_table import TrainingTable

NUM_ROWS = 40_000
"""Several blocks in each of several files."""


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


def read_table(path: Path) -> pd.DataFrame:
    """All columns of all rows of a table, as the package reads them."""
    dataset = open_dataset(path)
    kinds = dict.fromkeys(dataset.schema.names, "")
    batches = [batch for part in list_parts(dataset) for batch in read_batches(part, list(kinds), kinds)]
    return pa.Table.from_batches(batches).to_pandas()


def learn(table: pd.DataFrame, target: str, impute: Impute | None = None) -> Schema:
    """The schema of a table in memory."""
    dataset = ds.dataset(pa.Table.from_pandas(table, preserve_index=False))
    return TrainingTable(dataset, target, impute=impute).schema


def damage(path: Path, position: int = 2000, length: int = 4000) -> None:
    """Overwrite some bytes, and leave size and time as they were."""
    import os

    stat = path.stat()
    content = bytearray(path.read_bytes())
    content[position : position + length] = b"\xff" * len(content[position : position + length])
    path.write_bytes(bytes(content))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
