"""Tables for analyses: one rule for what type they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

# pandas.DataFrame, pyarrow.Table or a list of dictionaries; which one depends on the environment.
Table = Any


def table_of(columns: Mapping[str, Sequence[Any]]) -> Table:
    """Columns of equal length as a table.

    A pandas.DataFrame where pandas is installed, else a pyarrow.Table where pyarrow is, else a list with a
    dictionary for each row. A null is the missing value of the type: NaN, NA, null or None.
    """
    if find_spec("pandas") is not None:
        import pandas as pd

        return pd.DataFrame({name: _series(pd, values) for name, values in columns.items()})
    if find_spec("pyarrow") is not None:
        import pyarrow as pa

        return pa.table(dict(columns))
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _series(pd: Any, values: Sequence[Any]) -> Any:
    """A column of pandas: integers with nulls stay integers (Int64), which floats could not hold exactly."""
    known = [value for value in values if value is not None]
    if values and not known:
        return pd.array(values, dtype="float64")
    if len(known) < len(values) and known and all(type(value) is int for value in known):
        return pd.array(list(values), dtype="Int64")
    return list(values)
