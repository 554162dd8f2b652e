"""Checks the store of a cache for `cdc doctor`: reachable, version, eviction, rights. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cdc.config.settings import Cache, Config
from cdc.errors import SinkUnfit
from cdc.model.units import size
from sinks.cache.row_names import mark
from sinks.cache.server_connection import Store
from sinks.cache.start import target
from sinks.store_findings import StoreFinding

FULL_SHARE: Final = 0.98
"""Above this share of maxmemory a store may reject writes: buffers of clients count, and come and go."""

_DRYRUN: Final = "+acl|dryrun +acl|whoami"


def checkup(config: Config, name: str, settings: Cache) -> Iterator[StoreFinding]:
    """Yield the findings. Raises the errors of `sinks.cache.target.CacheTarget.open` for an unsuitable server."""
    made = target(config, name, settings)
    store = made.store
    try:
        store.reconnect()
        made.check_server()
        server, memory = store.info("server"), store.info("memory")
        version = server.get("valkey_version") or server.get("redis_version", "")
        what = "Valkey" if "valkey_version" in server else "Redis"
        yield StoreFinding("ok", "cache", f"{what} {version} at {store.where}")
        policy = memory.get("maxmemory_policy", "")
        if policy != "noeviction":
            text = f"the store may evict rows and marks (maxmemory-policy {policy}); evictable = true allows that"
            yield StoreFinding("warning", "eviction", text, "CONFIG SET maxmemory-policy noeviction")
        yield from _space(memory)
        yield from _rights(store, config, name, settings)
    finally:
        made.close()


def _space(memory: Mapping[str, str]) -> Iterator[StoreFinding]:
    """Warn when the store is so full that it rejects writes, or will soon."""
    used, limit = int(memory.get("used_memory", "0")), int(memory.get("maxmemory", "0"))
    if limit and used >= FULL_SHARE * limit and memory.get("maxmemory_policy", "") == "noeviction":
        text = f"the store is full: {size(used)} of {size(limit)} (maxmemory) are used, and it rejects writes"
        yield StoreFinding("warning", "memory", text, f"CONFIG SET maxmemory {2 * limit}")


def _rights(store: Store, config: Config, name: str, settings: Cache) -> Iterator[StoreFinding]:
    """Ask the store for the rights of the user, without using them."""
    try:
        user = store.command("identify the user", "ACL", "WHOAMI").decode()
        refused = [
            words for words in _wanted(config.name, name, settings)
            if store.command("check rights", "ACL", "DRYRUN", user, *words) not in {b"OK", "OK"}
        ]  # fmt: skip
    except SinkUnfit:
        yield StoreFinding("ok", "acl", f"the rights of the user cannot be checked: that needs {_DRYRUN}")
        return
    if not refused:
        yield StoreFinding("ok", "acl", f"user {user} has all rights that the sink needs")
    for word, *rest in refused:
        where = f" on {rest[0]}" if rest else ""
        text = f"user {user} may not run {word}{where}"
        yield StoreFinding("error", "acl", text, "docs/howto/cache.md lists the required rights as an ACL rule")


def _wanted(pipeline: str, sink: str, settings: Cache) -> Iterator[tuple[str, ...]]:
    heads = [template.partition("{")[0] for template in settings.keys.values()] or [f"{pipeline}:{sink}:"]
    for row in (f"{head}doctor" for head in heads):
        beside, many = mark(row), (row,)
        yield from (("GET", row), ("SET", row, ""), ("DEL", row), ("EXISTS", row), ("UNLINK", row))
        yield from (("MSET", row, ""), ("MGET", beside))
        yield from (("GETRANGE", beside, "0", "0"), ("SET", beside, ""), ("PEXPIRE", row, "1"))
        if settings.mode == "hash":
            yield from ((word, *many) for word in ("HGETALL", "HLEN"))
            yield from (("HSET", row, "f", ""), ("HGET", row, "f"), ("HMGET", row, "f"), ("HDEL", row, "f"))
    notes = f"cdc:positions:{pipeline}:{sink}"
    yield from (("HGET", notes, "f"), ("HSET", notes, "f", ""), ("HGETALL", notes), ("UNLINK", notes))
    yield from (("EVAL", "return 1", "0"), ("EVALSHA", "0", "0"), ("SCAN", "0"), ("INFO",), ("PING",))
