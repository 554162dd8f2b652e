"""Whether a Kafka broker is ready: one question in its own protocol, without a client library."""

from __future__ import annotations

import socket
import struct
from typing import Final

_TIMEOUT_S: Final = 2.0
_CLIENT: Final = "tailrace-local"
_METADATA: Final = 3
_CORRELATION: Final = 1
# Size, correlation id and the number of brokers.
_ANSWER_BYTES: Final = 12


def broker_answers(host: str, port: int) -> bool:
    """Whether a broker there could take a new topic now. Never raises.

    That it listens is not enough: until its controller has let it in (unfenced it), no topic can be put on it.
    """
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(metadata_request(_CLIENT))
            answer = b""
            while len(answer) < _ANSWER_BYTES and (more := connection.recv(_ANSWER_BYTES - len(answer))):
                answer += more
    except OSError:
        return False
    return alive_brokers(answer) > 0


def metadata_request(client: str) -> bytes:
    """A Metadata request, version 1, for no topic: which brokers are there?

    https://kafka.apache.org/protocol#The_Messages_Metadata. Version 1 is the oldest that can ask for no topic, and
    has no compact fields.
    """
    name = client.encode()
    body = struct.pack(f">hhih{len(name)}si", _METADATA, 1, _CORRELATION, len(name), name, 0)
    return struct.pack(">i", len(body)) + body


def alive_brokers(response: bytes) -> int:
    """How many brokers the answer to `metadata_request` names; 0 for what is no whole answer.

    A broker that is still fenced is not among them, and no topic could be put on it.
    """
    if len(response) < _ANSWER_BYTES:
        return 0
    _size, correlation, count = struct.unpack_from(">iii", response)
    return max(0, int(count)) if correlation == _CORRELATION else 0
