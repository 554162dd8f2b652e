"""Rules about Kafka: unreachable, refused, partitions without a leader. Pure: evidence in, causes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdc.model.run_state import State
from cdc.why.cause import Cause, Level
from cdc.why.evidence import Evidence, KafkaEvidence
from cdc.why.source_rules import unreached

UNANSWERED: Final = frozenset({"BrokerUnreachable", "OutcomeUnknown"})
"""Errors of a request that no broker has answered, or not in time."""

_NAMED_MAX: Final = 5
_OUTCOMES: Final = {
    "refused": "no program listens there",
    "silent": "no answer",
    "unreachable": "no route to it",
    "unresolved": "the name does not resolve",
}


def kafka_causes(evidence: Evidence) -> Iterator[Cause]:
    """Return the causes that Kafka shows."""
    kafka = evidence.kafka
    failure = kafka.failure
    if not kafka.answers and failure is not None:
        if failure.error == "BrokerRefused":
            yield Cause(
                code="broker-refused",
                part="kafka",
                says=f"Kafka refuses the request: {failure.message}",
                hint=failure.hint,
                command=failure.command,
                needs_operator=True,
            )
        else:
            yield unreached("kafka", "Kafka", failure, kafka.reach, "broker-unreachable")
    yield from _brokers_down(evidence)


def _brokers_down(evidence: Evidence) -> Iterator[Cause]:
    """Name partitions that lack their leader or replicas, and what that stops."""
    kafka = evidence.kafka
    gone = gone_brokers(kafka)
    if kafka.offline:
        yield Cause(
            code="partition-offline",
            part="kafka",
            says=f"{_count(kafka.offline)} no leader, so nothing can be written to or read from them",
            evidence=(*gone, *_named(kafka.offline)),
            hint="start the brokers that hold their replicas, and check the disks of the brokers",
        )
    failure = evidence.capture.failure
    fails = evidence.capture.state == State.WAITING and failure is not None and failure.error in UNANSWERED
    if kafka.short:
        yield Cause(
            code="partition-offline",
            part="kafka",
            says=f"{_count(kafka.short)} too few replicas in sync" + (", and capture waits for Kafka" if fails else ""),
            level=Level.STOPPED if fails else Level.RISK,
            evidence=(*gone, *_named(kafka.short)),
            hint="start the brokers that hold the other replicas"
            + ("; capture then continues by itself" if fails else "; the loss of one more broker may stop writes"),
        )
    elif gone and fails:
        yield Cause(
            code="partition-offline",
            part="kafka",
            says=f"{len(gone)} of {len(kafka.reach)} brokers do not answer, and the others do not take over",
            evidence=gone,
            hint="start them; capture then continues by itself",
        )


def gone_brokers(kafka: KafkaEvidence) -> tuple[str, ...]:
    """Return the brokers of ``kafka.bootstrap`` that accept no connection while others answer, as evidence."""
    return tuple(
        f"{one.address}: {_OUTCOMES[one.outcome]}" for one in kafka.reach if kafka.answers and one.outcome in _OUTCOMES
    )


def _count(partitions: tuple[str, ...]) -> str:
    return f"{len(partitions)} partition{' has' if len(partitions) == 1 else 's have'}"


def _named(partitions: tuple[str, ...]) -> tuple[str, ...]:
    more = len(partitions) - _NAMED_MAX
    return (*partitions[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else []))
