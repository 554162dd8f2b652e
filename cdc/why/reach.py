"""Opens a TCP connection to an address: does the name resolve, is the network silent, is the port closed?"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

from psycopg import Error as PostgresError
from psycopg.conninfo import conninfo_to_dict

from cdc.clock import Clock
from cdc.config.secret import Secret
from cdc.why.evidence import Outcome, Reach

CONNECT_S: Final = 2.0
_PORTS: Final = {"redis": 6379, "rediss": 6379, "http": 80, "https": 443}
ADDRESSES_MAX: Final = 3
"""Brokers or hosts that are tried; the first ones of a long list say enough."""


def reach(host: str, port: int, clock: Clock, *, timeout_s: float = CONNECT_S) -> Reach:
    """Try one address. A path is a Unix socket, on which libpq alone can connect."""
    address = f"{host}:{port}"
    began_s = clock.monotonic_s()
    outcome: Outcome = "answers"
    try:
        socket.create_connection((host.strip("[]"), port), timeout_s).close()
    except socket.gaierror:
        outcome = "unresolved"
    except TimeoutError:
        outcome = "silent"
    except ConnectionError:
        outcome = "refused"
    except OSError:
        outcome = "unreachable"
    return Reach(address, outcome, clock.monotonic_s() - began_s)


def reach_brokers(bootstrap: str, clock: Clock) -> tuple[Reach, ...]:
    """Try the brokers of ``host:port,...``, all at once."""
    found = []
    for place in [one.strip() for one in bootstrap.split(",") if one.strip()][:ADDRESSES_MAX]:
        host, _, port = place.rpartition("://")[2].rpartition(":")
        if host and port.isdigit():
            found.append((host, int(port)))
    with ThreadPoolExecutor(ADDRESSES_MAX, thread_name_prefix="reach") as pool:
        return tuple(pool.map(lambda one: reach(one[0], one[1], clock), found))


def reach_source(dsn: Secret, clock: Clock) -> tuple[Reach, ...]:
    """Try the hosts of a DSN; none for a Unix socket, or where the environment names the host."""
    try:
        given = conninfo_to_dict(dsn.reveal())
    except PostgresError:
        return ()
    hosts = str(given.get("hostaddr") or given.get("host") or "").split(",")
    ports = str(given.get("port") or "5432").split(",")
    return tuple(
        reach(host, int(port), clock)
        for host, port in list(zip(hosts, _spread(ports, len(hosts)), strict=True))[:ADDRESSES_MAX]
        if host and not host.startswith(("/", "@")) and port.isdigit()
    )


def reach_urls(urls: str, clock: Clock) -> tuple[Reach, ...]:
    """Try the servers of ``scheme://host:port,...``, or ``scheme://host:port,host:port``."""
    default = _PORTS.get(urls.partition("://")[0], 0)
    found = []
    for one in urls.split(",")[:ADDRESSES_MAX]:
        try:
            place = urlsplit(one.strip() if "://" in one else f"//{one.strip()}")
            host, port = place.hostname, place.port or default
        except ValueError:
            continue
        if host and port:
            found.append((host, port))
    with ThreadPoolExecutor(ADDRESSES_MAX, thread_name_prefix="reach") as pool:
        return tuple(pool.map(lambda one: reach(one[0], one[1], clock), found))


def _spread(ports: Sequence[str], count: int) -> Sequence[str]:
    return list(ports) * count if len(ports) == 1 else [*ports, *["5432"] * count][:count]
