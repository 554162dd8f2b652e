"""Translates options of Debezium's outbox EventRouter into settings of `[outbox]`. Pure.

A supported option is accepted. Every other option is rejected with a message that names the alternative.
https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.config.debezium_options import flat
from cdc.config.outbox_settings import AGGREGATE
from cdc.errors import ConfigError

_ROUTED: Final = "${routedByValue}"
_TOPIC: Final = f"outbox.event.{AGGREGATE}"  # Debezium's own default
_ROUTER: Final = "io.debezium.transforms.outbox.EventRouter"
_COLUMNS: Final = {
    "table.field.event.id": "id",
    "table.field.event.key": "aggregate_id",
    "table.field.event.type": "type",
    "table.field.event.payload": "payload",
    "table.field.event.schema.version": "version",
    "route.by.field": "aggregate_type",
}
_SAME: Final[Mapping[str, Mapping[str, tuple[str, str] | None]]] = {
    "table.op.invalid.behavior": {
        "warn": ("on_update", "ignore"),
        "error": ("on_update", "ignore"),
        "fatal": ("on_update", "stop"),
    },
    "route.tombstone.on.empty.payload": {"true": ("null_payload", "tombstone")},
    "table.expand.json.payload": {"true": None, "false": None},
    "table.json.payload.null.behavior": {"ignore": None},
    "table.fields.additional.error.on.missing": {"true": None},
    "route.topic.regex": {"(?<routedByValue>.*)": None},
    "type": {_ROUTER: None},
}
"""Option -> value -> our key and its value; None: Tailrace always does this."""
_OTHER: Final = {
    "route.tombstone.on.empty.payload": "an event without a payload is a record without a value, which is a tombstone; "
    'null_payload = "refuse" rejects such events',
    "table.json.payload.null.behavior": "a payload is published unchanged, including nulls",
    "table.fields.additional.error.on.missing": "a column that does not exist would be missing in every event; "
    "remove it from table.fields.additional.placement",
    "route.topic.regex": "two types could then share a topic; use route.by.field with a column that holds the wanted "
    "name, for example a generated column",
    "table.field.event.timestamp": "records have the broker's time, because a wrong clock would stop capture; publish "
    'the column as a header: extra = {"created_at" = "header"}',
    "tracing.span.context.field": 'it holds Java properties; write W3C\'s traceparent into the column "headers", or '
    'publish a column as a header: extra = {"traceparent" = "header"}',
    "tracing.operation.name": "capture creates no spans; an event keeps its own trace context in its headers",
    "tracing.with.context.field.only": "capture creates no spans; an event keeps its own trace context in its headers",
}


def translated(outbox: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the table ``[outbox]`` with the options of `debezium` translated to our keys.

    Args:
        outbox: the table of the file; names with dots may be quoted or not.
        where: name of the file, for messages.

    Raises:
        ConfigError: an option is not supported or unknown, or contradicts a key of ours.
    """
    given = outbox.get("debezium")
    if not isinstance(given, dict):
        return dict(outbox)
    found: dict[str, Any] = {key: value for key, value in outbox.items() if key != "debezium"}
    found["columns"], found["extra"] = dict(found.get("columns", {})), dict(found.get("extra", {}))
    for option, value in flat("", given):
        name = option.removeprefix("transforms.outbox.")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        _put(found, name, text, f"{where}: outbox.debezium.{option}")
    found.setdefault("topic", _TOPIC)
    return found


def _put(found: dict[str, Any], name: str, value: str, said: str) -> None:
    if name in _COLUMNS:
        _set(found["columns"], _COLUMNS[name], value, said)
    elif name == "table.fields.additional.placement":
        for column, placement in _placements(value, said):
            _set(found["extra"], column, placement, said)
    elif name == "route.topic.replacement":
        _set(found, "topic", _topic(value, said), said)
    elif name in _SAME and value in _SAME[name]:
        same = _SAME[name][value]
        if same is not None:
            _set(found, *same, said)
    elif name in _OTHER:
        raise ConfigError(f"{said} = {value!r} is not supported: {_OTHER[name]}", hint=_HINT)
    elif name in _SAME:
        raise ConfigError(f"{said} is {value!r}; expected one of {', '.join(_SAME[name])}", hint=_HINT)
    else:
        raise ConfigError(f"{said} is unknown; expected an option of Debezium's EventRouter", hint=_HINT)


_HINT: Final = "docs/howto/outbox-routing.md lists every option and its alternative"


def _set(table: dict[str, Any], key: str, value: str, said: str) -> None:
    if table.setdefault(key, value) != value:
        raise ConfigError(f"{said} means {key} = {value!r}, but [outbox] has {table[key]!r}", hint="remove one of them")


def _topic(value: str, said: str) -> str:
    if value.count(_ROUTED) != 1:
        raise ConfigError(
            f"{said} is {value!r}; it must contain {_ROUTED} once, or all types would share a topic", hint=_HINT
        )
    return value.replace(_ROUTED, AGGREGATE)


def _placements(value: str, said: str) -> list[tuple[str, str]]:
    found = []
    for part in value.split(","):
        column, _, rest = part.strip().partition(":")
        where, _, alias = rest.partition(":")
        if where == "partition":
            raise ConfigError(
                f"{said}: placement of {column!r} as partition is not supported: the key selects the partition, so "
                "that events with the same key stay in order",
                hint='use the column as ordering key: columns = {ordering_key = "…"}',
            )
        if where not in {"header", "envelope"} or not column:
            raise ConfigError(f"{said} has {part!r}; expected column:header:alias or column:envelope:alias", hint=_HINT)
        found.append((column, f"{where}:{alias}" if alias else where))
    return found
