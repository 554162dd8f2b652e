"""How far the views of a lake are in their topics: the records of ``<name>.__cuts.<lake>``. Pure.

Each is the cut of one Kafka transaction, in the form of the index that capture writes, so that whoever waits for a sink
reads both alike; and it has of each published view which version of its table the topic is as of. So what is in a topic
and what is said of it are committed together, and a driver that comes after a crash knows what is left to send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import structs

from cdc.errors import ProgressDamaged
from cdc.model.progress_record import CUT_VERSION, Cut
from cdc.model.topic_names import VIEWS

BEHIND: Final = "behind"
"""State of a view whose topic is not as of the cut: who waits for it goes on waiting."""
COMPLETE: Final = "complete"


class Published(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A view's topic.

    Attributes:
        table, version: what it is as of; "" and 0 before the first version is in it as a whole.
        to_table, to_version: what it is on the way to, when that takes several transactions; "" and 0 otherwise.
        sent: of the differences on that way, how many are in the topic.
        key: columns of the key, which a topic keeps for ever.
        topic_id, partition_count: of the topic, by which one that was made again is noticed.
        schema_id: of the newest row.
    """

    table: str = ""
    version: int = 0
    to_table: str = ""
    to_version: int = 0
    sent: int = 0
    key: tuple[str, ...]
    topic_id: str
    partition_count: int
    schema_id: str = ""


class ViewCut(Cut, frozen=True, kw_only=True):
    """See the top of the file.

    Attributes:
        ordinal: of the first event that a later transaction at the same `end_lsn` would have.
        published: view -> its topic.
        cut: of the lake.
    """

    ordinal: int = 0
    published: dict[str, Published] = {}
    cut: int = 0


def decoded(value: bytes, topic: str) -> ViewCut:
    """A record of the index. Raises ProgressDamaged."""
    try:
        found = msgspec.json.decode(value, type=ViewCut)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProgressDamaged(f"a record in {topic} is not readable", topic=topic) from None
    if found.version != CUT_VERSION:
        raise ProgressDamaged(
            f"a record in {topic} has version {found.version}, this release reads {CUT_VERSION}", topic=topic
        )
    return found


def states(published: Mapping[str, Published], behind: Mapping[str, str]) -> dict[str, str]:
    """``views.<view>`` -> whether its topic is as of the cut."""
    names = sorted({*published, *behind})
    return {f"{VIEWS}.{name}": BEHIND if name in behind else COMPLETE for name in names}


def pins(published: Mapping[str, Published]) -> Iterator[tuple[str, int]]:
    """Table and version of everything that differences are still to be taken from."""
    for mark in published.values():
        if mark.table:
            yield mark.table, mark.version
        if mark.to_table:
            yield mark.to_table, mark.to_version


def arrived(mark: Published) -> Published:
    """The same when everything on the way is sent."""
    return structs.replace(mark, table=mark.to_table, version=mark.to_version, to_table="", to_version=0, sent=0)
