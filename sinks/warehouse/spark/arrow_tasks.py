"""Runs functions over Arrow arrays in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def in_python(function: Callable[..., object], kind: str | DataType) -> Callable[..., Column]:
    """Return a function of columns that runs in Python, once for each batch or group.

    Spark must not run it twice for one result, because it may write files. So it is marked as not deterministic: the
    optimizer would compute a deterministic one again in a filter above it.
    """
    # Annotations give the kind of function: naming it causes a warning, the stubs do not allow to omit it.
    made = arrow_udf(function, kind).asNondeterministic()  # type: ignore[call-overload]
    return cast("Callable[..., Column]", made)


def table_of_structs(rows: pa.StructArray) -> pa.Table:
    """Return the fields of structs as columns."""
    return pa.table(rows.flatten(), names=[field.name for field in rows.type])


def structs_of_table(rows: pa.Table) -> pa.StructArray:
    """Return the columns of a table as fields of structs."""
    columns = [column.combine_chunks() for column in rows.columns]
    arrays = [one if isinstance(one, pa.Array) else pa.concat_arrays(one.chunks) for one in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(rows.schema))
