"""Computes both timelines of a history: which version was valid when, as known at an LSN. Spark, lazy.

A history is written along one timeline only, that of the log, and closed rows never change again. The reader works out
business validity from its rows, for any LSN since the history began. A stored bitemporal history would have to rewrite
closed rows for each late event. The rules:

- A version is valid from its event time; if that is null, from its commit time.
- A delete ends a *life* of its key: all its versions end at the delete's commit time at the latest. The next insert of
  the key begins another life.
- Within a life, a version ends at the next greater event time, whenever that became known: a late event splits what was
  there. Of versions with the same event time, the last known one counts.
- A later life takes over from its earliest event time on.

Validity is half-open, so each key has at most one valid version at a time. Versions that are never valid are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType, DateType, TimestampType
from pyspark.sql.window import WindowSpec

from cdc.errors import UsageError
from sinks.warehouse.lake.committer import OPEN, VALID_TO, VALID_TO_LSN
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.log.event_time import EFFECTIVE_COLUMNS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FROM, _TO = EFFECTIVE_COLUMNS


def known_versions(history: DataFrame, key: Sequence[str], event_time: str, known_at: int, *, epoch: int) -> DataFrame:
    """Return the versions that are valid at some time, as known at an LSN, with `_effective_from` and `_effective_to`.

    Both have the type of the event time; the latter is null if no end is known. `_valid_to` and `_valid_to_lsn` are
    null if the end was not known yet. The history's partition column is left out.

    Args:
        history: its rows at a version that reaches `known_at`.
        key: its key columns.
        event_time: its event-time column.
        known_at: transactions that end at this LSN or before are known.
        epoch: of the log, in which `known_at` is an LSN. What earlier epochs have is known.
    """
    kind = next(field.dataType for field in history.schema.fields if field.name == event_time)
    # A row that was read from the table is before what commits at its LSN.
    begun = (fn.col("_valid_from_lsn") < int(known_at)) | (
        (fn.col("_valid_from_lsn") == int(known_at)) & (fn.col("_op") == "r")
    )
    earlier = fn.col("_epoch") < int(epoch)
    known = history.where(earlier | ((fn.col("_epoch") == int(epoch)) & begun))
    ended = earlier | (fn.col(VALID_TO_LSN) < int(known_at))
    shown = {name: known[quoted(name)] for name in history.columns if name != OPEN}
    shown |= {name: fn.when(ended, fn.col(name)) for name in (VALID_TO_LSN, VALID_TO)}
    prepared = known.select(
        # One struct, so that no column of the table collides with the names below.
        fn.struct(*[column.alias(name) for name, column in shown.items()]).alias("r"),
        *[known[quoted(name)].alias(f"k{index}") for index, name in enumerate(key)],
        fn.coalesce(known[quoted(event_time)], _moment(fn.col("_valid_from"), kind)).alias("at"),
        fn.struct("_epoch", "_valid_from_lsn", "_valid_from_ordinal").alias("place"),
    )
    keys = [f"k{index}" for index in range(len(key))]
    lives = prepared.withColumn("life", fn.sum(_begins(keys).cast("int")).over(_by(keys, "place")))
    whole = _by([*keys, "life"], "place").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    later = _by(keys, "life").rangeBetween(1, Window.unboundedFollowing)
    ends = lives.select(
        "r",
        fn.col("at").alias("begin"),
        fn.least(
            fn.lead("at").over(_by([*keys, "life"], "at", "place")),
            _moment(fn.last(fn.col("r")[VALID_TO]).over(whole), kind),
            fn.min("at").over(later),
        ).alias("end"),
    ).where("end is null or begin < end")
    return ends.select(
        *[fn.col("r")[name].alias(name) for name in shown], fn.col("begin").alias(_FROM), fn.col("end").alias(_TO)
    )


def valid_versions(versions: DataFrame, at: datetime | date | str) -> DataFrame:
    """Return those of `known_versions` that are valid at a time: at most one per key.

    Args:
        versions: result of `known_versions`.
        at: a time without a zone is in UTC; text is in ISO 8601.

    Raises:
        UsageError: the text is not a time.
    """
    micros = (_utc(at) - _EPOCH) // timedelta(microseconds=1)
    when = _moment(fn.timestamp_micros(fn.lit(micros)), versions.schema[_FROM].dataType)
    return versions.where((fn.col(_FROM) <= when) & (fn.col(_TO).isNull() | (when < fn.col(_TO))))


def _begins(keys: Sequence[str]) -> Column:
    """Whether a life begins with this version: an insert, or a gap after the previous version."""
    row = fn.col("r")
    before = fn.lag(row).over(_by(keys, "place"))
    gap = (before[VALID_TO_LSN] != row["_valid_from_lsn"]) | (before["_epoch"] != row["_epoch"])
    return fn.coalesce((row["_op"] == "c") | gap, fn.lit(1).cast("boolean"))


def _by(columns: Sequence[str], *order: str) -> WindowSpec:
    return Window.partitionBy(*columns).orderBy(*order)


def _moment(at: Column, kind: DataType) -> Column:
    """Return a timestamp in the type of the event time, in UTC whatever the session's zone is."""
    if isinstance(kind, TimestampType):
        return at
    seconds = (fn.unix_micros(at).cast("decimal(20,0)") / fn.lit(1_000_000)).cast("decimal(18,6)")
    local = fn.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + fn.make_dt_interval(secs=seconds)
    return local.cast("date") if isinstance(kind, DateType) else local


def _utc(at: datetime | date | str) -> datetime:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise UsageError(f"invalid time {at!r}", hint="expected e.g. 2026-11-21T12:00:00+01:00 or a date") from None
    if not isinstance(at, datetime):
        return datetime(at.year, at.month, at.day, tzinfo=UTC)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
