"""Gives Spark programs a lake as typed data frames: tables, changes and views, each as of one cut.

A frame reads the Parquet files of a pinned table version. So no Delta jar is needed, and later reads give what was
there when the frame was made. All frames of a cut are as of the same LSN. Nothing here depends on Kafka.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.errors import SinkBehind, UsageError, ViewRefused
from cdc.lsn import Lsn
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.lake.location import Where
from sinks.warehouse.lake.manifest import epoch_at
from sinks.warehouse.read.lake_reader import At, Lake, parse_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from sinks.warehouse.lake.manifest import Manifest

__all__ = ["At", "Lake", "frame_of", "read_changes", "read_cut", "read_history", "read_sql", "view_at"]


def read_cut(
    spark: SparkSession,
    path: Where,
    table: str,
    lsn: int | str | None = None,
    *,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a table as of a cut: the newest one, or the newest that ends at `lsn` or before it.

    Args:
        spark: any session of Spark 4.
        path: location of the lake: a folder, or a URL such as ``s3://bucket/lake``.
        table: ``orders`` or ``public.orders`` for the mirror; ``history.orders``, ``archive.orders`` for the others.
        lsn: a number or ``X/Y``.
        storage: options of the object store, named as in the deltalake package; without them the environment is used.

    Raises:
        SinkBehind: the lake does not reach `lsn`.
        UsageError: the table does not exist, or no such old cut is kept; the message lists what exists.
        LakeDamaged: files that a cut names are missing.
    """
    lake = Lake(path, storage=storage)
    manifest = lake.manifest(_lsn(lsn))
    name = lake.table(table, manifest)
    return frame_of(spark, lake.location, name, manifest.tables[name].version)


def read_changes(
    spark: SparkSession,
    path: Where,
    table: str,
    from_lsn: int | str = 0,
    to_lsn: int | str | None = None,
    *,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return every change of a table committed from `from_lsn` on and before `to_lsn`, from the archive.

    Between the ends of two cuts these are exactly the changes that lead from one to the other. A row has the table's
    columns (after the change; for a delete only the key), `_op`, `_unchanged` and the position (`_epoch`,
    `_commit_lsn`, `_ordinal`), which is their order; the frame itself has none.

    Args:
        spark: any session of Spark 4.
        path: location of the lake: a folder, or a URL such as ``s3://bucket/lake``.
        table: ``orders``, ``public.orders`` or a topic.
        from_lsn: a number or ``X/Y``; 0 for all changes in the archive.
        to_lsn: the end of the newest cut by default.
        storage: as for `read_cut`.

    Raises:
        SinkBehind: the lake does not reach `to_lsn`.
        UsageError: the table does not exist, or the archive begins after `from_lsn`.
    """
    lake = Lake(path, storage=storage)
    manifest = lake.manifest()
    start, end = Lsn(_lsn(from_lsn) or 0), _lsn(to_lsn)
    _check_reached(manifest, end)
    if 0 < start < manifest.position.since_lsn:
        raise UsageError(
            f"the archive begins at {Lsn(manifest.position.since_lsn)}, after {start}",
            hint="from_lsn 0 reads all of it",
        )
    name = lake.table(table, manifest, kinds=("archive",))
    frame = frame_of(spark, lake.location, name, manifest.tables[name].version)
    if "_commit_lsn" not in frame.columns:
        raise UsageError(f"{name} has outbox events, not row changes", hint="read_cut reads it")
    last = manifest.end_lsn if end is None else end
    found = frame.where(_is_before(frame, manifest, last))
    return found.where(~_is_before(frame, manifest, start)) if start else found


def read_history(
    spark: SparkSession,
    path: Where,
    table: str,
    *,
    known_at: int | str | None = None,
    valid_at: datetime | date | str | None = None,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return what was valid when by event time, as known at an LSN; `sinks.warehouse.read.bitemporal` has the rules.

    A row has the columns of the history. `_valid_from` and `_valid_to` are the times of the log. `_effective_from` to
    `_effective_to` are in the type of the event time: half-open, null if no end is known. Rows have the columns that
    the history has now, also for times before a DDL.

    Args:
        spark: any session of Spark 4.
        path: location of the lake: a folder, or a URL such as ``s3://bucket/lake``.
        table: ``orders`` or ``public.orders``; the sink's `event_time` must name it.
        known_at: a number or ``X/Y``, also if its cut is no longer kept; the end of the newest cut by default.
        valid_at: select only what is valid then, at most one row per key; a time without a zone is in UTC.
        storage: as for `read_cut`.

    Raises:
        SinkBehind: the lake does not reach `known_at`.
        UsageError: the history does not exist, has no event time, or begins after `known_at`, or `valid_at` is not a
            time.
    """
    from sinks.warehouse.read.bitemporal import known_versions, valid_versions

    lake = Lake(path, storage=storage)
    manifest = lake.manifest()
    known = _lsn(known_at)
    _check_reached(manifest, known)
    if known is not None and known < manifest.position.since_lsn:
        raise UsageError(f"the lake begins at {Lsn(manifest.position.since_lsn)}, after {known}")
    name = lake.table(table, manifest, kinds=("history",))
    state = manifest.tables[name]
    rows = frame_of(spark, lake.location, name, state.version)
    # A column that was just added is in the table only from its first value on.
    if not state.key or state.event_time not in rows.columns:
        raise UsageError(
            f"{name} has no known event-time column",
            hint="name one in the sink's `event_time`; the next cut records it. `read_cut` needs none",
            table=table,
        )
    at = manifest.end_lsn if known is None else known
    found = known_versions(rows, state.key, state.event_time, at, epoch=epoch_at(manifest, at))
    return found if valid_at is None else valid_versions(found, valid_at)


def view_at(
    spark: SparkSession,
    path: Where,
    view: str,
    at: int | str | None = None,
    *,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a view as of a cut.

    Args:
        spark: any session of Spark 4.
        path: location of the lake: a folder, or a URL such as ``s3://bucket/lake``.
        view: its name.
        at: the number of a cut, an `Lsn` or ``X/Y``; the newest cut by default.
        storage: as for `read_cut`.

    Raises:
        SinkBehind: the lake does not reach that LSN.
        UsageError: the view or cut does not exist; the message lists what exists.
    """
    lake = Lake(path, storage=storage)
    table, state = lake.view(view, lake.manifest(parse_at(at) if isinstance(at, str) else at))
    return frame_of(spark, lake.location, table, state.version)


def read_sql(
    spark: SparkSession,
    path: Where,
    sql: str,
    at: int | str | None = None,
    *,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the result of a query over the tables and views of one cut, all as of its LSN.

    Args:
        spark: any session of Spark 4.
        path: location of the lake: a folder, or a URL such as ``s3://bucket/lake``.
        sql: one SELECT in Spark's SQL, or in PostgreSQL's with a first line ``-- dialect: postgres``. Names have the
            same meaning as in a view: ``orders``, ``history.orders``, ``archive.orders``, a view.
        at: the number of a cut, an `Lsn` or ``X/Y``; the newest cut by default.
        storage: as for `read_cut`.

    Raises:
        SinkBehind: the lake does not reach that LSN.
        UsageError: the cut is not kept; the message lists which are.
        ViewRefused: the SQL is not valid, or names what does not exist at that cut.
    """
    from pyspark.errors import PySparkException

    from sinks.warehouse.spark.sql_guard import guarded
    from sinks.warehouse.views.definition import bind_query, parse_view
    from sinks.warehouse.views.meaning.lake_types import types_of
    from sinks.warehouse.views.pattern_frames import patterns_readable
    from sinks.warehouse.views.view_errors import failure

    lake = Lake(path, storage=storage)
    manifest = lake.manifest(parse_at(at) if isinstance(at, str) else at)
    bound = bind_query(
        parse_view(Path("query.sql"), sql), list(manifest.views), manifest.tables, types_of(manifest.tables)
    )
    query = bound.sql
    mark = f"_{manifest.cut}_{uuid.uuid4().hex[:8]}"
    for name, table in bound.tables.items():
        frame_of(spark, lake.location, table, manifest.tables[table].version).createOrReplaceTempView(name + mark)
        query = query.replace(f"`{name}`", f"`{name}{mark}`")
    for name, view in bound.views.items():
        table, state = lake.view(view, manifest)
        frame_of(spark, lake.location, table, state.version).createOrReplaceTempView(name + mark)
        query = query.replace(f"`{name}`", f"`{name}{mark}`")
    keys = {one: manifest.tables[table].key or () for one, table in bound.tables.items() if table.startswith("mirror/")}
    for name in bound.patterns:
        query = query.replace(f"`{name}`", f"`{name}{mark}`")
    try:
        with patterns_readable(spark, bound.patterns, keys, mark):
            return guarded(spark, query)
    except PySparkException as error:
        fault = failure(replace(bound, shifts=()), error)  # the marks move all columns
        if not isinstance(fault, ViewRefused):
            raise fault from error
        raise ViewRefused(fault.message.replace(mark, ""), hint="names have the same meaning as in a view") from None
    finally:
        # A frame keeps the meaning of its names.
        for name in (*bound.tables, *bound.views):
            spark.catalog.dropTempView(name + mark)


def _is_before(frame: DataFrame, manifest: Manifest, lsn: int) -> Column:
    """Whether events are before an LSN; all events of earlier epochs are."""
    epoch, at = epoch_at(manifest, lsn), frame["_epoch"]
    return (at < epoch) | ((at == epoch) & (frame["_commit_lsn"] < int(lsn)))


def _check_reached(manifest: Manifest, lsn: Lsn | None) -> None:
    if lsn is not None and lsn > manifest.end_lsn:
        raise SinkBehind(
            f"the lake does not reach {lsn}: its newest cut {manifest.cut} ends at {Lsn(manifest.end_lsn)}",
            hint="later cuts will, if sink and capture run",
            lsn=lsn,
            newest_lsn=Lsn(manifest.end_lsn),
        )


def _lsn(value: int | str | None) -> Lsn | None:
    if value is None or isinstance(value, Lsn):
        return value
    if isinstance(value, int):
        return Lsn(value)
    try:
        return Lsn.parse(value)
    except ValueError as error:
        raise UsageError(str(error)) from error
