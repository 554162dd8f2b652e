"""The evidence that a diagnosis rests on, as collectors read it. Values only.

What could not be read is evidence as well: each part says whether it answered, and why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cdc.errors import TailraceError
from cdc.model.wal_alarm import WalRoom
from cdc.replication.slot import SlotFacts
from cdc.replication.source_activity import LockWait, Sender, Session, TableLock

Outcome = Literal["answers", "refused", "silent", "unresolved", "unreachable"]
"""What a TCP connection to an address led to.

answers      it was accepted
refused      the machine answers, and no program listens on the port
silent       no answer in time
unresolved   the name does not resolve
unreachable  the network has no route
"""


@dataclass(frozen=True, slots=True)
class Reach:
    """One attempt to open a TCP connection."""

    address: str
    outcome: Outcome
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """An error: the name of its class, and its texts."""

    error: str
    message: str
    hint: str = ""
    command: str = ""

    @classmethod
    def of(cls, error: TailraceError) -> Failure:
        """Return an error as evidence."""
        return cls(type(error).__name__, error.message, error.hint, error.command)

    @classmethod
    def parse(cls, document: Mapping[str, object] | None) -> Failure | None:
        """Return the error of a status document or of a report."""
        if not document:
            return None
        given = {key: str(document.get(key) or "") for key in ("error", "message", "hint", "command")}
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEvidence:
    """A snapshot of one table; rates are None without capture."""

    table: str
    state: str
    rows: int = 0
    rows_per_s: float | None = None
    eta_s: float | None = None
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureEvidence:
    """What capture reports of itself.

    Attributes:
        answers: whether /status was read; `why_not` is the reason.
        other_program: another program answers, or another pipeline.
        failing: capture answers with an error, as without free file descriptors.
        reach: the connection to http.listen.
        lag_s: how far the log may be behind.
        commit_s: duration of the newest Kafka transaction.
        sinks: with `cdc run --with-sinks`, the documents of the sinks that it supervises, by name.
    """

    answers: bool = False
    why_not: str = ""
    other_program: bool = False
    failing: bool = False
    reach: Reach | None = None
    state: str = ""
    reason: str = ""
    state_s: float = 0.0
    failure: Failure | None = None
    lag_s: float | None = None
    commit_s: float | None = None
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    snapshots: tuple[SnapshotEvidence, ...] = ()
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEvidence:
    """How a start of capture would end now: see `cdc.startup.judgement.Verdict`. Empty if it would run.

    `left_out` has the reasons for which selected tables are not captured.
    """

    rule: str = ""
    left_out: tuple[str, ...] = ()
    failure: Failure | None = None
    state: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEvidence:
    """The last stop of capture for an operator. `superseded`: capture has written since, maybe by another process."""

    state: str
    failure: Failure
    age_s: float = 0.0
    superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvidence:
    """What PostgreSQL shows.

    Attributes:
        reach: the hosts of source.dsn.
        holder: the session that reads the slot.
        writers: open write transactions, oldest first.
        lock_waits: sessions of capture that wait for a lock.
        wal_rate, confirmed_rate: bytes per second that the server writes, and that capture acknowledges.
        clock_s: how far the server's clock is ahead of ours.
        round_trip_s: of one trivial statement.
    """

    answers: bool = False
    failure: Failure | None = None
    reach: tuple[Reach, ...] = ()
    slot: SlotFacts | None = None
    room: WalRoom | None = None
    holder: Session | None = None
    sender: Sender | None = None
    writers: tuple[Session, ...] = ()
    locks: tuple[TableLock, ...] = ()
    lock_waits: tuple[LockWait, ...] = ()
    wal_rate: float | None = None
    confirmed_rate: float | None = None
    clock_s: float | None = None
    round_trip_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaEvidence:
    """What Kafka shows; `reach` are connections to the brokers of kafka.bootstrap.

    `offline` and `short` name partitions without a leader, and with too few replicas in sync.
    """

    answers: bool = False
    failure: Failure | None = None
    reach: tuple[Reach, ...] = ()
    broker_count: int = 0
    round_trip_s: float | None = None
    offline: tuple[str, ...] = ()
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvidence:
    """What the store of a sink shows; `problems` are the findings of its checkup, by their stable names.

    `reach`: attempts to connect to a store that does not answer, if its address is known.
    """

    answers: bool = False
    failure: Failure | None = None
    reach: tuple[Reach, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeEvidence:
    """What a lake shows. `view_s` has the seconds that each view took in its newest cut."""

    failure: Failure | None = None
    cut: int = 0
    age_s: float | None = None
    behind: Mapping[str, str] = field(default_factory=dict)
    view_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEvidence:
    """The state of a sink: what its workers reported, its lag, its blocked keys, and its store.

    Attributes:
        failure: why its state could not be read.
        workers: number of workers that reported lately; None if unknown.
        report_age_s: age of the newest report.
        every_s: how often a worker reports at least.
        cause: the error that its workers report.
        blocked: number of blocked keys; `blocked_tables` and `blocked_errors` are the distinct tables and classes.
    """

    name: str
    kind: str
    failure: Failure | None = None
    state: str = ""
    reason: str = ""
    cause: Failure | None = None
    workers: int | None = None
    ended: bool = False
    report_age_s: float | None = None
    every_s: float = 10.0
    lag_records: int | None = None
    lag_s: float | None = None
    busy: str = ""
    blocked: int = 0
    blocked_tables: tuple[str, ...] = ()
    blocked_errors: tuple[str, ...] = ()
    store: StoreEvidence | None = None
    lake: LakeEvidence | None = None

    @property
    def part(self) -> str:
        """The `part` of its causes."""
        return f"{'lake' if self.kind == 'warehouse' else 'sink'} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was read for one diagnosis.

    Attributes:
        unread: what could not be read -> why.
        transaction_alarm_s: `source.transaction_alarm_s`.
    """

    name: str
    slot: str
    listen: str = ""
    transaction_alarm_s: float = 600.0
    capture: CaptureEvidence = CaptureEvidence()
    start: StartEvidence = StartEvidence()
    stop: StopEvidence | None = None
    source: SourceEvidence = SourceEvidence()
    kafka: KafkaEvidence = KafkaEvidence()
    sinks: tuple[SinkEvidence, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


CAPTURE: Final = "capture"
SOURCE: Final = "PostgreSQL"
KAFKA: Final = "Kafka"
START: Final = "the next start"
STOP: Final = "the last stop"
