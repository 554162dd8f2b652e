"""Gives running clients of Kafka a new SASL user and password when their file or command changes.

librdkafka reads the password for each connection that it makes, and takes another one at any time
(`rd_kafka_sasl_set_credentials`). They are read again when a client reports that Kafka rejected them, until they
differ, and when the process reloads its configuration.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from cdc.clock import Clock, SystemClock
from cdc.config.credential import Changing
from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.errors import CredentialUnavailable
from cdc.kafka.client_errors import attempt, construct
from cdc.kafka.client_events import LOG, ClientEvents

USER: Final = "sasl.username"
PASSWORD: Final = "sasl.password"  # noqa: S105 - the name of an option

FIRST_WAIT_S: Final = 1.0
WAIT_MAX_S: Final = 5.0  # a command may start a program of a cloud each time
SEARCH_S: Final = 300.0
"""After the last rejection the file or command is read again for this long."""

_Client = TypeVar("_Client", Producer, Consumer, AdminClient)


class Client(Protocol):
    """What the rotation needs of a client. The call does not wait for a broker."""

    def set_sasl_credentials(self, username: str, password: str) -> None: ...  # noqa: D102


@dataclass(slots=True)
class Held:
    """What a client has: the secrets to read, its events, and the user and password that it was given last."""

    secrets: tuple[Secret, Secret]
    events: ClientEvents
    given: tuple[str, str] = field(repr=False)


class SaslRotation:
    """The running clients whose password can change. Thread-safe. It keeps no client alive."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._clients: weakref.WeakKeyDictionary[Client, Held] = weakref.WeakKeyDictionary()
        self._wanted = threading.Event()
        self._wait_s: float | None = None
        self._until_s = 0.0
        self._thread: threading.Thread | None = None

    def hold(self, client: Client, held: Held) -> None:
        """Renew the user and password of `client` until it is released."""
        with self._lock:
            self._clients[client] = held

    def release(self, client: Client) -> None:
        """Never call `client` again. Waits for a call that runs now: a client must not be called while it closes."""
        with self._lock:
            self._clients.pop(client, None)

    def start(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="kafka-passwords", daemon=True)
                self._thread.start()

    def rejected(self) -> None:
        """Kafka rejected a password: read it again soon, and until it differs. Called in callbacks of clients."""
        self._until_s = self._clock.monotonic_s() + SEARCH_S
        if self._wait_s is None:
            self._wait_s = FIRST_WAIT_S
            self._wanted.set()

    def reloaded(self) -> None:
        """Read every password again, in the thread."""
        self._wanted.set()

    def renew(self) -> int:
        """Read every password again and give it to the clients that have another. Returns how many took a new one."""
        found: dict[tuple[Secret, Secret], tuple[str, str] | CredentialUnavailable] = {}
        with self._lock:
            wanted = {held.secrets for held in self._clients.values()}
        for secrets in wanted:  # without the lock: a command may take seconds
            try:
                found[secrets] = secrets[0].reveal(), secrets[1].reveal()
            except CredentialUnavailable as error:
                found[secrets] = error
                LOG.warning("%s", error.message)
        count = 0
        alive: list[object] = []  # the last reference to a client must not be dropped under the lock: that can wait
        with self._lock:
            for client, held in self._clients.items():
                alive.append(client)
                count += _give(client, held, found.get(held.secrets))
        if count:
            LOG.info("%d clients of Kafka have a new user or password", count)
        return count

    def next_wait_s(self, *, changed: bool) -> float | None:
        """Return how long to wait before the next `renew`; None: until it is wanted."""
        if changed or self._wait_s is None or self._clock.monotonic_s() > self._until_s:
            self._wait_s = None
            return None
        wait_s, self._wait_s = self._wait_s, min(WAIT_MAX_S, 2 * self._wait_s)
        return wait_s

    def _run(self) -> None:
        wait_s: float | None = None
        while True:
            self._wanted.wait(wait_s)
            self._wanted.clear()
            wait_s = self.next_wait_s(changed=self.renew() > 0)


@cache
def rotation() -> SaslRotation:
    """Return the rotation of this process."""
    return SaslRotation()


def create(kind: type[_Client], config: Mapping[str, Any], kafka: Kafka, events: ClientEvents) -> _Client:
    """Create a client. Raises ConfigError for options that librdkafka does not accept, without their values."""
    secrets = changing(kafka)
    if secrets is None:
        return construct(lambda: kind(dict(config)), kafka.options)
    keeper = rotation()
    events.follow(_key(secrets), keeper.rejected)
    client: _Client = construct(lambda: _HELD[kind](dict(config)), kafka.options)
    keeper.hold(client, Held(secrets, events, (str(config[USER]), str(config[PASSWORD]))))
    keeper.start()
    return client


def changing(kafka: Kafka) -> tuple[Secret, Secret] | None:
    """Return the secrets of user and password, if one of them comes from a file or command."""
    user, password = kafka.options.get(USER), kafka.options.get(PASSWORD)
    if user is None or password is None or not any(isinstance(one, Changing) for one in (user, password)):
        return None
    return user, password


def _key(secrets: tuple[Secret, Secret]) -> str:
    return next(one.key for one in reversed(secrets) if isinstance(one, Changing))


def _give(client: Client, held: Held, found: tuple[str, str] | CredentialUnavailable | None) -> bool:
    if isinstance(found, CredentialUnavailable):
        held.events.credential_failed(found)
        return False
    if found is None or found == held.given:
        held.events.credential_failed(None)
        return False
    give: Callable[[], None] = lambda: client.set_sasl_credentials(*found)  # noqa: E731 - typed
    _, error = attempt(give)
    if error is not None:
        LOG.warning("a client of Kafka did not take its new password: %s", type(error).__name__)
        return False
    held.given = found
    held.events.renewed()
    return True


class _Producer(Producer):
    """A class of Python, because objects of classes in C have no weak references. So are the others."""


class _Admin(AdminClient):
    pass


class _Consumer(Consumer):
    def close(self) -> None:
        rotation().release(self)
        super().close()


_HELD: Final[dict[Any, Any]] = {Producer: _Producer, Consumer: _Consumer, AdminClient: _Admin}
