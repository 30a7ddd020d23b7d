"""`cvgp coreset`: the learned pseudo-data as a table."""

from pathlib import Path
from typing import Annotated

import typer

import cvgp
from cvgp.cli.console import print_json, say
from cvgp.cli.model_files import check_can_write, free_names
from cvgp.cli.options import AsJson, ModelFile
from cvgp.printable import printable


def coreset(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    as_json: AsJson = False,
) -> None:
    """Write the coreset: features, target and weight (beta) of each pseudo-point, the heaviest first.

    Values are in the units of the table; what stands for text columns are indicators, which need not be 0 or 1.
    """
    from cvgp.data.tables.location import WRITTEN_ENDINGS

    check_can_write(out, WRITTEN_ENDINGS)
    model = cvgp.load(model_file)

    import numpy as np
    import pyarrow as pa

    from cvgp.data.tables.writer import write_table
    from cvgp.estimators.frames import feature_names
    from cvgp.plots.columns import target_name

    points = model.coreset_
    target = target_name(model)
    outputs = [target] if points.num_outputs == 1 else [f"{target}{t}" for t in range(points.num_outputs)]
    names = feature_names(model)
    names += free_names([*outputs, "beta"], names)
    order = np.argsort(-points.beta, kind="stable")
    values = np.column_stack([points.X, points.y, points.beta])[order]
    write_table(pa.table(list(values.T), names=names), out)
    if as_json:
        print_json({"out": str(out), "points": len(points), "columns": names})
    else:
        say(f"Wrote {len(points)} pseudo-points to {out}: {', '.join(map(printable, names))}")
