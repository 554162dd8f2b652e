"""Limits the head of an HTTP request in bytes and time."""

from __future__ import annotations

import io
import socket
import time
from http.client import LineTooLong
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES_MAX: Final = 16 << 10


def bounded_head(connection: socket.socket, within_s: float) -> io.BufferedReader:
    """Return a file of what a client sends.

    A read raises TimeoutError when `within_s` have passed since this call, even if bytes keep arriving, and LineTooLong
    after HEAD_BYTES_MAX.
    """
    return io.BufferedReader(_Head(connection, time.monotonic() + within_s), 1024)


class _Head(io.RawIOBase):
    def __init__(self, connection: socket.socket, ends_s: float) -> None:
        self._connection = connection
        self._ends_s = ends_s
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request head took too long")
        before_s = self._connection.gettimeout()
        self._connection.settimeout(left_s)
        try:
            count = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(before_s)
        self._count += count
        if self._count > HEAD_BYTES_MAX:
            raise LineTooLong("head")
        return count
