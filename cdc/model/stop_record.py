"""The record in ``<name>.__progress`` about the last stop of capture that needs an operator. Pure.

Its key is ``<name>/stop``. `cdc why` reads it, because a process that has ended can no longer be asked. Nothing else
depends on it. It is written outside of transactions, and counts only while it is newer than everything that capture has
written.
"""

from __future__ import annotations

from typing import Final

import msgspec

STOP_VERSION: Final = 1


class StopRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stop.

    Attributes:
        at_ms: its time in milliseconds since 1970, by the clock of the process.
        state: the state in which capture stopped.
        error: class of the error; `message`, `hint` and `command` are its texts.
    """

    version: int = STOP_VERSION
    at_ms: int
    state: str
    error: str
    message: str
    hint: str = ""
    command: str = ""


def stop_key(name: str) -> bytes:
    """Return the key of the StopRecord."""
    return f"{name}/stop".encode()


def encode(record: StopRecord) -> bytes:
    """Return the bytes of a record."""
    return msgspec.json.encode(record)


def decode(data: bytes) -> StopRecord | None:
    """Return the record; None for another version or unreadable bytes."""
    try:
        found = msgspec.json.decode(data, type=StopRecord)
    except msgspec.MsgspecError:
        return None
    return found if found.version == STOP_VERSION else None
