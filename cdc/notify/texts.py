"""Writes messages as JSON for webhooks, signed if there is a secret, and as text for Slack. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from cdc import __version__
from cdc.notify.trouble_set import Message, Trouble

_SHOWN: Final = 20  # troubles in one text; a message must stay readable, and Slack limits its length
_LENGTH: Final = 500  # of one text in it


def webhook_body(message: Message, pipeline: str, wall_s: float) -> bytes:
    """Return the JSON document that docs/howto/notify.md describes."""
    document: dict[str, Any] = {
        "type": f"tailrace.{message.kind}",
        "timestamp": _time(wall_s),
        "data": {
            "pipeline": pipeline,
            "version": __version__,
            "text": plain_text(message, pipeline),
            "firing": [_document(one) for one in message.firing[:_SHOWN]],
            "new": [one.attention.what for one in message.new[:_SHOWN]],
            "resolved": [_document(one) for one in message.resolved[:_SHOWN]],
        },
    }
    return json.dumps(document, ensure_ascii=False).encode()


def slack_body(message: Message, pipeline: str) -> bytes:
    """Return the JSON of an incoming webhook, see https://docs.slack.dev/messaging/formatting-message-text/ ."""
    text = plain_text(message, pipeline).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return json.dumps({"text": text}, ensure_ascii=False).encode()


def signature(key: bytes, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed message.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """
    signed = hmac.new(key, f"{message_id}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return {**unsigned(message_id, at_s), "webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}


def unsigned(message_id: str, at_s: int) -> dict[str, str]:
    """Return the headers that identify a message. The id is the same in each attempt to deliver it."""
    return {"webhook-id": message_id, "webhook-timestamp": str(at_s)}


def plain_text(message: Message, pipeline: str) -> str:
    """Return the message as lines of text."""
    return "\n".join(_lines(message, pipeline))


def _lines(message: Message, pipeline: str) -> Iterator[str]:
    count = len(message.firing)
    match message.kind:
        case "test":
            yield f"Tailrace {pipeline}: this is a test message; nothing is wrong"
        case "resolved":
            yield f"Tailrace {pipeline}: resolved"
        case "repeated":
            yield f"Tailrace {pipeline}: {_problems(count)} not resolved yet"
        case "firing":
            yield f"Tailrace {pipeline}: {_problems(count)}"
    for one in message.firing[:_SHOWN]:
        attention = one.attention
        new = " (new)" if one in message.new and len(message.new) < count else ""
        yield f"- {attention.what}{new}, {attention.severity}: {_short(attention.says)} (since {_time(one.since_s)})"
        if attention.hint:
            yield f"  hint: {_short(attention.hint)}"
        if attention.command:
            yield f"  try: {_short(attention.command)}"
        yield f"  see: {attention.runbook}"
    if count > _SHOWN:
        yield f"- and {count - _SHOWN} more"
    for one in message.resolved[:_SHOWN]:
        yield f"- resolved: {one.attention.what}: {_short(one.attention.says)} (since {_time(one.since_s)})"


def _problems(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"


def _document(trouble: Trouble) -> dict[str, str]:
    attention = trouble.attention
    return {
        "what": attention.what,
        "severity": attention.severity,
        "says": _short(attention.says),
        "since": _time(trouble.since_s),
        "hint": _short(attention.hint),
        "command": _short(attention.command),
        "runbook": attention.runbook,
    }


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LENGTH else line[: _LENGTH - 1] + "…"


def _time(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
