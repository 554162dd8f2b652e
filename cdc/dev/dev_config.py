"""Writes the cdc.toml of `cdc dev`. Pure: addresses in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.dev.chosen_parts import Parts
from cdc.doctor.toml_text import toml_string
from cdc.shop.config_text import sink_section

NAME: Final = "dev"
"""`name` of the sample shop's pipeline: its topics are dev.shop.orders and so on."""

SLOT_PREFIX: Final = "cdc_dev_"
"""Of the slot and publication in the user's own database. `cdc dev` drops what has this prefix in its cdc.toml."""

_COMMON: Final = """
[kafka]
bootstrap = {bootstrap}
replication_factor = 1                 # one broker, on this machine:
allow_unreplicated = true              # leave both out in production

[http]
listen = "127.0.0.1:{port}"             # the page, /status, /metrics
token = {token}   # the page asks for it before it changes anything
"""
_OUTBOX: Final = """
[outbox]                               # events of orders: topic dev.events.order
prune = "delete"
keep_s = 60
"""
_OWN_SINKS: Final[Mapping[str, str]] = {
    "search": '\n[sinks.search]\nkind = "search"\nurl = "{search}"\nindex = {{ number_of_replicas = 0 }}\n',
    "cache": '\n[sinks.cache]\nkind = "cache"\nurl = "{cache}"\n',
    "lake": '\n[sinks.lake]\nkind = "warehouse"\npath = "{path}"\n',
}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of the running servers, and the ports of HTTP endpoints. `search` and `cache` may be empty."""

    bootstrap: str
    search: str
    cache: str
    port: int
    sink_ports: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OwnSource:
    """The user's database.

    Attributes:
        name: of the pipeline.
        dsn: without a password.
        password_file: with the password; empty without one.
        slot: of slot and publication; unique to this stack.
        tables: lines of the list `tables`.
    """

    name: str
    dsn: str
    password_file: str
    slot: str
    tables: str


def shop_config(dsn: str, addresses: Addresses, parts: Parts, *, token: str, lake: Path, views: Path) -> str:
    """Return the file for the sample shop."""
    text = f'{_head()}name = "{NAME}"\n\n[source]\ndsn = {toml_string(dsn)}\ntables = ["shop.*"]\n'
    text += _common(addresses, token)
    text += _OUTBOX if parts.outbox else ""
    for sink in parts.sinks:
        text += sink_section(
            sink,
            search=addresses.search,
            cache=addresses.cache,
            path=lake,
            views=views,
            listen=_listen(addresses, sink),
        )
    return text


def own_config(source: OwnSource, addresses: Addresses, parts: Parts, *, token: str, lake: Path) -> str:
    """Return the file for the user's own database."""
    password = f"password_file = {toml_string(source.password_file)}\n" if source.password_file else ""
    text = (
        f'{_head()}name = "{source.name}"\n\n[source]\ndsn = {toml_string(source.dsn)}\n{password}'
        f'slot = "{source.slot}"\npublication = "{source.slot}"\ntables = [\n{source.tables}\n]\n'
    )
    text += _common(addresses, token)
    for sink in parts.sinks:
        text += _OWN_SINKS[sink].format(search=addresses.search, cache=addresses.cache, path=lake)
        text += f'listen = "{_listen(addresses, sink)}"\n'
    return text


def _head() -> str:
    return "# Written by `cdc dev` at each start. It contains a token: keep its mode 0600.\n\n"


def _common(addresses: Addresses, token: str) -> str:
    return _COMMON.format(bootstrap=toml_string(addresses.bootstrap), port=addresses.port, token=toml_string(token))


def _listen(addresses: Addresses, sink: str) -> str:
    return f"127.0.0.1:{addresses.sink_ports[sink]}"
