"""Translates errors of the Kafka client into our error tree, by error code alone.

Every call into the client goes through `attempt` or `guarded`. How callers react to an error is not decided here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from cdc.config.secret import Secret
from cdc.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnreachable,
    InvariantError,
    OutcomeUnknown,
    ProducerFenced,
    RowRefused,
    TailraceError,
    TopicMismatch,
    TopicMissing,
)
from cdc.kafka.client_events import REFUSING, REJECTING, ClientEvents
from cdc.kafka.client_options import option_error

T = TypeVar("T")

# Symbolic names as `KafkaError.name()` returns them; a leading underscore marks librdkafka's own, the others come from
# the broker.
FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
MISNAMED: Final = frozenset({"TOPIC_EXCEPTION"})  # an illegal name, or one that collides with another topic's
TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"})
TRUNCATED: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"})
UNREACHABLE: Final = frozenset(
    {
        # A leader moves or a topic is new: retriable by protocol, but the client marks only produce requests so.
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "_ALL_BROKERS_DOWN",
        "_TRANSPORT",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_DESTROY",
        "_WAIT_COORD",
        "_WAIT_CACHE",
        "_UNKNOWN_BROKER",
        "_ISR_INSUFF",
        "UNKNOWN",
        "NETWORK_EXCEPTION",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REPLICA_NOT_AVAILABLE",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "NOT_CONTROLLER",
        "CONCURRENT_TRANSACTIONS",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        "THROTTLING_QUOTA_EXCEEDED",
        "LISTENER_NOT_FOUND",
        # The group, the leader or the registration of the broker changes; the same request succeeds a moment later.
        "UNSTABLE_OFFSET_COMMIT",
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "MEMBER_ID_REQUIRED",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "INCONSISTENT_TOPIC_ID",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "STALE_CTRL_EPOCH",
        "STALE_BROKER_EPOCH",
        "REASSIGNMENT_IN_PROGRESS",
        "UNKNOWN_CONTROLLER_ID",
        "REBOOTSTRAP_REQUIRED",
        "TRANSACTION_COORDINATOR_FENCED",
        # A broker could not read the answer of another broker, or a response was truncated.
        "INVALID_MSG",
        "_BAD_MSG",
        "_UNDERFLOW",
        "_PARTIAL",
        # States of the client that a new client or a moment ends, for example after the process slept for too long.
        "_MAX_POLL_EXCEEDED",
        "_ASSIGNMENT_LOST",
        "_NO_OFFSET",
        "_IN_PROGRESS",
        "_DESTROY_BROKER",
        "_NODE_UPDATE",
        "_OUTDATED",
        "_QUEUE_FULL",
        "_RETRY",
        "_INTR",
        "_FAIL",
        "_CRIT_SYS_RESOURCE",
    }
)
# Broker and client disagree about the state of the transaction: a new producer reads the outcome back.
UNCLEAR: Final = frozenset(
    {
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_PRODUCER_ID",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "DUPLICATE_SEQUENCE_NUMBER",
        "TRANSACTION_ABORTABLE",
        "_INCONSISTENT",
        "_GAPLESS_GUARANTEE",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
    }
)
MISUSED: Final = frozenset({"_STATE", "_CONFLICT", "_PREV_IN_PROGRESS", "_INVALID_ARG", "_NOT_CONFIGURED"})
REFUSED: Final = {
    "_AUTHENTICATION": "check kafka.options.sasl.mechanism, sasl.username and sasl.password",
    "SASL_AUTHENTICATION_FAILED": "check kafka.options.sasl.mechanism, sasl.username and sasl.password",
    "UNSUPPORTED_SASL_MECHANISM": "set kafka.options.sasl.mechanism to one that the broker supports",
    "ILLEGAL_SASL_STATE": "set kafka.options.security.protocol to the protocol of the listener",
    "_SSL": "check kafka.options.security.protocol, ssl.ca.location and the name and dates in the broker's certificate",
    "SECURITY_DISABLED": "the broker has no authorizer; remove the settings that need one",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow Write and Describe on the transactional id; "
    "capture has several with one prefix, see docs/howto/tls-and-sasl.md",
    "TOPIC_AUTHORIZATION_FAILED": "allow Read, Write, Describe, DescribeConfigs and Create on the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "allow Create and DescribeConfigs on the cluster, or create the topics by hand",
    "GROUP_AUTHORIZATION_FAILED": "allow Read on the group",
    "INVALID_TRANSACTION_TIMEOUT": "raise the broker's transaction.max.timeout.ms, or lower "
    "kafka.options.transaction.timeout.ms",
    "INVALID_TIMESTAMP": "the clock of this machine is ahead of the broker's clock: correct it, or set "
    "message.timestamp.type=LogAppendTime for the topic",
    "INVALID_REPLICATION_FACTOR": "set kafka.replication_factor to at most the number of brokers",
    "INVALID_PARTITIONS": "set kafka.partitions to a number that the cluster allows",
    "INVALID_CONFIG": "the broker rejects a setting of the topic; create the topic by hand",
    "POLICY_VIOLATION": "a policy of the cluster forbids these topic settings; create the topic by hand",
    "UNSUPPORTED_VERSION": "Kafka 2.5 or later is required",
    "_UNSUPPORTED_FEATURE": "Kafka 2.5 or later is required",
    "UNSUPPORTED_COMPRESSION_TYPE": "set kafka.options.compression.type to one that the broker supports",
}


def attempt(call: Callable[[], T]) -> tuple[T, None] | tuple[None, object]:
    """Run a call into the client. Returns (result, None), or (None, raised error); never raises that error."""
    try:
        return call(), None
    # The only bare except of the project. On a fatal error `flush()` and `poll()` raise a KafkaException, a SystemError
    # or a `KafkaError`, depending on what the callbacks call meanwhile (confluent-kafka 2.16, a fenced producer). A
    # KafkaError does not derive from BaseException, so no other clause catches it.
    except:  # noqa: E722
        error: object = sys.exc_info()[1]
        if isinstance(error, BaseException) and not isinstance(error, Exception):
            raise
    if isinstance(error, BaseException):
        # The frames of the traceback keep the client alive, but close() must be able to destroy it now: an instance
        # that stays alive finishes its requests. One was seen to fence its successor.
        error.with_traceback(None)
    return None, error


def guarded(call: Callable[[], T], handle: Callable[[object], TailraceError]) -> T:
    """Run a call into the client; when it raises, raise the error that `handle` returns."""
    result, error = attempt(call)
    if error is None:
        return cast("T", result)  # `attempt` returns a result whenever it returns no error
    # A bare KafkaError is not an exception, so it cannot be the cause of one.
    raise handle(error) from (error if isinstance(error, BaseException) else None)


def construct(call: Callable[[], T], options: Mapping[str, Secret]) -> T:
    """Create a client. A configuration that librdkafka refuses becomes a ConfigError that shows no values."""

    def refused(error: object) -> TailraceError:
        kafka_error = kafka_error_in(error)
        return option_error(kafka_error.str() if kafka_error else "", options)

    return guarded(call, refused)


def translate(
    error: object,
    *,
    doing: str,
    uncertain: bool = False,
    events: ClientEvents | None = None,
    servers: str = "",
    **facts: object,
) -> TailraceError:
    """Return the error of our tree for an error that the client raised or passed to a callback.

    Args:
        error: a KafkaError, a KafkaException, or anything else that a call raised.
        doing: the request, as it follows "cannot": "commit the transaction".
        uncertain: the call belongs to a transaction; errors that are not known to be harmless become OutcomeUnknown.
        events: the events of the client, which explain a timeout.
        servers: kafka.bootstrap, for the message.
        facts: for the log; `topic` and `transactional_id` also appear in the message.
    """
    if isinstance(error, TailraceError):
        return error
    kafka_error = kafka_error_in(error)
    if kafka_error is None:
        what = f"cannot {doing}: the Kafka client raised {type(error).__name__}"
        # A callback that runs while a fatal error is being raised surfaces as SystemError.
        return _make(OutcomeUnknown, what, facts) if uncertain else _make(InvariantError, f"{what}: {error}", facts)
    name = kafka_error.name()
    if name in REFUSING and events is not None and events.credential_failure is not None:
        return unreachable(doing, kafka_error, events, servers=servers, **facts)
    if name in REJECTING and events is not None and events.changing:
        events.on_error(kafka_error)
        return unreachable(doing, kafka_error, events, servers=servers, **facts)
    about = ", ".join(f"{key} {facts[key]!r}" for key in ("topic", "transactional_id") if key in facts)
    message = f"cannot {doing}{f' ({about})' if about else ''}: {kafka_error.str()} ({name})"
    if name in FENCED:
        hint = "another process uses this transactional id, or the transaction was open for too long"
        return _make(ProducerFenced, message, facts, hint=hint)
    if name in TOO_LARGE:
        return _too_large(message, facts)
    if name in REFUSED:
        return _make(BrokerRefused, message, facts, hint=REFUSED[name])
    if name in MISSING:
        return _make(TopicMissing, message, facts, hint=_topic_hint(name))
    if name in MISNAMED or name in TRUNCATED:
        return _make(TopicMismatch, message, facts, hint=_topic_hint(name))
    if uncertain or name in UNCLEAR or kafka_error.fatal() or kafka_error.txn_requires_abort():
        return _make(OutcomeUnknown, message, facts)
    if name in UNREACHABLE or kafka_error.retriable():
        return unreachable(doing, kafka_error, events, servers=servers, **facts)
    return _make(InvariantError if name in MISUSED else BrokerRefused, message, facts)


def unreachable(
    doing: str, error: KafkaError | None, events: ClientEvents | None, *, servers: str = "", **facts: object
) -> BrokerError:
    """Return the error for a call without an answer: BrokerRefused if the events show that an operator must act."""
    if events is not None and (failure := events.credential_failure) is not None:
        said = f"cannot {doing}: {failure.message}"
        return BrokerUnreachable(said, hint=failure.hint, command="", servers=servers, **facts)
    refusal = events.refusal() if events else None
    if refusal is not None and events is not None and events.changing and refusal.name() in REJECTING:
        return BrokerUnreachable(
            f"cannot {doing}: {refusal.str()}",
            hint=f"Kafka rejected the login; {events.changing} is read again for the next attempt. If this does not "
            "end, check kafka.options.sasl.mechanism and sasl.username",
            command="",
            servers=servers,
            **facts,
        )
    if refusal is not None:
        return BrokerRefused(
            f"cannot {doing}: {refusal.str()}", hint=REFUSED[refusal.name()], command="", servers=servers, **facts
        )
    reason = (events.reason() if events else "") or (error.str() if error else "no answer")
    return BrokerUnreachable(
        f"cannot {doing}: Kafka{f' on {servers}' if servers else ''} does not answer: {reason}",
        hint="check that the brokers run, that kafka.bootstrap lists them, and that kafka.options.security.protocol "
        "is the protocol of the listener",
        command="",
        servers=servers,
        **facts,
    )


def kafka_error_in(error: object) -> KafkaError | None:
    """Return the KafkaError that `error` is or contains, if any."""
    if isinstance(error, KafkaException):
        error = error.args[0] if error.args else None
    return error if isinstance(error, KafkaError) else None


def _too_large(message: str, facts: Mapping[str, object]) -> TailraceError:
    if "topic" not in facts:
        return _make(BrokerRefused, message, facts, hint="raise message.max.bytes of the broker")
    return _make(
        RowRefused,
        message,
        facts,
        hint="raise capture.row_bytes_max and max.message.bytes of the topic, or leave the column out",
        command=f"kafka-configs.sh --bootstrap-server <host:port> --alter --entity-type topics --entity-name "
        f"{facts['topic']} --add-config max.message.bytes=<bytes>",
    )


def _topic_hint(name: str) -> str:
    if name in MISSING:
        return "the topic or partition does not exist, or the broker has just started; run cdc doctor"
    if name in MISNAMED:
        return "Kafka does not distinguish . and _ in topic names; set another name"
    return "the requested records are no longer in the topic, or the topic was recreated"


def _make(
    kind: type[TailraceError], message: str, facts: Mapping[str, object], *, hint: str = "", command: str = ""
) -> TailraceError:
    return kind(message, hint=hint, command=command, **facts)
