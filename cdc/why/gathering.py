"""Gathers the evidence: every collector in a thread of its own, all within one deadline.

A collector that hangs is left behind: what it would have read becomes "no answer", and its thread ends by its own
timeouts.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from msgspec import structs
from psycopg import Error as PostgresError
from psycopg.conninfo import make_conninfo

from cdc.clock import Clock
from cdc.config.credential import in_time, with_text
from cdc.config.settings import Applied, Config, Warehouse
from cdc.config.sink_kinds import kind_of
from cdc.errors import TailraceError
from cdc.telemetry import log
from cdc.why.evidence import (
    CAPTURE,
    KAFKA,
    SOURCE,
    START,
    STOP,
    CaptureEvidence,
    Evidence,
    Failure,
    KafkaEvidence,
    LakeEvidence,
    SinkEvidence,
    SourceEvidence,
    StartEvidence,
    StoreEvidence,
)
from cdc.why.pipeline_reading import KAFKA_S, Status, read_capture, read_kafka, read_start, read_stop
from cdc.why.reach import reach_brokers, reach_source
from cdc.why.sink_reading import read_lake, read_sink, read_store, with_supervisor
from cdc.why.source_reading import read_source

WITHIN_S: Final = 8.0
"""For everything that is read at once; an operator waits for it."""

_CONNECT_S: Final = "4"
_CREDENTIAL_S: Final = 5.0  # for a command that gives the password; capture gives it longer

_Jobs = dict[str, Callable[[], Any]]


def gather(
    config: Config, clock: Clock, *, status: Callable[[], Status] | None = None, within_s: float = WITHIN_S
) -> Evidence:
    """Return the evidence. `status`: see `cdc.why.pipeline_reading.read_capture`. Never raises a TailraceError."""
    impatient = _impatient(config)
    jobs: _Jobs = {
        CAPTURE: lambda: read_capture(config, clock, status),
        START: lambda: read_start(impatient),
        STOP: lambda: read_stop(config, clock),
        SOURCE: lambda: read_source(impatient, clock),
        KAFKA: lambda: read_kafka(config, clock),
    }
    for name, settings in config.sinks.items():
        jobs[f"sink {name}"] = partial(read_sink, config, name, clock)
        if isinstance(settings, Applied):
            jobs[f"store of {name}"] = partial(read_store, config, name, clock)
        elif isinstance(settings, Warehouse):
            jobs[f"lake {name}"] = partial(read_lake, config, name, clock)
    found, unread = _run(jobs, clock, within_s)
    return _assembled(config, clock, found, unread)


def _run(jobs: _Jobs, clock: Clock, within_s: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Run all jobs; return the results, and why the others have none."""
    done: queue.SimpleQueue[tuple[str, Any, str]] = queue.SimpleQueue()
    for what, job in jobs.items():
        threading.Thread(target=_work, args=(what, job, done), name=f"why {what}", daemon=True).start()
    found: dict[str, Any] = {}
    unread: dict[str, str] = {}
    ends_s = clock.monotonic_s() + within_s
    while len(found) + len(unread) < len(jobs):
        try:
            what, result, why = done.get(timeout=max(0.0, ends_s - clock.monotonic_s()))
        except queue.Empty:
            break
        if why:
            unread[what] = why
        else:
            found[what] = result
    return found, unread | {
        what: f"no answer within {within_s:.0f} s" for what in jobs if what not in found and what not in unread
    }


def _work(what: str, job: Callable[[], Any], done: queue.SimpleQueue[tuple[str, Any, str]]) -> None:
    try:
        done.put((what, job(), ""))
    except TailraceError as error:
        done.put((what, None, error.message))
    except Exception as error:  # noqa: BLE001 - a collector that fails must not keep the others from being shown
        log.get().error("why_collector_failed", part=what, error=log.origin(error))
        done.put((what, None, f"a bug in this command: {type(error).__name__}"))


def _assembled(config: Config, clock: Clock, found: Mapping[str, Any], unread: dict[str, str]) -> Evidence:
    capture: CaptureEvidence = found.get(CAPTURE) or CaptureEvidence(why_not=unread.get(CAPTURE, ""))
    source: SourceEvidence = found.get(SOURCE) or SourceEvidence(
        failure=Failure("SourceUnreachable", f"PostgreSQL gave {unread.get(SOURCE, 'no answer')}"),
        reach=reach_source(config.source.dsn, clock),
    )
    kafka: KafkaEvidence = found.get(KAFKA) or KafkaEvidence(
        failure=Failure("BrokerUnreachable", f"Kafka gave {unread.get(KAFKA, 'no answer')}"),
        reach=reach_brokers(config.kafka.bootstrap, clock),
    )
    if not kafka.answers and STOP in found:
        # Another collector has read Kafka meanwhile, so it answers, only not in time.
        kafka = replace(kafka, answers=True, failure=None, round_trip_s=KAFKA_S)
    sinks = tuple(_sink(config, name, capture, found, unread) for name in sorted(config.sinks))
    for what, failure in (
        (SOURCE, None if source.answers else source.failure),
        (KAFKA, None if kafka.answers else kafka.failure),
        *((one.part, one.failure) for one in sinks),
        *((f"store of {one.name}", one.store.failure) for one in sinks if one.store is not None),
        *((f"lake {one.name}", one.lake.failure) for one in sinks if one.lake is not None),
    ):
        if failure is not None:
            unread.setdefault(what, failure.message)
    if not (source.answers and kafka.answers):
        for what in (START, STOP):
            unread.pop(what, None)  # the server that does not answer is named
    if not kafka.answers:
        for name in capture.sinks:
            unread.pop(f"sink {name}", None)  # capture reports it, and Kafka is named
    if not capture.answers and capture.why_not:
        unread.setdefault(CAPTURE, capture.why_not)
    return Evidence(
        name=config.name,
        slot=config.slot,
        listen=config.http.listen,
        transaction_alarm_s=config.source.transaction_alarm_s,
        capture=capture,
        start=found.get(START) or StartEvidence(),
        stop=found.get(STOP),
        source=source,
        kafka=kafka,
        sinks=sinks,
        unread=unread,
    )


def _sink(
    config: Config, name: str, capture: CaptureEvidence, found: Mapping[str, Any], unread: Mapping[str, str]
) -> SinkEvidence:
    settings = config.sinks[name]
    sink: SinkEvidence = found.get(f"sink {name}") or SinkEvidence(
        name=name, kind=kind_of(settings), failure=Failure("BrokerUnreachable", unread.get(f"sink {name}", ""))
    )
    if name in capture.sinks:
        sink = with_supervisor(sink, capture.sinks[name])
    if isinstance(settings, Applied):
        silent = Failure("SinkUnreachable", f"the store gave {unread.get(f'store of {name}', 'no answer')}")
        return replace(sink, store=found.get(f"store of {name}") or StoreEvidence(failure=silent))
    lost = Failure("LakeUnready", f"the lake gave {unread.get(f'lake {name}', 'no answer')}")
    return replace(sink, lake=found.get(f"lake {name}") or LakeEvidence(failure=lost))


def _impatient(config: Config) -> Config:
    """Return the configuration with a short time to connect to PostgreSQL; capture itself waits longer."""
    try:
        dsn = make_conninfo(config.source.dsn.reveal(), connect_timeout=_CONNECT_S)
    except PostgresError:
        return config  # the reader reports what is wrong with it
    impatient = in_time(with_text(config.source.dsn, dsn), _CREDENTIAL_S)
    return structs.replace(config, source=structs.replace(config.source, dsn=impatient))
