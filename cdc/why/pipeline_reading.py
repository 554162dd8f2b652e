"""Reads the evidence of capture, of its next start, and of Kafka. Never raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SourceUnreachable, TailraceError, TopicMismatch
from cdc.inspect.endpoint_probe import reachable
from cdc.inspect.pipeline_state import ask_daemon
from cdc.kafka.log_reader import LogReader
from cdc.kafka.partition_state import cluster_state
from cdc.model.run_state import State
from cdc.model.stop_record import decode, stop_key
from cdc.model.topic_names import progress_topic
from cdc.progress.bounded_reader import BoundedReader
from cdc.progress.record_format import identity_key, progress_key, sentinel_key
from cdc.startup.start_facts import forecast_start
from cdc.why.evidence import CaptureEvidence, Failure, KafkaEvidence, SnapshotEvidence, StartEvidence, StopEvidence
from cdc.why.reach import reach, reach_brokers

KAFKA_S: Final = 4.0

FENCED_SHOWN_S: Final = 3600.0
"""A process that was fenced is shown for this time: an operator who finds it ended asks why."""

Status = Mapping[str, Any]
"""The document of /status."""


def read_capture(config: Config, clock: Clock, status: Callable[[], Status] | None = None) -> CaptureEvidence:
    """Return what capture reports. `status`: returns /status of this process, if this process is capture."""
    if status is not None:
        return parse_status(status())
    address = reachable(config.http.listen)
    if address is None:
        return CaptureEvidence(why_not="http.listen has no port to connect to")
    try:
        return parse_status(ask_daemon(config.http, config.name))
    except SourceUnreachable as error:
        return CaptureEvidence(
            why_not=error.message,
            other_program=bool(error.facts.get("other_program")),
            failing=bool(error.facts.get("failing")),
            reach=reach(*address, clock),
        )


def parse_status(found: Status) -> CaptureEvidence:
    """Return the evidence in a document of /status."""
    return CaptureEvidence(
        answers=True,
        state=str(found.get("state") or ""),
        reason=str(found.get("reason") or ""),
        state_s=float(found.get("state_seconds") or 0.0),
        failure=Failure.parse(found.get("error")),
        lag_s=found.get("lag_seconds"),
        commit_s=found.get("last_commit_seconds"),
        rows_per_s=found.get("rows_per_second"),
        bytes_per_s=found.get("bytes_per_second"),
        sinks={str(name): one for name, one in (found.get("sinks") or {}).items()},
        snapshots=tuple(
            SnapshotEvidence(
                table=str(one["table"]),
                state=str(one["state"]),
                rows=int(one.get("rows") or 0),
                rows_per_s=one.get("rows_per_second"),
                eta_s=one.get("eta_seconds"),
                waits_for=tuple(map(str, one.get("waits_for") or ())),
            )
            for one in found.get("snapshots") or ()
        ),
    )


def read_start(config: Config) -> StartEvidence:
    """Return how a start would end now."""
    forecast = forecast_start(config, application_name="cdc why")
    verdict, left_out = forecast.verdict, forecast.left_out
    if verdict.error is None:
        return StartEvidence()
    return StartEvidence(
        rule=verdict.rule,
        left_out=tuple(one.reason for one in left_out or ()),
        failure=Failure.of(verdict.error),
        state=verdict.state.value if verdict.state is not None else "",
        stops=verdict.stops,
    )


def read_stop(config: Config, clock: Clock) -> StopEvidence | None:
    """Return why capture stopped; None if it did not stop for an operator, or has written something since.

    A process that was fenced is returned for a while although another one has written since.

    Raises BrokerUnreachable, BrokerRefused.
    """
    name, topic = config.name, progress_topic(config.name)
    keys = (stop_key(name), progress_key(name), identity_key(name), sentinel_key(name))
    with LogReader(config.kafka, client_id="tailrace-why") as reader:
        try:
            newest = BoundedReader(reader, KAFKA_S).last_records(topic, keys=keys)
        except TopicMismatch:
            return None
    offset, value = newest.pop(stop_key(name), (-1, b""))
    record = decode(value)
    if record is None:
        return None
    superseded = any(written > offset for written, _ in newest.values())
    age_s = max(0.0, clock.wall_s() - record.at_ms / 1000)
    if superseded and (record.state != State.FENCED or age_s > FENCED_SHOWN_S):
        return None
    failure = Failure(record.error, record.message, record.hint, record.command)
    return StopEvidence(state=record.state, failure=failure, age_s=age_s, superseded=superseded)


def read_kafka(config: Config, clock: Clock) -> KafkaEvidence:
    """Return what Kafka shows, or why it does not answer."""
    try:
        found = cluster_state(config.kafka, f"{config.name}.", timeout_s=KAFKA_S)
    except TailraceError as error:
        return KafkaEvidence(failure=Failure.of(error), reach=reach_brokers(config.kafka.bootstrap, clock))
    return KafkaEvidence(
        answers=True,
        reach=reach_brokers(config.kafka.bootstrap, clock),
        broker_count=found.broker_count,
        round_trip_s=found.round_trip_s,
        offline=tuple(one.name for one in found.partitions if not one.has_leader),
        short=tuple(
            f"{one.name}: {one.in_sync} of {one.replicas}"
            for one in found.partitions
            if one.has_leader and one.in_sync < one.replicas
        ),
    )
