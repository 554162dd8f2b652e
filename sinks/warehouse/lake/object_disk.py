"""Stores small files of a lake in an object store: one atomic and durable request each.

It uses obstore, the same object_store crate as in deltalake, so options have the same names. deltalake's own handler
would need two requests to read and three to write. It also holds the GIL in each of them, so that the whole process
would stand still (deltalake 1.6, 2026-11-22), while capture asks for the lake's position.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from obstore.exceptions import BaseError
from obstore.store import from_url

from cdc.errors import ConfigError
from sinks.warehouse.lake.store_errors import store_unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import ObjectStore

    from sinks.warehouse.lake.location import Location

_ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
_CLIENT: Final = frozenset(
    {
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "read_timeout", "user_agent"),
        *("http1_only", "http2_only", "http2_keep_alive_interval", "http2_keep_alive_timeout"),
        *("http2_keep_alive_while_idle", "pool_idle_timeout", "pool_max_idle_per_host", "randomize_addresses"),
        *("proxy_url", "proxy_ca_certificate", "proxy_excludes", "root_certificate"),
    }
)
# deltalake's lock against two writers of a table, for stores that have none; and its own buffers.
_OF_TABLES: Final = frozenset(
    {
        *("aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "aws_s3_locking_provider", "delta_dynamo_table_name"),
        *("max_buffer_size", "max_concurrency"),
    }
)


class ObjectDisk:
    """`sinks.warehouse.lake.local_disk.Disk` below a prefix. Thread-safe.

    Raises LakeUnready if the store is not available or denies access, ConfigError for an unknown option.
    """

    def __init__(self, location: Location, folder: str) -> None:
        self._uri = location.uri(folder)
        self._options = location.options

    def read(self, name: str) -> bytes | None:
        """See `Disk`."""
        with _reached(f"{self._uri}/{name}"):
            try:
                return self._store.get(name).bytes().to_bytes()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def names(self) -> list[str]:
        """See `Disk`."""
        with _reached(self._uri):
            return [found["path"] for found in self._store.list_with_delimiter()["objects"]]

    def replace(self, name: str, data: bytes) -> None:
        """See `Disk`."""
        with _reached(f"{self._uri}/{name}"):
            self._store.put(name, data, use_multipart=False)

    def remove(self, name: str) -> None:
        """See `Disk`."""
        with _reached(f"{self._uri}/{name}"):
            try:
                self._store.delete(name)
            except FileNotFoundError:
                return

    def clear(self) -> None:
        """Delete everything below the prefix."""
        with _reached(self._uri):
            for found in self._store.list():
                self._store.delete([one["path"] for one in found])

    @cached_property
    def _store(self) -> ObjectStore:
        try:
            # deltalake also takes this option from the environment; obstore takes only those of the store.
            allow_http = {_ALLOW_HTTP: os.environ[_ALLOW_HTTP]} if _ALLOW_HTTP in os.environ else {}
            config, client, retry = sorted_options({**allow_http, **self._options})
            made: ObjectStore = from_url(self._uri, config=config, client_options=client, retry_config=retry)
        except (BaseError, ValueError):
            # The cause may contain the value.
            raise ConfigError(
                f"the storage options of {self._uri} include an unknown option or an invalid value",
                hint=f"names are those of the deltalake package; configured are {', '.join(sorted(self._options))}",
            ) from None
        return made


def sorted_options(options: Mapping[str, str]) -> tuple[Any, Any, Any]:
    """Divide deltalake's options into those of the store, of the client, and of its retries. Pure."""
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    retry: dict[str, Any] = {}
    backoff: dict[str, Any] = {}
    for name, value in options.items():
        key = name.lower()
        bare = key.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if bare in _CLIENT:
            client[bare] = value
        elif key == "max_retries":
            retry[key] = int(value)
        elif key == "retry_timeout":
            retry[key] = _time(value)
        elif key.startswith("backoff_config."):
            part = key.partition(".")[2]
            backoff[part] = float(value) if part == "base" else _time(value)
        elif key not in _OF_TABLES:
            config[key] = value
    return config, client, {**retry, **({"backoff": backoff} if backoff else {})}


def _time(text: str) -> timedelta:
    """Parse ``30s``, ``500ms``, ``3m``. Raises ValueError."""
    for unit, seconds in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if text.endswith(unit):
            return timedelta(seconds=float(text.removesuffix(unit)) * seconds)
    return timedelta(seconds=float(text))


@contextmanager
def _reached(what: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        raise store_unreachable(what, error) from error
