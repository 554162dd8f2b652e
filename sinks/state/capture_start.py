"""Distinguishes a sink that was started before capture from a sink whose topics were deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from cdc.errors import CaptureNotStarted, TopicMissing
from cdc.kafka.cluster_facts import TopicPartition
from cdc.model.topic_names import cuts_topic, schema_topic


class Topics(Protocol):
    """The part of `cdc.kafka.log_reader.LogReader` that is needed here."""

    def partitions(self, topics: Iterable[str]) -> Sequence[TopicPartition]:
        """Return the partitions of topics. Raises TopicMissing."""


@contextmanager
def waiting_for_capture(topics: Topics, name: str, has_position: Callable[[], bool]) -> Iterator[None]:
    """Raise CaptureNotStarted for TopicMissing when capture of pipeline `name` has never run.

    Capture has run if its schema topic or its cut index exists, or if the sink has a position of its own. Then a
    missing topic was deleted, and TopicMissing is raised.
    """
    try:
        yield
    except TopicMissing as error:
        schemas, cuts = schema_topic(name), cuts_topic(name)
        if _exists(topics, schemas) or _exists(topics, cuts) or has_position():
            raise
        raise CaptureNotStarted(
            f"capture of pipeline {name!r} has not started yet: topic {schemas!r} does not exist",
            hint="start capture; the sink waits for it and then starts by itself",
            command="cdc run",
            topic=schemas,
        ) from error


def _exists(topics: Topics, topic: str) -> bool:
    try:
        topics.partitions([topic])
    except TopicMissing:
        return False
    return True
