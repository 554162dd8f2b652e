"""Builds the librdkafka configuration of each kind of client from our defaults and ``[kafka.options]``. Pure.

Options that exactly-once delivery depends on are fixed; the operator can override the others. See
https://github.com/confluentinc/librdkafka/blob/v2.16.0/CONFIGURATION.md for every name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.errors import ConfigError

ClientOptions: TypeAlias = dict[str, str]

TRANSACTION_TIMEOUT_MS: Final = 60_000  # the broker aborts a longer transaction; also Kafka's own default
SOCKET_TIMEOUT_MS: Final = 30_000  # a half-open connection is detected within half a transaction timeout
QUEUE_BYTES: Final = 32 << 20  # records handed to librdkafka and not yet acknowledged: four batches of capture
QUEUE_MESSAGES: Final = 100_000  # the same limit for tiny records: ten batches of `batch_rows_max`
READ_QUEUE_BYTES: Final = 16 << 20  # fetched ahead of a reader
# How long a broker may delay its answer to a fetch that finds nothing. A reader learns of the end of a partition this
# late, and later requests on the same connection wait for the answer. A start reads eight ends: with 100 ms they took
# 0.9 s of its 1.1 s (2026-11-23). A reader that follows a log fetches continuously and gets new records at once anyway.
END_WAIT_MS: Final = 10
FOLLOW_WAIT_MS: Final = 100
# librdkafka pauses a partition for this long when its queue is full, even if it is empty soon after. With the default,
# 1 s, a reader gets one queue a second: 45,000 records of 560 bytes; with 10 ms it is 360,000 (2026-11-29).
FULL_PAUSE_MS: Final = 10
FETCH_BYTES: Final = 8 << 20  # of one answer, compressed; a larger batch still arrives, alone
MESSAGE_BYTES_MIN: Final = 1_000  # librdkafka's own range of message.max.bytes
MESSAGE_BYTES_MAX: Final = 1_000_000_000
RECORD_OVERHEAD_BYTES: Final = 128
"""Subtracted from `max.message.bytes`: Kafka measures a whole batch, whose frame takes 61 bytes, and each record up to
36 (https://kafka.apache.org/documentation/#recordbatch)."""

OAUTH: Final = "OAUTHBEARER"

_ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "retries": "message.send.max.retries",
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
"""Alias -> name of a librdkafka option. Otherwise both names would be set, and the last one would win."""

_FIXED: Final = frozenset(
    {
        "bootstrap.servers",
        "transactional.id",
        "enable.idempotence",
        "acks",
        "isolation.level",
        "allow.auto.create.topics",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.partition.eof",
        "message.max.bytes",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
        "statistics.interval.ms",
        "log_level",
        "log.connection.close",
        "log.queue",
    }
)
_PRODUCER_ONLY: Final = re.compile(
    r"linger\.ms|batch\.|compression\.|queue\.buffering\.|message\.(timeout|send|copy)|transaction\.timeout\.ms"
    r"|topic\.metadata\.propagation|max\.in\.flight\.requests|request\.timeout|partitioner|sticky\.partitioning|retry\.backoff"
)
_CONSUMER_ONLY: Final = re.compile(
    r"fetch\.|queued\.|max\.partition\.fetch|check\.crcs|consume\.|session\.timeout|heartbeat\.|max\.poll\.|group\."
    r"|partition\.assignment"
)


def producer_options(
    kafka: Kafka, transactional_id: str, *, message_bytes_max: int, transaction_s: int = 0
) -> ClientOptions:
    """Options of the transactional producer.

    `message_bytes_max` is `max.message.bytes` of the topics; librdkafka refuses records larger than `record_bytes_max`
    of it. A transaction can last at least `transaction_s`. Raises ConfigError when timeouts contradict each other.
    """
    user = _user_options(kafka.options, without=_CONSUMER_ONLY)
    timeout_ms = user.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
    limit_ms = _milliseconds("transaction.timeout.ms", timeout_ms)
    for option, wanted_ms in (("message.timeout.ms", TRANSACTION_TIMEOUT_MS), ("socket.timeout.ms", SOCKET_TIMEOUT_MS)):
        value = user.setdefault(option, str(min(wanted_ms, limit_ms)))
        # Zero means "for ever" to librdkafka, so it exceeds the limit, too.
        if not 0 < _milliseconds(option, value) <= limit_ms:
            raise ConfigError(
                f"kafka.options.{option} is {value} and transaction.timeout.ms is {limit_ms}: a record could arrive "
                "after its transaction has ended",
                hint=f"set kafka.options.{option} to 1 ... {limit_ms}, or raise transaction.timeout.ms",
            )
    user["transaction.timeout.ms"] = str(max(limit_ms, transaction_s * 1000))
    return {
        **_common(kafka, client_id=transactional_id),
        "linger.ms": "5",
        "batch.size": "1000000",
        "compression.type": "lz4",
        # librdkafka reports a deleted topic as missing after 10 s; with the default of 30 s, flush times out first.
        "topic.metadata.propagation.max.ms": "10000",
        "queue.buffering.max.messages": str(QUEUE_MESSAGES),
        "queue.buffering.max.kbytes": str(max(QUEUE_BYTES, 2 * message_bytes_max) >> 10),
        **user,
        "transactional.id": transactional_id,
        "enable.idempotence": "true",
        "acks": "all",
        "message.max.bytes": str(record_bytes_max(message_bytes_max)),
        **_fixed(kafka),
    }


def consumer_options(
    kafka: Kafka, *, client_id: str, ahead_bytes: int = READ_QUEUE_BYTES, follows: bool = True
) -> ClientOptions:
    """Options of a reader that assigns partitions by itself: no group, no stored offsets, committed records only.

    With `follows` the reader waits for new records at the ends of partitions; otherwise it stops there.
    """
    return {
        **_common(kafka, client_id=client_id),
        "queued.max.messages.kbytes": str(ahead_bytes >> 10),
        "queued.min.messages": "20000",
        "fetch.queue.backoff.ms": str(FULL_PAUSE_MS),
        "fetch.max.bytes": str(min(FETCH_BYTES, ahead_bytes // 2)),
        "fetch.wait.max.ms": str(FOLLOW_WAIT_MS if follows else END_WAIT_MS),
        **_user_options(kafka.options, without=_PRODUCER_ONLY),
        "group.id": client_id,  # librdkafka requires one; nothing is ever committed under it
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",  # a missing offset is an error, never a silent jump
        "isolation.level": "read_committed",
        **_fixed(kafka),
    }


def group_options(kafka: Kafka, *, group: str, instance: str, ahead_bytes: int) -> ClientOptions:
    """Options of a member of a consumer group with explicit commits and cooperative assignment."""
    given = consumer_options(kafka, client_id=f"{group}.{instance}" if instance else group, ahead_bytes=ahead_bytes)
    given["group.id"] = group
    if instance:
        given["group.instance.id"] = instance
    if given.get("group.protocol", "classic") == "consumer":
        return given  # the broker assigns partitions and sets the timeouts (KIP-848)
    # A member learns of a rebalance by its heartbeat, twice each time; a second is a third of the default.
    return {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "1000", **given}


def offsets_options(kafka: Kafka, *, group: str) -> ClientOptions:
    """Options of a client that reads and writes the offsets of a group without joining it."""
    given = consumer_options(kafka, client_id=f"{group}.offsets")
    # With the protocol of Kafka 4 it would send a member id, and the broker refuses unknown members.
    return {name: value for name, value in given.items() if not name.startswith("group.")} | {"group.id": group}


def sender_options(kafka: Kafka, *, timeout_s: float, message_bytes_max: int = 4 << 20) -> ClientOptions:
    """Options of a producer of single records; a record that is not delivered within `timeout_s` is dropped."""
    return {
        **_common(kafka, client_id="tailrace-sender"),
        **_user_options(kafka.options, without=_CONSUMER_ONLY),
        "enable.idempotence": "true",
        "acks": "all",
        "linger.ms": "0",
        "message.timeout.ms": str(int(timeout_s * 1000)),
        "message.max.bytes": str(record_bytes_max(message_bytes_max)),
        **_fixed(kafka),
    }


def admin_options(kafka: Kafka, *, client_id: str) -> ClientOptions:
    """Options of the admin client."""
    options = _user_options(kafka.options, without=_PRODUCER_ONLY)
    shared = {name: value for name, value in options.items() if _CONSUMER_ONLY.match(name) is None}
    return {**_common(kafka, client_id=client_id), **shared, **_fixed(kafka)}


def record_bytes_max(message_bytes_max: int) -> int:
    """Return the largest record (key, value, headers) for topics whose `max.message.bytes` is `message_bytes_max`."""
    return min(max(message_bytes_max - RECORD_OVERHEAD_BYTES, MESSAGE_BYTES_MIN), MESSAGE_BYTES_MAX)


def option_error(message: str, options: Mapping[str, Secret]) -> ConfigError:
    """Return the ConfigError for a configuration that librdkafka refuses.

    Only the name of the option is taken from `message`: the rest can contain its value, which can be a password.
    """
    found = re.search(r'configuration property:? "([a-zA-Z0-9_.]+)"', message) or re.search(r"`([a-z0-9_.]+)`", message)
    name = _spelled(found[1], options) if found else ""
    what = f"kafka.options.{name}" if name in options else f"one of kafka.options ({', '.join(sorted(options))})"
    unknown = "No such configuration property" in message
    return ConfigError(
        f"{what} is not an option of librdkafka" if unknown else f"{what} has a value that librdkafka does not accept",
        hint="names and values: https://github.com/confluentinc/librdkafka/blob/v2.16.0/CONFIGURATION.md",
        option=name,
    )


def _spelled(name: str, options: Mapping[str, Secret]) -> str:
    """Return the alias that the operator used for an option that librdkafka calls `name`."""
    same = {name, _ALIASES.get(name, name), *(alias for alias, real in _ALIASES.items() if real == name)}
    return next((option for option in options if option in same), name)


def _common(kafka: Kafka, *, client_id: str) -> ClientOptions:
    return {
        "client.id": client_id,
        "socket.keepalive.enable": "true",
        "reconnect.backoff.ms": "100",
        "reconnect.backoff.max.ms": "5000",
        "bootstrap.servers": kafka.bootstrap,
        **({"security.protocol": "SASL_SSL", "sasl.mechanism": OAUTH} if kafka.oauth_command else {}),
    }


def _fixed(kafka: Kafka) -> ClientOptions:
    # By default a producer's request for a topic that is gone creates it, with the broker's partitions and retention.
    return {"bootstrap.servers": kafka.bootstrap, "allow.auto.create.topics": "false"}


def _user_options(options: Mapping[str, Secret], *, without: re.Pattern[str]) -> ClientOptions:
    named = {_ALIASES.get(name, name): value.reveal() for name, value in options.items()}
    return {name: value for name, value in named.items() if name not in _FIXED and without.match(name) is None}


def patience_s(kafka: Kafka) -> float:
    """Return how long callers of a producer wait for Kafka; shorter than the transaction timeout."""
    return transaction_timeout_ms(kafka) / 1000 * 5 / 6


def transaction_timeout_ms(kafka: Kafka) -> int:
    """Return how long a transaction of capture may last before the broker aborts it; longer while tables are copied."""
    given = kafka.options.get("transaction.timeout.ms")
    return TRANSACTION_TIMEOUT_MS if given is None else _milliseconds("transaction.timeout.ms", given.reveal())


def _milliseconds(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"kafka.options.{option} must be a whole number of milliseconds") from None
