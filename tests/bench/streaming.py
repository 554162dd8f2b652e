"""The reference for the lake: Structured Streaming with foreachBatch and MERGE by delta-spark, written as usual.

`tests.bench.lake` and `tests.bench.lakecluster` run it in its own process. For each line on standard input, it
processes the topic and prints the seconds. It maintains one mirror, and with ``archive`` a table of all events, too: no
counts, no cut over several tables; after a crash, the two tables could differ until the batch is repeated. So it does
less than a cut of the lake.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOCK: Final = Path(__file__).with_name("delta.lock")
_ROW: Final = "id int, a string, b string, kind int, total decimal(12,2), at timestamp, ok boolean"
_SOURCE: Final = "struct<commit_lsn: bigint, ordinal: int>"
_ENVELOPE: Final = (
    f"op string, before struct<id: int>, after struct<{_ROW.replace(' ', ': ').replace(',: ', ', ')}>, source {_SOURCE}"
)
# A plain JVM's: our session raises them for its own kind of work.
_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 -XX:Tier4CompileThreshold=15000"
)
_COLUMNS: Final = ("id", "a", "b", "kind", "total", "at", "ok")


def main() -> int:
    """``streaming BOOTSTRAP TOPIC FOLDER [archive]``."""
    bootstrap, topic, folder, *more = sys.argv[1:]
    machine = Machine.here()
    jars = fetch(parse_lock(_LOCK.read_text(), name=_LOCK.name), machine=machine, progress=NoProgress(), label="Delta")
    options = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.runSQLOnFiles": "true",  # our sessions forbid the tables by path that this job uses
        "spark.driver.extraJavaOptions": _COMPILER,
    }
    spark = open_session(
        SparkOptions(master="local[2]", memory="3g", options=options, scratch=machine.cache / "spark"),
        machine=machine,
        progress=NoProgress(),
    )
    table, archive = f"{folder}/mirror", f"{folder}/archive" if more == ["archive"] else ""
    spark.sql(f"create table delta.`{table}` ({_ROW}) using delta")
    try:
        for _ in sys.stdin:
            began_s = time.monotonic()
            stream = (
                spark.readStream.format("kafka")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("kafka.isolation.level", "read_committed")
                .option("subscribe", topic)
                .option("startingOffsets", "earliest")
                .load()
            )
            query = (
                stream.writeStream.foreachBatch(lambda batch, number: _apply(batch, number, table, archive))
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            sys.stdout.write(json.dumps({"seconds": time.monotonic() - began_s}) + "\n")
            sys.stdout.flush()
    finally:
        close_session(spark)
    return 0


def _apply(batch: DataFrame, number: int, mirror: str, archive: str) -> None:
    events = batch.where("value is not null").selectExpr(f"from_json(string(value), '{_ENVELOPE}') as e")
    if not archive:
        _merge(events, mirror)
        return
    events = events.persist()  # both writes read it
    ids = {"txnAppId": "archive", "txnVersion": str(number)}  # a repeated batch is not appended again
    rows = ", ".join(f"e.after.{name} as {name}" for name in _COLUMNS)
    position = "e.source.commit_lsn as commit_lsn, e.source.ordinal as ordinal"
    archived = events.selectExpr(*f"e.op as op, e.before.id as old_id, {position}, {rows}".split(", "))
    archived.write.format("delta").mode("append").options(**ids).save(archive)
    _merge(events, mirror)
    events.unpersist()


def _merge(events: DataFrame, table: str) -> None:
    spark = events.sparkSession
    events.createOrReplaceTempView("events")
    spark.sql(
        "create or replace temporary view newest as select coalesce(e.after.id, e.before.id) as key, "
        "max_by(e, struct(e.source.commit_lsn, e.source.ordinal)) as e from events group by key"
    )
    rows = ", ".join(f"e.after.{name} as {name}" for name in _COLUMNS)
    spark.sql(
        f"merge into delta.`{table}` t using (select key, e.op = 'd' as gone, {rows} from newest) s on t.id = s.key "
        "when matched and s.gone then delete "
        f"when matched then update set {', '.join(f't.{name} = s.{name}' for name in _COLUMNS)} "
        f"when not matched and not s.gone then insert ({', '.join(_COLUMNS)}) "
        f"values ({', '.join(f's.{name}' for name in _COLUMNS)})"
    )


if __name__ == "__main__":
    sys.exit(main())
