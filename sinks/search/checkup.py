"""Checks OpenSearch for `cdc doctor`: reachable, version, health, user, settings of the indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from cdc.config.settings import Config, Search
from sinks.search.index_names import every_of, writable
from sinks.search.opensearch_client import Answer, Client
from sinks.search.start import indices_of
from sinks.store_findings import StoreFinding

_OLDEST: Final = 2
_ABSENT: Final = frozenset({404})
_NO_PLUGIN: Final = frozenset({400, 404, 405, 500})
_BLOCKS: Final = {
    "index.blocks.write": "an operator blocked writes, or a rebuild was killed: then the next worker removes the block",
    "index.blocks.read_only_allow_delete": "the disk of a node is full: OpenSearch removes the block when it has space",
    "index.blocks.read_only": "an operator made the index read-only",
}


def checkup(config: Config, name: str, settings: Search) -> Iterator[StoreFinding]:
    """Yield the findings. Raises SinkUnreachable; SinkUnfit for credentials and rights."""
    client = indices_of(config.name, name, settings).client
    try:
        about = _json(client, "/")
        version = str(about.get("version", {}).get("number", ""))
        kind = str(about.get("version", {}).get("distribution", "something else"))
        yield StoreFinding("ok", "search", f"{kind} {version} at {client.url}")
        if kind != "opensearch" or not version.partition(".")[0].isdigit() or int(version.partition(".")[0]) < _OLDEST:
            yield StoreFinding(
                "warning", "search_version", f"unsupported version; expected OpenSearch {_OLDEST} or later"
            )
        yield from _health(client)
        yield from _user(client)
        yield from _settings(client, config.name, name, settings)
    finally:
        client.close()


def _health(client: Client) -> Iterator[StoreFinding]:
    health = _json(client, "/_cluster/health")
    status = str(health.get("status"))
    if status == "red":
        text = "the cluster is red: some shards are unassigned, and writes to them wait"
        yield StoreFinding("error", "search_health", text, f"curl '{client.url}/_cluster/allocation/explain?pretty'")
    else:
        yield StoreFinding(
            "ok", "search_health", f"the cluster is {status}, {health.get('number_of_data_nodes')} data nodes"
        )


def _user(client: Client) -> Iterator[StoreFinding]:
    """Report the user and its roles. Rights to write cannot be checked without writing."""
    answer = client.ask("GET", "/_plugins/_security/authinfo", expected=_NO_PLUGIN)
    if isinstance(answer, Answer):
        yield StoreFinding(
            "warning", "search_rights", "the security plugin is not installed: every client has all rights"
        )
        return
    found = msgspec.json.decode(answer)
    roles = ", ".join(map(str, found.get("roles", []))) or "none"
    yield StoreFinding("ok", "search_rights", f"user {found.get('user_name')} has the roles {roles}")


def _settings(client: Client, pipeline: str, sink: str, settings: Search) -> Iterator[StoreFinding]:
    """Check the settings of the live indices; reading them needs the sink's read rights."""
    pattern = every_of(pipeline, sink)
    named = _json(client, f"/{pattern}/_alias")
    live = [index for index, about in named.items() if about.get("aliases", {}).keys() - {writable(index)}]
    found = _json(client, f"/{pattern}/_settings?flat_settings=true")
    for index in sorted(live):
        own: dict[str, Any] = found.get(index, {}).get("settings", {})
        for name, why in _BLOCKS.items():
            if own.get(name) == "true":
                yield StoreFinding("warning", "search_block", f"{index} is blocked for writes ({name}): {why}")
        wanted, there = f"{settings.gc_deletes_s}s", own.get("index.gc_deletes", "60s")
        if there != wanted:
            text = f"{index} keeps deleted versions for {there} (index.gc_deletes); the next start sets it to {wanted}"
            yield StoreFinding("warning", "gc_deletes", text)
    if live:
        yield StoreFinding("ok", "search_indices", f"{len(live)} live indices")


def _json(client: Client, path: str) -> dict[str, Any]:
    answer = client.ask("GET", path, expected=_ABSENT)
    return {} if isinstance(answer, Answer) else msgspec.json.decode(answer, type=dict[str, Any])
