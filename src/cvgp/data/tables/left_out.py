"""Columns that tell nothing: the same value in all rows, or a number for each row."""

from dataclasses import replace

import numpy as np

from cvgp.data.tables.choice import LEAST_ROWS, ColumnChoice, is_id_name, left_out_line, numbers_rows
from cvgp.data.tables.first_pass import Survey, with_columns
from cvgp.data.tables.learned_columns import common_sample
from cvgp.errors import InvalidInputError
from cvgp.parallel.group import Group

CONSTANT = "the same value in all rows"
NUMBERS_ROWS = "numbers the rows"


def leave_out(survey: Survey, choice: ColumnChoice, group: Group) -> Survey:
    """The survey without columns that tell nothing, unless they are asked for, and with the reasons."""
    columns = survey.encoder.columns
    is_asked = any(is_id_name(column.name) for column in columns)  # the same in all processes
    sample = common_sample(survey, group).x if is_asked else None
    moments = survey.moments
    reasons: dict[str, str] = {}
    for position, column in enumerate(columns) if survey.total_rows >= LEAST_ROWS else ():
        if choice.is_asked_for(column.name) or survey.missing[position]:
            continue
        if moments.scales[position] == 0.0:
            reasons[column.name] = CONSTANT
        elif sample is not None and column.kind == "numeric" and numbers_rows(column.name, sample[:, position]):
            reasons[column.name] = NUMBERS_ROWS
    _check_names([column.name for column in columns if column.name not in reasons])
    if not reasons:
        return survey
    every = {**survey.left_out, **reasons}
    if len(reasons) == len(columns):
        raise InvalidInputError(f"No column is left to learn from. {left_out_line(every)}")
    is_used = np.array([column.name not in reasons for column in columns])
    return replace(with_columns(survey, is_used), left_out=every)


def _check_names(names: list[str]) -> None:
    if any(not name.strip() for name in names):
        raise InvalidInputError(
            "A column of the table has no name in the first line; name it, or remove it if it only numbers the rows "
            "(pandas writes such a column unless told index=False)."
        )
