"""Tables in files as what an estimator is fitted to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from cvgp.errors import InvalidInputError
from cvgp.extras import optional_packages
from cvgp.parallel.group import Group

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable

__all__ = ["is_in_files", "load_arrays", "open_table"]


def open_table(
    x: Any, y: Any, weight: Any, noise: Any, *, impute: Any, on_bad_rows: Any, group: Group
) -> TrainingTable | None:
    """The table that `fit` was given the place of, looked through once; None where x holds the rows themselves."""
    if not is_in_files(x):
        if impute is not None or on_bad_rows != "error":
            raise InvalidInputError(
                "impute and on_bad_rows are for tables in files; drop or fill bad rows of an array before fitting."
            )
        return None
    with optional_packages():
        from cvgp.data.tables.training_table import TrainingTable

    if isinstance(x, TrainingTable):
        return x
    return TrainingTable(
        x, y, sample_weight=weight, noise_variance=noise, impute=impute, on_bad_rows=on_bad_rows, group=group
    )


def load_arrays(table: TrainingTable) -> tuple[Any, Any, Any, Any]:
    """X with the names of its features, y, weights and known noise variances."""
    import pandas as pd

    rows = table.load()
    return (
        pd.DataFrame(rows.x, columns=table.feature_names),
        rows.y[:, 0] if table.single_output else rows.y,
        rows.sample_weight,
        rows.noise_variance,
    )


def is_in_files(x: Any) -> bool:
    """Whether a value is a path, a list of paths, a pyarrow dataset or a table that is open already."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(isinstance(item, (str, os.PathLike)) for item in x)
    if isinstance(x, (str, os.PathLike)):
        return True
    # An object of these classes cannot exist before their modules are imported; arrays are fitted without them.
    classes = (("pyarrow.dataset", "Dataset"), ("cvgp.data.tables.training_table", "TrainingTable"))
    return any(isinstance(x, getattr(sys.modules[module], name)) for module, name in classes if module in sys.modules)
