"""What `fit` is told about tables, and what is one."""

import os
import sys
from typing import Any, NamedTuple

from cvgp.errors import InvalidInputError
from cvgp.estimators.frames import is_frame, is_plain


class TableOptions(NamedTuple):
    """What `fit` can be told about a table."""

    impute: Any = None
    on_bad_rows: Any = "error"
    csv: Any = None
    drop: Any = ()
    features: Any = None
    keep: Any = ()

    def refuse_for_arrays(self) -> None:
        """Refuse to do with an array what is done with a table."""
        given = [name for name, value in self._asdict().items() if value != self._field_defaults[name]]
        if given:
            raise InvalidInputError(
                f"{', '.join(given)}: impute and on_bad_rows, like csv, drop, features and keep, are for "
                "tables; choose columns of an array, and drop or fill its bad rows, before fitting."
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


def is_table(x: Any, y: Any, reading: TableOptions) -> bool:
    """Whether rows are read as a table: from files, or from a frame that is more than numbers or holds its target.

    The options that only tables have are refused for arrays.
    """
    if is_in_files(x):
        return True
    if is_frame(x):
        is_named = isinstance(y, str) or (isinstance(y, list | tuple) and all(isinstance(name, str) for name in y))
        return reading != TableOptions() or is_named or not is_plain(x)
    reading.refuse_for_arrays()
    return False
