"""Defines the records of ``<name>.__cuts.<lake>``: the positions of a lake's views in their topics. Pure.

Each record is the cut of one Kafka transaction, in the form of capture's index, so that waiting clients read both in
the same way. It also has, for each published view, the table version in its topic. The events of a topic and its
position are committed together, so after a crash the next driver knows what is left to send. Views need an index of
their own, because capture treats every foreign record in its own topics as a fault.
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
"""State of a view whose topic is not as of the cut: a client that waits for it must continue to wait."""
COMPLETE: Final = "complete"


class Published(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The position of a view's topic.

    Attributes:
        table, version: what it is as of; "" and 0 until the first version is completely in it.
        table_id: of the newest of these Delta tables; a lake in another folder has others. "" in records of older
            releases.
        to_table, to_version: the version in progress, if it takes several transactions; "" and 0 otherwise.
        sent: how many differences of the version in progress are in the topic.
        by_key: whether these are in order of the key, or of the files; a lake may change its committer in between.
        key: columns of the key, which is permanent for a topic.
        topic_id, partition_count: of the topic; they reveal a recreated topic.
        schema_id: of the newest row.
    """

    table: str = ""
    version: int = 0
    table_id: str = ""
    to_table: str = ""
    to_version: int = 0
    sent: int = 0
    by_key: bool = False
    key: tuple[str, ...]
    topic_id: str
    partition_count: int
    schema_id: str = ""


class ViewCut(Cut, frozen=True, kw_only=True):
    """A record of the index.

    Attributes:
        ordinal: of the first event in a later transaction at the same `end_lsn`.
        published: view -> position of its topic.
        cut: cut of the lake.
    """

    ordinal: int = 0
    published: dict[str, Published] = {}
    cut: int = 0


class _Versioned(msgspec.Struct):
    version: int


def decoded(value: bytes, topic: str) -> ViewCut:
    """Decode a record of the index. Raises ProgressDamaged."""
    try:
        version = msgspec.json.decode(value, type=_Versioned).version
        if version != CUT_VERSION:
            raise ProgressDamaged.of_newer_release(f"a record in {topic}", version, CUT_VERSION, topic=topic)
        return msgspec.json.decode(value, type=ViewCut)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProgressDamaged(f"a record in {topic} is not readable", topic=topic) from None


def states(published: Mapping[str, Published], behind: Mapping[str, str]) -> dict[str, str]:
    """Return ``views.<view>`` -> whether its topic is as of the cut."""
    names = sorted({*published, *behind})
    return {f"{VIEWS}.{name}": BEHIND if name in behind else COMPLETE for name in names}


def pins(published: Mapping[str, Published]) -> Iterator[tuple[str, int]]:
    """Yield table and version of everything that differences will still be computed from."""
    for mark in published.values():
        if mark.table:
            yield mark.table, mark.version
        if mark.to_table:
            yield mark.to_table, mark.to_version


def arrived(mark: Published) -> Published:
    """Return the position once the version in progress is sent completely."""
    return structs.replace(
        mark, table=mark.to_table, version=mark.to_version, to_table="", to_version=0, sent=0, by_key=False
    )
