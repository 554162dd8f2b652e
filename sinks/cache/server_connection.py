"""Connects to Redis or Valkey: detects a restarted server, runs scripts, translates errors.

A server that was restarted or promoted may have lost acknowledged writes. So each new connection reads the run of the
server (`ServerRun`), and fails when it differs from the run whose positions were read. Nothing is written until the
positions are read again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import redis
import redis.exceptions as theirs
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.retry import Retry
from redis.sentinel import Sentinel

from cdc.config.secret import Secret
from cdc.errors import ConfigError, CredentialUnavailable, SinkUnreachable
from sinks.cache.cache_errors import NoPrimary, ServerRestarted, translate

CONNECT_S: Final = 5.0
ANSWER_S: Final = 20.0
"""A chunk of keys takes milliseconds; a server that is silent for this long hangs, or its disk does."""

_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_OPTIONS: Final = frozenset(
    {
        "username",
        "password",
        "sentinel",
        "sentinel_username",
        "sentinel_password",
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
    }
)
T = TypeVar("T")


class ServerRun(NamedTuple):
    """A run of a server as a primary: the next run may lack writes of this one."""

    run_id: str
    replication_id: str

    def __str__(self) -> str:
        return f"{self.run_id} {self.replication_id}"


class Call(NamedTuple):
    """A script call: the script, its keys and its arguments."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[bytes | str | int]


class Store:
    """The connections of one sink. Thread-safe. Raises SinkUnreachable and SinkUnfit."""

    def __init__(self, url: str, options: Mapping[str, Secret]) -> None:
        """No connection is made yet. Raises ConfigError for unknown options."""
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise ConfigError(
                f"unknown option {unknown[0]!r} of a cache", hint=f"the options are {', '.join(sorted(_OPTIONS))}"
            )
        parts = urlsplit(url)
        self.where = parts.netloc
        self.life: ServerRun | None = None
        self._lock = threading.Lock()
        self._place = (parts.scheme, parts.netloc, int(parts.path.strip("/") or 0))
        self._options = options
        self._client = self._made()

    def reconnect(self) -> None:
        """Connect to the server that is there now; `life` then is its run."""
        before = self._client
        with self._lock:
            self.life = None
        # Commands under way finish on the old connections, which are not used again.
        self._client = self._made()
        before.connection_pool.disconnect(inuse_connections=False)
        self.command("connect", "PING")

    def command(self, doing: str, *words: bytes | str | int) -> Any:
        """Run one command and return its reply."""
        client = self._client
        return self._guarded(doing, lambda: client.execute_command(*words))  # type: ignore[no-untyped-call]

    def commands(self, doing: str, commands: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
        """Run commands in one pipeline and return their replies. Raises for the first that fails."""

        def call() -> list[Any]:
            with self._client.pipeline(transaction=False) as pipeline:
                for words in commands:
                    pipeline.execute_command(*words)  # type: ignore[no-untyped-call]
                return pipeline.execute()

        return self._guarded(doing, call) if commands else []

    def run(self, doing: str, calls: Sequence[Call]) -> list[bytes | None]:
        """Run scripts in one pipeline and return their replies; None for a script that a full store refused."""
        found = self._guarded(doing, lambda: self._scripts(calls, by_name=True))
        lost = [index for index, answer in enumerate(found) if isinstance(answer, theirs.NoScriptError)]
        if lost:
            # The scripts were flushed, or the server is new: send their text.
            again = self._guarded(doing, lambda: self._scripts([calls[index] for index in lost], by_name=False))
            for index, answer in zip(lost, again, strict=True):
                found[index] = answer
        for answer in found:
            if isinstance(answer, Exception) and not isinstance(answer, theirs.OutOfMemoryError):
                raise translate(answer, where=self.where, doing=doing) from answer
        return [None if isinstance(answer, Exception) else answer for answer in found]

    def info(self, section: str) -> Mapping[str, str]:
        """Return a section of INFO."""
        return _parsed_info(self.command(f"run INFO {section}", "INFO", section))

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._client.close()
        self._client.connection_pool.disconnect()

    def _made(self) -> redis.Redis:
        return _client(*self._place, self._options, self._on_connect)

    def _scripts(self, calls: Sequence[Call], *, by_name: bool) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for script, keys, arguments in calls:
                verb, what = ("EVALSHA", _name_of(script)) if by_name else ("EVAL", script)
                pipeline.execute_command(verb, what, len(keys), *keys, *arguments)  # type: ignore[no-untyped-call]
            return pipeline.execute(raise_on_error=False)

    def _on_connect(self, connection: Any) -> None:
        connection.on_connect()
        answers = []
        for section in ("server", "replication"):
            connection.send_command("INFO", section)
            answers.append(_parsed_info(connection.read_response()))
        server, replication = answers
        if replication.get("role") == "slave":
            raise NoPrimary("it is a replica")
        life = ServerRun(server.get("run_id", ""), replication.get("master_replid", ""))
        with self._lock:
            if self.life is None:
                self.life = life
            elif self.life != life:
                raise ServerRestarted("another run of the server")

    def _guarded(self, doing: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except CredentialUnavailable as error:
            raise SinkUnreachable(f"cannot {doing} on {self.where}: {error.message}", hint=error.hint) from error
        except theirs.RedisError as error:
            raise translate(error, where=self.where, doing=doing) from error


def _client(
    scheme: str, netloc: str, database: int, options: Mapping[str, Secret], on_connect: Callable[[Any], None]
) -> redis.Redis:
    service = options["sentinel"].reveal() if "sentinel" in options else None
    limits = {"socket_connect_timeout": CONNECT_S, "socket_timeout": ANSWER_S, "retry": Retry(NoBackoff(), 0)}
    tls = {name: secret.reveal() for name, secret in options.items() if name.startswith("ssl_")}
    if scheme != "rediss" and tls:
        raise ConfigError(f"option {min(tls)} needs TLS", hint="begin the url with rediss://")
    ours: dict[str, Any] = {**tls, **_login(options, ""), **limits, "db": database, "redis_connect_func": on_connect}
    ours |= {"ssl": True} if scheme == "rediss" else {}
    if service is None:
        if "," in netloc:
            raise ConfigError(
                "the url of a cache names several hosts, but options.sentinel is missing",
                hint='set options.sentinel to the service name that the sentinels watch, e.g. "mymaster"',
            )
        host, port = _address(netloc, _PORT)
        return redis.Redis(host=host, port=port, **ours)
    addresses = [_address(one, _SENTINEL_PORT) for one in netloc.split(",")]
    secure = {"ssl": True, **tls} if scheme == "rediss" else {}
    sentinel = Sentinel(addresses, sentinel_kwargs={**_login(options, "sentinel_"), **limits, **secure})  # type: ignore[no-untyped-call]
    client: redis.Redis = sentinel.master_for(service, **ours)  # type: ignore[no-untyped-call]
    return client


def _login(options: Mapping[str, Secret], prefix: str) -> dict[str, Any]:
    """Return user and password as an object that hides both in the client's repr."""
    user, password = (options.get(f"{prefix}{word}") for word in ("username", "password"))
    if password is None:
        return {}
    return {"credential_provider": _Login(user, password)}


class _Login(CredentialProvider):
    """Reads user and password for each new connection, so that a rotated password needs no restart."""

    def __init__(self, user: Secret | None, password: Secret) -> None:
        self._user = user
        self._password = password

    def get_credentials(self) -> tuple[str, str] | tuple[str]:
        password = self._password.reveal()
        return (password,) if self._user is None else (self._user.reveal(), password)


def _address(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    try:
        return parts.hostname or "", parts.port or port
    except ValueError:
        raise ConfigError(
            f"invalid address {text!r}; expected host:port", hint="e.g. redis://localhost:6379/0"
        ) from None


def _name_of(script: str) -> str:
    found = _NAMES.get(script)
    if found is None:
        # The protocol names scripts by their SHA-1; nothing secret is hashed.
        found = _NAMES[script] = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    return found


_NAMES: Final[dict[str, str]] = {}


def _parsed_info(answer: Any) -> Mapping[str, str]:
    if isinstance(answer, Mapping):  # the client has already parsed it
        return {str(name): str(value) for name, value in answer.items()}
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
