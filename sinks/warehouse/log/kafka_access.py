"""Gives the options with which Spark reads Kafka. Credentials that change are read again while a lake runs.

Spark makes clients for each read, from the options of that read. So a new password needs no new session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Final

from cdc.clock import Clock
from cdc.config.credential import Changing
from cdc.config.settings import Kafka
from cdc.errors import CredentialUnavailable
from cdc.kafka.callbacks import tokens_of
from cdc.telemetry import log
from sinks.warehouse.log.java_kafka_options import GROUP, JAAS, spark_options
from sinks.warehouse.spark.spark_session import is_local
from sinks.warehouse.spark.token_endpoint import token_endpoint

READ_AGAIN_S: Final = 60.0
"""A command may start a program of a cloud, so it does not run for each of a cut's hundred reads."""


@contextmanager
def kafka_access(
    kafka: Kafka, overrides: Mapping[str, str], clock: Clock, *, group: str, master: str
) -> Iterator[KafkaAccess]:
    """Yield the access of a session.

    Args:
        kafka: what librdkafka is given.
        overrides: Spark settings that begin with ``kafka.``.
        clock: says when a credential is read again.
        group: the consumer group named to the broker, for ACLs and quotas; nothing is committed.
        master: the session's.

    Raises:
        SinkUnfit: an option has no counterpart in the Java client.
        BrokerUnreachable: there is no token now.
    """
    changes = any(isinstance(secret, Changing) for secret in kafka.options.values())
    with ExitStack() as closing:
        login = None
        if kafka.oauth_command and JAAS not in overrides and is_local(master):
            login = closing.enter_context(token_endpoint(tokens_of(kafka.oauth_command)))
        yield KafkaAccess(lambda: spark_options(kafka, overrides, login), clock, group=group, changes=changes)


class KafkaAccess:
    """The options of Spark's Kafka source. Thread-safe."""

    def __init__(self, make: Callable[[], dict[str, str]], clock: Clock, *, group: str, changes: bool) -> None:
        self._make = make
        self._clock = clock
        self._group = group
        self._changes = changes
        self._lock = Lock()
        self._options = make()
        self._made_s = clock.monotonic_s()
        self._changed = 0

    def options(self) -> Mapping[str, str]:
        """Return the options of a read that begins now. If a credential cannot be read, it stays as it was."""
        with self._lock:
            if self._changes and self._clock.monotonic_s() - self._made_s >= READ_AGAIN_S:
                self._read_again()
                self._made_s = self._clock.monotonic_s()
            # Spark keeps consumers by group and partition, whatever their other options (4.2): a new group, new ones.
            group = f"{self._group}.{self._changed}" if self._changed else self._group
            return {GROUP: group, **self._options}

    def _read_again(self) -> None:
        try:
            found = self._make()
        except CredentialUnavailable as error:
            log.get().warning("kafka_credential_kept", **log.error_fields(error))
            return
        if found != self._options:
            self._options = found
            self._changed += 1
            log.get().info("kafka_credential_changed")
