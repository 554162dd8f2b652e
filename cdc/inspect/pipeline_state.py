"""Reads a pipeline's state from outside: its daemon over HTTP, its slot, and its progress in Kafka.

Each of the three may be unreachable. `PipelineView.verdict` is how a start of capture would end now
(`cdc.startup.judgement`), so a state that needs an operator shows while the daemon is down. Changes nothing and
fences no producer. An unreachable server takes seconds.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from cdc.clock import Clock
from cdc.config.pipelines import HEADER
from cdc.config.settings import Config, Http
from cdc.cutindex.index_reader import cuts_between
from cdc.errors import SourceUnreachable, TailraceError, TopicMismatch
from cdc.inspect.endpoint_probe import reachable
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.left_out import LeftOut
from cdc.model.progress_record import Cut, Identity, Progress
from cdc.model.table_facts import DdlFinding
from cdc.model.topic_names import cuts_topic, progress_topic
from cdc.model.wal_reading import WalReading
from cdc.model.weak_setting import WeakSetting
from cdc.progress.bounded_reader import BoundedReader
from cdc.progress.recorded_catalog import recorded_catalog
from cdc.progress.restore import Restored, recorded_position, restore
from cdc.replication.catalog_queries import SourceIdentity, current_wal, source_identity
from cdc.replication.connect import Connection, connect
from cdc.replication.publication import PublicationFacts, publication_facts
from cdc.replication.slot import SlotFacts, slot_facts
from cdc.replication.wal_pressure import wal_reading
from cdc.startup.judgement import Verdict
from cdc.startup.start_facts import StartForecast, forecast_start

HTTP_TIMEOUT_S: Final = 2.0
ACTION_TIMEOUT_S: Final = 30.0  # an action is recorded in Kafka before it is answered
KAFKA_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_VERDICT_S: Final = 10.0  # a verdict takes a dozen queries and a few requests to Kafka
_IDENTITY_S: Final = 30.0  # the identity changes only when capture starts
_NEWEST_CUTS: Final = 64  # this many offsets at the end of the cut index always have a record besides markers


@dataclass(frozen=True, slots=True)
class SourceView:
    """The state in PostgreSQL. `at_s` is a time of the observer's clock."""

    at_s: float
    identity: SourceIdentity
    server_version: str
    current_lsn: Lsn
    slot: SlotFacts
    publication: PublicationFacts | None
    wal: WalReading | None = None


@dataclass(frozen=True, slots=True)
class LogView:
    """The state in Kafka. `progress` and `identity` are None when capture never ran; `last_ms` is when it last wrote.

    `ddl`: the open DDL findings.
    """

    progress: Progress | Cut | None
    identity: Identity | None
    last_ms: int | None
    ddl: Sequence[DdlFinding] = ()


@dataclass(slots=True)
class PipelineView:
    """The answers of daemon, source and log; `missing` has the reason for each that did not answer.

    `verdict` is how a start would end now; `weak` are weak settings of the topics that exist. `left_out` are the tables
    that a start would leave out; None when the source cannot be read.
    """

    daemon: dict[str, Any] | None = None
    source: SourceView | None = None
    log: LogView | None = None
    missing: dict[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None
    weak: Sequence[WeakSetting] = ()
    left_out: Sequence[LeftOut] | None = None

    @property
    def anything(self) -> bool:
        """Whether anything answered."""
        return not (self.daemon is None and self.source is None and self.log is None)


class PipelineObserver:
    """Reads the state on each `read`; keeps its connections until `close`."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sql: Connection | None = None
        self._reader: LogReader | None = None
        self._restored: tuple[float, Restored, Sequence[DdlFinding]] | None = None
        self._foreseen: tuple[float, StartForecast] | None = None
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="observe")

    def read(self) -> PipelineView:
        """Read daemon, source and log, and judge a start, all in parallel."""
        view = PipelineView()
        judging = self._threads.submit(self._foresee)
        readers: dict[str, Callable[[], Any]] = {"daemon": self._daemon, "source": self._source, "kafka": self._log}
        pending = {side: self._threads.submit(reader) for side, reader in readers.items()}
        for side, future in pending.items():
            try:
                setattr(view, "log" if side == "kafka" else side, future.result())
            except TailraceError as error:
                view.missing[side] = error.message
        forecast = judging.result()
        view.verdict, view.weak, view.left_out = forecast.verdict, forecast.weak, forecast.left_out
        return view

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        if self._sql is not None:
            self._sql.close()
        if self._reader is not None:
            self._reader.close()

    def _daemon(self) -> dict[str, Any]:
        return ask_daemon(self._config.http, self._config.name)

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
            )
        except TailraceError:
            if self._sql is not None:
                self._sql.close()
            self._sql = None
            raise

    def _foresee(self) -> StartForecast:
        now_s = self._clock.monotonic_s()
        if self._foreseen is None or now_s - self._foreseen[0] > _VERDICT_S:
            self._foreseen = (now_s, forecast_start(self._config, application_name="cdc status"))
        return self._foreseen[1]

    def _log(self) -> LogView:
        self._reader = self._reader or LogReader(self._config.kafka, client_id="tailrace-status")
        reader, name = BoundedReader(self._reader, KAFKA_TIMEOUT_S), self._config.name
        partition = (cuts_topic(name), 0)
        try:
            low, high = reader.end_offsets([partition[0], progress_topic(name)])[partition]
        except TopicMismatch:
            return self._without_cuts(reader)
        now_s = self._clock.monotonic_s()
        if self._restored is None or self._restored[1].identity is None or now_s - self._restored[0] > _IDENTITY_S:
            self._restored = (now_s, restore(reader, name), recorded_catalog(reader, name).unsettled)
        _, restored, ddl = self._restored
        # The newest cut says what progress says, and is read without reading all of the progress topic again.
        newest = list(cuts_between(reader, partition[0], max(low, high - _NEWEST_CUTS), high))[-1:]
        if not newest:
            return LogView(restored.progress, restored.identity, None, ddl)
        return LogView(newest[0].cut, restored.identity, newest[0].written_ms, ddl)

    def _without_cuts(self, reader: BoundedReader) -> LogView:
        """Read the log when a topic is missing: before the first start, or after it was deleted."""
        try:
            restored = recorded_position(reader, self._config.name)
        except TopicMismatch:
            return LogView(None, None, None)
        return LogView(restored.progress, restored.identity, None)


def _trusting(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts this certificate, whatever name it has. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file need not have the root
    context.load_verify_locations(certificate)
    return context


def ask_daemon(http_settings: Http, name: str, path: str = "/status") -> dict[str, Any]:
    """Return the document of a path that names the pipeline. Raises SourceUnreachable with the reason without one."""
    code, found = _asked(http_settings, "GET", path, name)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR and "name" not in found:
        said = found.get("error") or f"HTTP {code}"
        raise SourceUnreachable(f"the daemon on {http_settings.listen} cannot answer ({said})", failing=True)
    if code == HTTPStatus.NOT_FOUND and "name" not in found:
        said = found.get("error") or f"HTTP {code}"
        raise SourceUnreachable(f"the daemon on {http_settings.listen} has another file: {said}", other_program=True)
    if found.get("name") != name:
        raise SourceUnreachable(
            f"the daemon on {http_settings.listen} belongs to {found.get('name')!r}", other_program=True
        )
    return found


def post_action(http_settings: Http, name: str, action: str) -> tuple[int, dict[str, Any]]:
    """Let the daemon of the pipeline perform an action. Returns code and document of its answer.

    Raises SourceUnreachable with the reason if it does not answer.
    """
    ask_daemon(http_settings, name)  # another pipeline's daemon must not act
    token = http_settings.token.reveal() if http_settings.token is not None else ""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = msgspec.json.encode({"action": action})
    return _asked(http_settings, "POST", "/actions", name, body=body, headers=headers, timeout_s=ACTION_TIMEOUT_S)


def _asked(
    http_settings: Http,
    method: str,
    path: str,
    name: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = HTTP_TIMEOUT_S,
) -> tuple[int, dict[str, Any]]:
    listen, address = http_settings.listen, reachable(http_settings.listen)
    if address is None:
        raise SourceUnreachable("http.listen has no port to connect to")
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        if http_settings.tls_certificate:
            tls = _trusting(http_settings.tls_certificate)
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
        connection.request(method, path, body, {HEADER: name, **(headers or {})})
        answer = connection.getresponse()
        found = msgspec.json.decode(answer.read(_ANSWER_BYTES_MAX), type=dict[str, Any])
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SourceUnreachable(f"no daemon answers on {listen}: {reason or type(error).__name__}") from error
    except msgspec.MsgspecError:
        raise SourceUnreachable(f"another program answers on {listen}", other_program=True) from None
    finally:
        connection.close()
    return answer.status, found
