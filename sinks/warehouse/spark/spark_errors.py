"""Translates Spark's exceptions into Tailrace's errors. Retry policy depends on the class.

Messages of the JVM can contain values of rows. So only the condition or the class of the innermost cause is shown; the
rest is in Spark's own log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException, convert_exception

from cdc.errors import SinkGap, SparkFailed
from sinks.warehouse.spark.cluster_faults import ClusterFault, cluster_fault
from sinks.warehouse.spark.spark_session import executors_gone, exit_reason

_LOST: Final = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS", "may have been lost", "aged out")


# Causes outside of Spark: Kafka or the object store is not available. These pass, however long that takes.
_ELSEWHERE: Final = re.compile(
    r"org\.apache\.kafka\.|java\.net\.|java\.io\.(?!FileNotFound)|com\.amazonaws|software\.amazon\.awssdk|com\.google\.cloud"
    r"|com\.microsoft\.azure|org\.apache\.hadoop\.fs\.(s3a|azurebfs|gs)\."
)


@contextmanager
def translating_spark_errors(doing: str) -> Iterator[None]:
    """Translate errors of Spark and its JVM into SinkGap or SparkFailed."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = str(error)
        cause = _cause(error, text)
        if any(word in text for word in _LOST):
            raise SinkGap(
                f"cannot {doing}: records are gone from the log: {cause}",
                hint="retention or deletion was faster than the sink; rebuild the lake in another folder",
            ) from error
        raise spark_failure(doing, error) from error


@contextmanager
def unwrapping() -> Iterator[None]:
    """Raise Spark's own error where it is the cause of a Java exception.

    Without adaptive execution, Spark wraps an error in the broadcast side of a join (4.2, measured 2026-11-24).
    """
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause is not None:
            if _is(cause, "java.lang.StackOverflowError"):
                raise TooDeep(message="the query is nested too deeply") from error
            # pyspark has no class for some errors of Spark, and would hide their state.
            if _is(cause, "org.apache.spark.SparkThrowable") and cause.getSqlState() is not None:
                found = convert_exception(cause)
                raise (CapturedException(origin=cause) if found.getSqlState() is None else found) from error
            cause = cause.getCause()
        raise


class TooDeep(PySparkException):
    """Spark's threads have too small a stack for a query."""

    def getCondition(self) -> str:  # noqa: N802 - as pyspark calls it
        """See `PySparkException`."""
        return "STACK_OVERFLOW"

    def getSqlState(self) -> str:  # noqa: N802 - as pyspark calls it
        """See `PySparkException`: the statement is too complex."""
        return "54001"


def _is(found: Any, name: str) -> bool:
    gateway = SparkContext._gateway  # noqa: SLF001 - as pyspark itself does
    return gateway is not None and bool(is_instance_of(gateway, found, name))


def spark_failure(doing: str, error: BaseException) -> SparkFailed:
    """Return the error of a failed call: it names a fault of the cluster, else Spark's condition or class."""
    cause = _cause(error, str(error))
    fault = _cluster_fault(str(error))
    if fault is not None:
        failed = SparkFailed(f"cannot {doing}: {fault.what}", hint=fault.hint)
        failed.counts = fault.counts
        return failed
    is_unanswered = isinstance(error, Py4JNetworkError | ConnectionError)
    # py4j raises its base class if the JVM ends during a call.
    words = exit_reason() if is_unanswered or type(error) is Py4JError else ""
    what = "Spark's JVM is gone" if is_unanswered else f"Spark failed: {cause}"
    if words:
        what = f"Spark's JVM is gone: {words}"
    failed = SparkFailed(
        f"cannot {doing}: {what}",
        hint="it is retried in a new JVM, in smaller pieces; if the JVM ran out of memory, raise `memory` of the sink "
        "(see spark.log and spark.out in the cache folder)",
    )
    failed.counts = bool(words) or is_unanswered or not _ELSEWHERE.match(_innermost(str(error)))
    return failed


def _cluster_fault(text: str) -> ClusterFault | None:
    gone = executors_gone()
    if gone:
        return ClusterFault(gone, "start its workers, and check that they have a free core and reach the driver")
    return cluster_fault(text)


def _cause(error: BaseException, text: str) -> str:
    """Return Spark's condition, or else the class of the innermost cause."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return condition or _innermost(text) or type(error).__name__


def _innermost(text: str) -> str:
    """Return the class of the innermost cause; empty if the text has none."""
    causes = re.findall(r"^Caused by: ([\w.$]+)", text, re.MULTILINE) or re.findall(r"^: ([\w.$]+)", text, re.MULTILINE)
    return causes[-1] if causes else ""
