"""A look at a pipeline from outside: its daemon's HTTP, its slot, its progress in Kafka; whichever answers.

`outlook` says what a start of capture would find, so that a state which needs a person is seen while the daemon is
down. Changes nothing, fences nobody, and takes seconds at most when a side is unreachable.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SourceUnreachable, TailraceError, TopicMismatch
from cdc.kafka.consumer import LogReader
from cdc.lsn import Lsn
from cdc.model.leftout import LeftOut
from cdc.model.names import cuts_topic, progress_topic
from cdc.model.progress import Cut, Identity, Progress
from cdc.model.state import State
from cdc.model.tablefacts import DdlFinding
from cdc.model.timeline import Switch
from cdc.model.walreading import WalReading
from cdc.progress.catalog import recorded_catalog
from cdc.progress.impatient import Impatient
from cdc.progress.records import decode
from cdc.progress.restore import Restored, restore
from cdc.replication.catalog import SourceIdentity, current_wal, source_identity, tables_matching
from cdc.replication.connect import Connection, connect
from cdc.replication.eligibility import judge
from cdc.replication.pressure import wal_reading
from cdc.replication.publication import PublicationFacts, publication_facts
from cdc.replication.slot import SlotFacts, slot_facts
from cdc.replication.timeline import timeline_history
from cdc.startup.promoted import divergence

HTTP_TIMEOUT_S: Final = 2.0
KAFKA_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_IDENTITY_S: Final = 30.0  # it changes at a start of capture only
_NEWEST_CUTS: Final = 64  # offsets at the end of the cut index that surely hold a record, beside markers
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - nobody binds to it here


@dataclass(frozen=True, slots=True)
class SourceView:
    """What PostgreSQL says. `at_s` is of the clock handed in; `history` is of its timeline, None when it is unknown."""

    at_s: float
    identity: SourceIdentity
    server_version: str
    current_lsn: Lsn
    slot: SlotFacts
    publication: PublicationFacts | None
    wal: WalReading | None = None
    history: Sequence[Switch] | None = ()
    left_out: Sequence[LeftOut] = ()


@dataclass(frozen=True, slots=True)
class LogView:
    """What Kafka says. `progress` and `identity` are None when capture never ran; `last_ms` is when it last wrote.

    `ddl` are the findings that nobody has accepted.
    """

    progress: Progress | Cut | None
    identity: Identity | None
    last_ms: int | None
    ddl: Sequence[DdlFinding] = ()


@dataclass(slots=True)
class View:
    """Everything that answered; `missing` says of the rest why it did not."""

    daemon: dict[str, Any] | None = None
    source: SourceView | None = None
    log: LogView | None = None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def anything(self) -> bool:
        """Whether any side answered."""
        return not (self.daemon is None and self.source is None and self.log is None)


class Observer:
    """Looks as often as it is asked; keeps its connections. Close it."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sql: Connection | None = None
        self._reader: LogReader | None = None
        self._restored: tuple[float, Restored, Sequence[DdlFinding]] | None = None
        self._histories: dict[int, Sequence[Switch]] = {}
        self._threads = ThreadPoolExecutor(max_workers=3, thread_name_prefix="look")

    def look(self) -> View:
        """Ask the three sides at the same time."""
        view = View()
        sides: dict[str, Callable[[], Any]] = {"daemon": self._daemon, "source": self._source, "kafka": self._log}
        pending = {side: self._threads.submit(look) for side, look in sides.items()}
        for side, future in pending.items():
            try:
                setattr(view, "log" if side == "kafka" else side, future.result())
            except TailraceError as error:
                view.missing[side] = error.message
        return view

    def close(self) -> None:
        """End the connections."""
        self._threads.shutdown()
        if self._sql is not None:
            self._sql.close()
        if self._reader is not None:
            self._reader.close()

    def _daemon(self) -> dict[str, Any]:
        return ask_daemon(self._config.http.listen, self._config.name)

    def _source(self) -> SourceView:
        try:
            sql = self._sql = self._sql or connect(self._config.source.dsn, application_name="cdc status")
            identity = source_identity(sql)
            return SourceView(
                self._clock.monotonic_s(),
                identity,
                sql.info.parameter_status("server_version") or "",
                current_wal(sql),
                slot_facts(sql, self._config.slot),
                publication_facts(sql, self._config.publication),
                wal_reading(sql, self._config.slot, failover=self._config.source.failover),
                self._history(identity.timeline),
                tables_left_out(self._config, sql),
            )
        except TailraceError:
            if self._sql is not None:
                self._sql.close()
            self._sql = None
            raise

    def _history(self, timeline: int) -> Sequence[Switch] | None:
        if timeline not in self._histories:
            try:
                self._histories[timeline] = timeline_history(self._config.source.dsn, timeline)
            except TailraceError:
                return None
        return self._histories[timeline]

    def _log(self) -> LogView:
        self._reader = self._reader or LogReader(self._config.kafka, client_id="tailrace-status")
        reader, name = Impatient(self._reader, KAFKA_TIMEOUT_S), self._config.name
        partition = (cuts_topic(name), 0)
        try:
            low, high = reader.end_offsets([partition[0], progress_topic(name)])[partition]
        except TopicMismatch:
            return LogView(None, None, None)
        now_s = self._clock.monotonic_s()
        if self._restored is None or self._restored[1].identity is None or now_s - self._restored[0] > _IDENTITY_S:
            self._restored = (now_s, restore(reader, name), recorded_catalog(reader, name).unsettled)
        _, restored, ddl = self._restored
        # The newest cut says what progress says, and is read without reading all of the progress topic again.
        batches = reader.read({partition: max(low, high - _NEWEST_CUTS)}, {partition: high})
        newest = [record for batch in batches for record in batch if record[5] is not None][-1:]
        if not newest or newest[0][5] is None:
            return LogView(restored.progress, restored.identity, None, ddl)
        return LogView(decode(newest[0][5], Cut, partition[0]), restored.identity, newest[0][3], ddl)


def tables_left_out(config: Config, sql: Connection) -> Sequence[LeftOut]:
    """The tables that a start would leave out, judged by the catalog alone."""
    source = config.source
    tables = tables_matching(sql, source.tables, source.keyless, source.keys)
    facts = publication_facts(sql, config.publication)
    return judge(tables, facts, name=config.publication, create=source.create).left_out


def ask_daemon(listen: str, name: str) -> dict[str, Any]:
    """The document of /status. Raises SourceUnreachable with the reason when there is none to be had."""
    host, _, port = listen.rpartition(":")
    if not listen or port == "0":
        raise SourceUnreachable("http.listen names no port to ask")
    connection = http.client.HTTPConnection(_ANYWHERE.get(host, host).strip("[]"), int(port), timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        found = msgspec.json.decode(connection.getresponse().read(_ANSWER_BYTES_MAX), type=dict[str, Any])
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SourceUnreachable(f"no daemon answers on {listen}: {reason or type(error).__name__}") from error
    except msgspec.MsgspecError:
        raise SourceUnreachable(f"another program answers on {listen}") from None
    finally:
        connection.close()
    if found.get("name") != name:
        raise SourceUnreachable(f"the daemon on {listen} is that of {found.get('name')!r}")
    return found


def outlook(source: SourceView | None, log: LogView | None, *, publication: str) -> tuple[State, str] | None:
    """The state a start of capture would end in, if it needs a person: as `cdc.startup` judges, as far as seen."""
    if source is None:
        return None
    slot, progress = source.slot, log.progress if log is not None else None
    lost = (State.GAP, f"slot {slot.name} is lost ({slot.invalidation})") if slot.exists and not slot.usable else None
    if log is None or progress is None or log.identity is None:
        return lost
    recorded, end_lsn = log.identity, Lsn(progress.end_lsn)
    for fact in ("system_identifier", "database_oid"):
        was, found = getattr(recorded, fact), getattr(source.identity, fact)
        if was != found:
            return State.DIVERGED, f"the log belongs to a source with {fact} {was}, this one has {found}"
    if source.history is not None:
        now = source.identity.timeline
        problem = divergence(list(source.history), recorded=recorded.timeline, now=now, end_lsn=end_lsn)
        if problem is not None:
            return State.DIVERGED, problem.message
    if source.current_lsn < end_lsn:
        return State.DIVERGED, f"the log reaches {end_lsn}, the server's WAL only {source.current_lsn}"
    if lost is not None:
        return lost
    if not slot.exists:
        return State.GAP, f"slot {slot.name} is gone"
    if recorded.slot == slot.name and slot.confirmed_flush_lsn is not None and slot.confirmed_flush_lsn > end_lsn:
        return State.GAP, f"the slot stands at {slot.confirmed_flush_lsn}, the log only at {end_lsn}"
    if source.publication is None:
        return State.GAP, f"publication {publication} is gone"
    if recorded.publication == publication and source.publication.oid != recorded.publication_oid:
        return State.GAP, f"publication {publication} was dropped and made again"
    members = source.publication.tables
    again = [table for table, (oid, member) in recorded.tables.items() if members.get(oid, member) != member]
    return (State.GAP, f"{again[0]} was taken out of publication {publication} and put back") if again else None
