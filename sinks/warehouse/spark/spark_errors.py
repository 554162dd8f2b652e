"""What Spark raises, in our tree. Policy reads the class.

Messages of the JVM can hold values of rows, so only the condition or the class of the innermost cause is said; the rest
stands in Spark's own log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from cdc.errors import SinkGap, SparkFailed
from sinks.warehouse.spark.spark_session import last_words

_LOST: Final = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS", "may have been lost", "aged out")


# What Spark meets when Kafka or the object store is away. It passes, however long that takes.
_ELSEWHERE: Final = re.compile(
    r"org\.apache\.kafka\.|java\.net\.|java\.io\.|amazonaws|com\.google\.cloud|microsoft\.azure"
)


@contextmanager
def translating_spark_errors(doing: str) -> Iterator[None]:
    """Turn errors of Spark and its JVM into SinkGap or SparkFailed."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = str(error)
        cause = _cause(error, text)
        if any(word in text for word in _LOST):
            raise SinkGap(
                f"cannot {doing}: records are gone from the log: {cause}",
                hint="retention or deletion was faster than the sink; build the lake anew in another folder",
            ) from error
        raise _failed(doing, cause, error) from error


def _failed(doing: str, cause: str, error: BaseException) -> SparkFailed:
    is_unanswered = isinstance(error, Py4JNetworkError | ConnectionError)
    # py4j raises its base class when the JVM ends while it runs something.
    words = last_words() if is_unanswered or type(error) is Py4JError else ""
    what = "Spark's JVM is gone" if is_unanswered else f"Spark failed: {cause}"
    if words:
        what = f"Spark's JVM is gone: {words}"
    failed = SparkFailed(
        f"cannot {doing}: {what}",
        hint="a new JVM tries it again, in smaller pieces; if it ran out of memory, raise `memory` of the sink "
        "(spark.log and spark.out in the cache folder say more)",
    )
    failed.counts = bool(words) or is_unanswered or not _ELSEWHERE.match(cause)
    return failed


def _cause(error: BaseException, text: str) -> str:
    """Spark's condition, else the class of the innermost cause."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    causes = re.findall(r"^Caused by: ([\w.$]+)", text, re.MULTILINE) or re.findall(r"^: ([\w.$]+)", text, re.MULTILINE)
    return condition or (causes[-1] if causes else type(error).__name__)
