"""Which port a server listens on. Loopback only."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING, Final

from cdc.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LOOPBACK: Final = "127.0.0.1"
# Below the range that Linux (32768) and macOS (49152) take outgoing connections' ports from: a server that is
# stopped for a moment must not lose its port to somebody's connection.
_LOWEST: Final = 21000
_HIGHEST: Final = 31999
_TRIES_MAX: Final = 200
# Not the seeded generator: two test runs of one seed side by side would ask for the same ports.
_RANDOM: Final = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a server could listen there now; connections of its last life do not count."""
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
    """A port for each role: the wanted one, else the remembered one if it is free, else any free one.

    Raises:
        LocalError: a wanted port is taken, or no free one was found.
    """
    ports: dict[str, int] = {}
    for role in roles:
        if role in wanted:
            if not free(wanted[role]):
                raise LocalError(
                    f"port {wanted[role]} on {LOOPBACK} is taken by another program",
                    hint="end that program, or leave the port out and a free one is taken",
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
            raise LocalError(f"found no free port between {_LOWEST} and {_HIGHEST}", hint="give one")
        ports[role] = chosen
    return ports
