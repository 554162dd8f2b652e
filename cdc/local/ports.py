"""Chooses the ports of local servers, on loopback only."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cdc.errors import LocalError

LOOPBACK: Final = "127.0.0.1"
# Below the ephemeral ports of Linux (from 32768) and macOS (from 49152): a server that is stopped for a moment must not
# lose its port to an outgoing connection.
_LOWEST: Final = 21000
_HIGHEST: Final = 31999
_TRIES_MAX: Final = 200
# Not the seeded generator: two parallel test runs with the same seed would choose the same ports.
_RANDOM: Final = random.SystemRandom()


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now; connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_ports(
    roles: Iterable[str],
    *,
    wanted: Mapping[str, int],
    remembered: Mapping[str, int],
    free: Callable[[int], bool] = is_free,
    pick: Callable[[int, int], int] = _RANDOM.randint,
) -> dict[str, int]:
    """Return a port for each role: the wanted one, else the remembered one if it is free, else any free one.

    Raises:
        LocalError: a wanted port is in use, or no free port was found.
    """
    ports: dict[str, int] = {}
    for role in roles:
        if role in wanted:
            if not free(wanted[role]):
                raise LocalError(
                    f"port {wanted[role]} on {LOOPBACK} is in use by another program",
                    hint="stop that program, or omit the port to use a free one",
                    command=f"ss -ltnp 'sport = :{wanted[role]}'",
                    port=wanted[role],
                )
            ports[role] = wanted[role]
            continue
        candidates = [remembered[role]] if role in remembered else []
        candidates += [pick(_LOWEST, _HIGHEST) for _ in range(_TRIES_MAX)]
        used = {*ports.values(), *wanted.values()}
        chosen = next((p for p in candidates if p not in used and free(p)), None)
        if chosen is None:
            raise LocalError(f"no free port between {_LOWEST} and {_HIGHEST}", hint="pass a port")
        ports[role] = chosen
    return ports
