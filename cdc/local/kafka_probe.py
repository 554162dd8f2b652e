"""Checks whether a Kafka broker is ready, with one request of its protocol and without a client library."""

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
    """Return whether a broker at this address can host a new topic. Never raises.

    An open port is not enough: no topic can be created on a broker until its controller has unfenced it.
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
    """Return a Metadata request, version 1, for no topic; the response lists the brokers.

    https://kafka.apache.org/protocol#The_Messages_Metadata. Version 1 is the oldest that can request no topic, and it
    has no compact fields.
    """
    name = client.encode()
    body = struct.pack(f">hhih{len(name)}si", _METADATA, 1, _CORRELATION, len(name), name, 0)
    return struct.pack(">i", len(body)) + body


def alive_brokers(response: bytes) -> int:
    """Return the number of brokers in the response to `metadata_request`; 0 for an incomplete response.

    The response does not contain fenced brokers.
    """
    if len(response) < _ANSWER_BYTES:
        return 0
    _size, correlation, count = struct.unpack_from(">iii", response)
    return max(0, int(count)) if correlation == _CORRELATION else 0
