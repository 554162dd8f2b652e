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

from cdc.errors import LakeUnready, SinkGap

_LOST: Final = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS", "may have been lost", "aged out")


@contextmanager
def sparked(doing: str) -> Iterator[None]:
    """Turn errors of Spark and its JVM into SinkGap or LakeUnready."""
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
        gone = isinstance(error, Py4JNetworkError | ConnectionError)
        what = "Spark's JVM is gone" if gone else f"Spark failed: {cause}"
        raise LakeUnready(
            f"cannot {doing}: {what}", hint="it is tried again; spark.log in the cache folder says more"
        ) from error


def _cause(error: BaseException, text: str) -> str:
    """Spark's condition, else the class of the innermost cause."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    causes = re.findall(r"^Caused by: ([\w.$]+)", text, re.MULTILINE) or re.findall(r"^: ([\w.$]+)", text, re.MULTILINE)
    return condition or (causes[-1] if causes else type(error).__name__)
