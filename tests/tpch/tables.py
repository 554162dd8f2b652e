"""The tables of TPC-H at any scale, with the rows of `tpchgen-cli`, as Arrow files in the cache and in PostgreSQL."""

from __future__ import annotations

import io
import subprocess
import sysconfig
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from cdc.artifacts.cache_folder import locked, make_tree
from cdc.artifacts.machine import Machine
from sinks.warehouse.lake import layout
from tests.fixtures.views.pg_columns import types_of_ddl

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from sinks.warehouse.views.meaning.pg_types import PgType

FOLDER: Final = Path(__file__).parent
VIEWS: Final = FOLDER / "views"
DDL: Final = (FOLDER / "schema.sql").read_text()
KEYS: Final = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "part": ("p_partkey",),
    "supplier": ("s_suppkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""The primary key of each table. A table comes after those that its foreign keys refer to."""
_FORM: Final = 1  # of the cached files; raise it when their schema or rows change
_SMALL: Final = 0.01  # below, the formula of the specification gives some parts the same supplier twice
_BATCH_ROWS: Final = 1 << 16
_LOCK_S: Final = 3600.0


def mirror(table: str) -> str:
    """Return the name of the table's mirror in a lake."""
    return layout.mirror("public", table)


@cache
def types() -> dict[str, dict[str, PgType]]:
    """Return mirror -> its columns, as a manifest has them."""
    return types_of_ddl(DDL)


@cache
def schemas() -> dict[str, pa.Schema]:
    """Return the Arrow schema of each table, as a lake has it."""
    return {table: pa.schema([(name, _arrow(kind)) for name, kind in types()[mirror(table)].items()]) for table in KEYS}


def padded(table: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return values of columns as PostgreSQL stores them: those of `char(n)` padded with spaces."""
    kinds = types()[mirror(table)]
    return {
        name: value.ljust(kinds[name].length) if isinstance(value, str) else value for name, value in values.items()
    }


def tables(scale: float) -> dict[str, pa.Table]:
    """Return all rows of each table, sorted by the first column of its key. The files are mapped, not read.

    `char(n)` columns are padded with spaces, as PostgreSQL sends them.
    """
    return {table: pa.ipc.open_file(pa.memory_map(str(file))).read_all() for table, file in _files(scale).items()}


def create(session: psycopg.Connection[Any], rows: dict[str, pa.Table]) -> int:
    """Create the tables in the session's schema and fill them. Returns the number of rows."""
    session.execute(DDL.encode())
    options = pa.csv.WriteOptions(include_header=False)
    for table in KEYS:
        with session.cursor().copy(f"copy {table} from stdin (format csv)".encode()) as copy:
            for batch in rows[table].to_batches():
                text = io.BytesIO()
                pa.csv.write_csv(batch, text, options)
                copy.write(text.getbuffer())
    return sum(table.num_rows for table in rows.values())


def _files(scale: float) -> dict[str, Path]:
    """Generate the tables, unless the cache has them."""
    machine = Machine.here()
    root = machine.cache / "tpch"
    folder = root / f"{version('tpchgen-cli')}-{_FORM}-{scale:g}"
    with locked(machine.cache / "locks" / "tpch", machine=machine, deadline_s=_LOCK_S):
        make_tree(lambda part: _generate(scale, part), folder, machine=machine)
    return {table: folder / f"{table}.arrow" for table in KEYS}


def _generate(scale: float, folder: Path) -> None:
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run([program, "parquet", "-s", f"{scale:g}", "--output-dir", folder, "--quiet"], check=True)
    seen: set[tuple[int, int]] = set()
    for table, schema in schemas().items():
        raw = folder / f"{table}.parquet"
        with pa.parquet.ParquetFile(raw) as read, pa.ipc.new_file(folder / f"{table}.arrow", schema) as write:
            for batch in read.iter_batches(_BATCH_ROWS):
                columns = [_column(batch[name], kind) for name, kind in types()[mirror(table)].items()]
                rows = pa.record_batch(columns, schema=schema)
                write.write_batch(_distinct(rows, seen) if table == "partsupp" and scale < _SMALL else rows)
        raw.unlink()


def _distinct(batch: pa.RecordBatch, seen: set[tuple[int, int]]) -> pa.RecordBatch:
    """Leave out rows of `partsupp` whose key is in `seen`."""
    keys = list(zip(*(batch[name].to_pylist() for name in KEYS["partsupp"]), strict=True))
    fresh = [not (key in seen or seen.add(key)) for key in keys]  # type: ignore[func-returns-value]
    return batch.filter(pa.array(fresh))


def _column(values: pa.Array, kind: PgType) -> pa.Array:
    found = values.cast(_arrow(kind))
    return pc.utf8_rpad(found, kind.length, " ") if kind.name == "bpchar" else found


def _arrow(kind: PgType) -> pa.DataType:
    if kind.name == "numeric":
        return pa.decimal128(kind.precision, kind.scale)
    return {"int4": pa.int32(), "date": pa.date32()}.get(kind.name, pa.string())
