"""What Spark raises, in our tree. Policy reads the class; what it says stands in the message, cut short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from cdc.errors import LakeUnready, SinkGap

_LOST: Final = ("OffsetOutOfRangeException", "KAFKA_DATA_LOSS", "may have been lost", "aged out")
_TEXT_MAX: Final = 300


@contextmanager
def sparked(doing: str) -> Iterator[None]:
    """Turn errors of Spark and its JVM into SinkGap or LakeUnready."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = str(error)
        cause = _first_line(text)
        if any(word in text for word in _LOST):
            raise SinkGap(
                f"cannot {doing}: records are gone from the log: {cause}",
                hint="retention or deletion was faster than the sink; build the lake anew in another folder",
            ) from error
        gone = isinstance(error, Py4JNetworkError | ConnectionError)
        what = "Spark's JVM is gone" if gone else f"Spark failed: {cause}"
        raise LakeUnready(
            f"cannot {doing}: {what}", hint="it is tried again; memory of the sink may be short"
        ) from error


def _first_line(text: str) -> str:
    """The line that says why: the innermost cause, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    found = causes[-1] if causes else lines[0] if lines else type(text).__name__
    return found[:_TEXT_MAX]
