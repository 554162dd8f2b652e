"""Asks the HTTP endpoint of a running process whether it is alive or ready, for health checks.

Imports no client of PostgreSQL or Kafka: a health check runs every few seconds.
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.config.pipelines import HEADER

TIMEOUT_S: Final = 3.0
_ANSWER_BYTES_MAX: Final = 1024
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - these are addresses to connect to
_PROGRAM: Final = "cdc"


@dataclass(frozen=True, slots=True)
class Probed:
    """The answer of an endpoint. `text` is its first line, or the reason why there is no answer."""

    ok: bool
    url: str
    text: str


def reachable(listen: str) -> tuple[str, int] | None:
    """Return host and port at which this machine reaches a `listen` setting; None if it has no port."""
    host, _, port = listen.rpartition(":")
    if not listen or port == "0":
        return None
    return _ANYWHERE.get(host, host).strip("[]"), int(port)


def probe(
    address: tuple[str, int], path: str, *, tls: bool, timeout_s: float = TIMEOUT_S, pipeline: str = ""
) -> Probed:
    """Request `path`, of one pipeline if the process runs several. Never raises: no answer is a result.

    The certificate is not checked. The request carries no secret, and a renewed certificate, one for another name or an
    expired one must not end a process that works.
    """
    host, port = address
    url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{path}"
    connection: http.client.HTTPConnection
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        # The server accepts this name whatever http.hosts says.
        connection.request("GET", path, headers={"Host": "localhost"} | ({HEADER: pipeline} if pipeline else {}))
        answer = connection.getresponse()
        lines = answer.read(_ANSWER_BYTES_MAX).decode("utf-8", "replace").splitlines()
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Probed(ok=False, url=url, text=reason or type(error).__name__)
    finally:
        connection.close()
    said = lines[0] if lines else ""
    return Probed(answer.status == http.client.OK, url, f"{answer.status} {said}".rstrip())


def arguments_of(pid: int) -> list[str]:
    """Return the arguments of `cdc` in process `pid`, without the program; empty if it does not run `cdc`.

    Raises: OSError if there is no such process.
    """
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
    places = [index for index, word in enumerate(words) if Path(word).name == _PROGRAM]
    return words[places[0] + 1 :] if places else []
