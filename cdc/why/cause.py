"""Declares every cause that `cdc why` can name, root causes first. Pure.

The order of `KINDS` is the order in which causes of the same level are printed: a cause stands before its consequences.
docs/howto/why.md lists the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from cdc.command_text import with_pipeline


class Level(IntEnum):
    """How much a cause matters: nothing flows, it flows too slowly, or it may become a problem."""

    STOPPED = 0
    SLOW = 1
    RISK = 2


class Kind(NamedTuple):
    """A kind of cause: its stable code, its title, and the page that explains it."""

    code: str
    title: str
    page: str


_STATES: Final = "docs/howto/states.md"
_WAL: Final = "docs/howto/wal-pressure.md"
_SINKS: Final = "docs/howto/sinks.md"
_SNAPSHOTS: Final = "docs/howto/snapshots.md"
_VIEWS: Final = "docs/howto/views.md"
_TLS: Final = "docs/howto/tls-and-sasl.md"

KINDS: Final[tuple[Kind, ...]] = (
    Kind("name-unresolved", "A host name does not resolve", _STATES),
    Kind("network-silent", "A host does not answer: network, firewall, or a frozen machine", _STATES),
    Kind("machine-exhausted", "Capture gets no file, thread or memory from its machine", _STATES),
    Kind("credential-unavailable", "A file or command gives no password or token", "docs/howto/configuration.md"),
    Kind("source-disk-full", "The disk of PostgreSQL is full", _STATES),
    Kind("source-unreachable", "PostgreSQL does not run, or accepts no connection", _STATES),
    Kind("source-login", "PostgreSQL refuses the login: password, pg_hba.conf, role, database, TLS", _TLS),
    Kind("broker-unreachable", "Kafka does not run, or does not answer", _STATES),
    Kind("broker-refused", "Kafka refuses the credentials, or a right is missing", _TLS),
    Kind("partition-offline", "Partitions have no leader, or too few replicas", _STATES),
    Kind("source-settings", "A setting or the role of the server prevents capture", _STATES),
    Kind("source-pooler", "A connection pooler stands between capture and PostgreSQL", _STATES),
    Kind("source-rights", "The role of capture lacks a right", _STATES),
    Kind("source-diverged", "The database has another history than the log", "docs/howto/failover.md"),
    Kind("log-damaged", "The topics are not what capture wrote", "docs/howto/audit.md"),
    Kind("progress-damaged", "The recorded position is missing or cannot be read", _STATES),
    Kind("topic-missing", "A topic does not exist", _STATES),
    Kind("topic-changed", "A topic was recreated, or has other settings", _STATES),
    Kind("broker-settings", "A setting or the size of the cluster prevents capture", _STATES),
    Kind("publication-changed", "The publication was dropped, recreated, or lost a table", _STATES),
    Kind("publication-unfit", "The publication does not exist, or leaves out changes", _STATES),
    Kind("slot-lost", "The slot was dropped or invalidated", _WAL),
    Kind("slot-moved", "Another program advanced or recreated the slot", _STATES),
    Kind("slot-unfit", "The slot cannot be used or created", _STATES),
    Kind("tables-unfit", "No table can be captured", "docs/howto/new-tables.md"),
    Kind("format-changed", "The format does not fit the records in the topics", "docs/howto/formats.md"),
    Kind("row-refused", "A row cannot be published", "docs/howto/large-values.md"),
    Kind("stream-poisoned", "The stream from PostgreSQL cannot be decoded", _STATES),
    Kind("capture-fenced", "Another producer took over", _STATES),
    Kind("capture-refused", "Capture stopped for another reason that its error names", _STATES),
    Kind("registry-unreachable", "The schema registry does not answer", _STATES),
    Kind("registry-refused", "The schema registry refuses the request", "docs/howto/formats.md"),
    Kind("disk-full", "The temporary folder is full", "docs/howto/truncate.md"),
    Kind("prepared-transaction", "A prepared transaction is not ended", _WAL),
    Kind("long-transaction", "A transaction has been open for long", _WAL),
    Kind("table-locked", "A session locks a table that must be read", "docs/howto/large-values.md"),
    Kind("reselect-waits", "Capture waits to read a large value from the table", "docs/howto/large-values.md"),
    Kind("slot-held", "Another process reads the slot", _STATES),
    Kind("port-taken", "Another program uses the port of capture", _STATES),
    Kind("capture-frozen", "The process of capture does not respond", _STATES),
    Kind("capture-down", "Capture does not run", _STATES),
    Kind("capture-starting", "Capture has just started", _STATES),
    Kind("broker-slow", "Kafka answers slowly", _STATES),
    Kind("capture-behind", "Capture reads a backlog", _STATES),
    Kind("snapshot-paused", "A snapshot is paused", _SNAPSHOTS),
    Kind("snapshot-throttled", "A setting, or the load guard, slows a snapshot down", _SNAPSHOTS),
    Kind("snapshot-waits", "A snapshot waits", _SNAPSHOTS),
    Kind("sink-paused", "An operator paused the sink", _SINKS),
    Kind("sink-busy", "The sink is being rebuilt or repaired", _SINKS),
    Kind("store-unreachable", "The store of a sink does not answer", _SINKS),
    Kind("store-full", "The store of a sink is full, and rejects writes", _SINKS),
    Kind("store-rejects", "The store of a sink answers, but rejects writes", _SINKS),
    Kind("store-refused", "The store refuses the login, or a right is missing", _SINKS),
    Kind("sink-gap", "Records that the sink needs are gone from the log", _SINKS),
    Kind("sink-stale", "The sink belongs to another history of the log", _SINKS),
    Kind("sink-fenced", "Another process runs the sink", _SINKS),
    Kind(
        "dead-letters-full", "A partition has too many blocked keys, so the sink stopped", "docs/howto/dead-letters.md"
    ),
    Kind("sink-stopped", "The sink stopped with an error", _SINKS),
    Kind("lake-unready", "Storage, Java or Spark of a lake are not available", "docs/howto/lake.md"),
    Kind("sink-stuck", "A worker of the sink does not respond", _SINKS),
    Kind("sink-down", "No worker of the sink runs", _SINKS),
    Kind("sink-waits", "The sink waits", _SINKS),
    Kind("key-blocked", "The store refused records, so later records of their keys wait", "docs/howto/dead-letters.md"),
    Kind("view-behind", "A view cannot be computed", _VIEWS),
    Kind("view-slow", "A view takes most of the time of a cut", "docs/howto/views-time.md"),
    Kind("sink-behind", "The sink applies a backlog", _SINKS),
    Kind("wal-grows", "WAL piles up for the slot", _WAL),
    Kind("clock-differs", "Clocks differ", _STATES),
    Kind("lag-unexplained", "Something lags, and no cause was found", _STATES),
)

_RANK: Final = {kind.code: index for index, kind in enumerate(KINDS)}
_BY_CODE: Final = {kind.code: kind for kind in KINDS}
EVIDENCE_MAX: Final = 8
"""Facts of one cause that are kept: causes found by several rules are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause.

    Attributes:
        code: of `KINDS`.
        part: ``source``, ``capture``, ``kafka``, ``sink NAME``, ``lake NAME`` or ``snapshot TABLE``.
        says: one sentence that names the cause.
        evidence: short facts, with numbers and units; no row values, no secrets.
        command: a statement or a command that helps; may be empty.
        needs_operator: it does not end by itself, and capture or a sink has stopped because of it.
    """

    code: str
    part: str
    says: str
    level: Level = Level.STOPPED
    evidence: tuple[str, ...] = ()
    hint: str = ""
    command: str = ""
    needs_operator: bool = False

    def __post_init__(self) -> None:
        """Suggest a command for the pipeline of this process."""
        object.__setattr__(self, "command", with_pipeline(self.command))

    @property
    def page(self) -> str:
        """The page that explains it."""
        return _BY_CODE[self.code].page

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "code": self.code,
            "part": self.part,
            "level": self.level.name.lower(),
            "says": self.says,
            "evidence": list(self.evidence),
            "hint": self.hint,
            "command": self.command,
            "page": self.page,
            "needs_operator": self.needs_operator,
        }


def ranked(causes: Iterable[Cause]) -> list[Cause]:
    """Return the causes, each code and part once, root causes first."""
    merged: dict[tuple[str, str], Cause] = {}
    for one in causes:
        known = merged.get((one.code, one.part))
        merged[one.code, one.part] = one if known is None else _merged(known, one)
    return sorted(merged.values(), key=lambda one: (one.level, _RANK[one.code], one.part))


def _merged(first: Cause, other: Cause) -> Cause:
    facts = tuple(dict.fromkeys((*first.evidence, *other.evidence)))
    return replace(
        first,
        level=min(first.level, other.level),
        evidence=facts[:EVIDENCE_MAX],
        hint=first.hint or other.hint,
        command=first.command or other.command,
        needs_operator=first.needs_operator or other.needs_operator,
    )
