"""The record of one action in the topic ``<name>.__actions``, as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cdc.errors import TailraceError

Result: TypeAlias = Literal["done", "requested", "refused", "failed"]
"""What became of an action.

done       it took effect
requested  capture or a sink carries it out when it runs, or has not confirmed it in time
refused    the request is wrong, or does not fit the state: nothing changed
failed     it ended with another error; it may have taken effect
"""

ERROR_CHARACTERS_MAX: Final = 500
ACTION_VERSION: Final = 1
LIMIT_MAX: Final = 1000
"""The newest records that one request may read."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who performs an action, and from where.

    who     CLI: the user of the operating system; HTTP: ``token``; a signal: its name
    origin  CLI and signals: host name and process id; HTTP: the address of the client
    """

    who: str
    origin: str
    via: Literal["cli", "http", "signal"]


class ActionError(msgspec.Struct, frozen=True, rename={"kind": "class"}):
    """Why an action did not succeed. An error that is a bug has no message, because its text may quote values."""

    kind: str
    message: str = ""


class ActionRecord(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from"}):
    """One action. `at` is the time of its end, in UTC. `version` is left out for 1."""

    at: str
    who: str
    origin: str
    via: str
    action: str
    arguments: dict[str, Any]
    result: Result
    error: ActionError | None = None
    version: int | msgspec.UnsetType = msgspec.UNSET


def error_of(error: BaseException) -> ActionError:
    """Return the part of an error that is recorded."""
    if isinstance(error, TailraceError):
        return ActionError(type(error).__name__, error.message[:ERROR_CHARACTERS_MAX])
    return ActionError(type(error).__name__)


def encode(record: ActionRecord) -> bytes:
    """Return the value of the record in Kafka."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:  # an argument of the command line that is not UTF-8
        return json.dumps(document(record), ensure_ascii=False).encode(errors="replace")


def decode(value: bytes | None) -> ActionRecord | None:
    """Return the record; None for a value of another version, or of another program. Its readers count these."""
    try:
        found = msgspec.json.decode(value or b"", type=ActionRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.version in {msgspec.UNSET, ACTION_VERSION} else None


def document(record: ActionRecord) -> dict[str, Any]:
    """Return a record for programs."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found
