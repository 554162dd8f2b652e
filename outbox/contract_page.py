"""Writes a Markdown page that documents every event and its contract. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from outbox.event_contracts import Contract, Contracts
from outbox.json_schema import Schema


def page(contracts: Contracts, title: str = "Events") -> str:
    """Return the page: a chapter per aggregate type, and a section per event type with its newest version."""
    lines = [f"# {title}", "", "Written by `cdc contracts docs` from the contracts.", ""]
    for aggregate_type, group in groupby(contracts, lambda contract: contract.id.aggregate_type):
        lines += [f"## {_plain(aggregate_type)}", ""]
        for name, versions in groupby(group, lambda contract: contract.id.type):
            newest, *older = sorted(versions, key=lambda contract: -contract.id.version)
            lines += _event(name, newest)
            if older:
                lines += [f"Older versions: {', '.join(str(one.id.version) for one in older)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _event(name: str, contract: Contract) -> Iterator[str]:
    schema = contract.schema if isinstance(contract.schema, dict) else {}
    yield f"### {_plain(name)}, version {contract.id.version}"
    yield ""
    for key in ("title", "description"):
        if schema.get(key):
            yield _plain(str(schema[key]))
            yield ""
    rows = list(_rows(schema, "", schema))
    if rows:
        yield "| Field | Type | Required | Description |"
        yield "|---|---|---|---|"
        yield from rows
        yield ""
    for example in contract.examples[:1]:
        yield "```json"
        yield json.dumps(example, indent=2, ensure_ascii=False)
        yield "```"
        yield ""


def _rows(schema: Any, above: str, root: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield a table row for each member, followed by the rows of the members inside it."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > 8:  # deeper levels would make the page unreadable
        return
    required = set(schema.get("required", ()))
    for name, given in schema.get("properties", {}).items():
        member = _resolved(given, root)
        place = f"{above}{name}"
        what = _plain(str(member.get("description", ""))) if isinstance(member, dict) else ""
        yield f"| `{_plain(place)}` | {_type(member, root)} | {'yes' if name in required else ''} | {what} |"
        yield from _rows(member, f"{place}.", root, depth + 1)
        if isinstance(member, dict) and "items" in member:
            yield from _rows(member["items"], f"{place}[].", root, depth + 1)


def _type(schema: Schema, root: dict[str, Any]) -> str:
    if not isinstance(schema, dict):
        return "anything" if schema else "nothing"
    if "const" in schema:
        return f"`{_plain(json.dumps(schema['const'], ensure_ascii=False))}`"
    if "enum" in schema:
        return ", ".join(f"`{_plain(json.dumps(value, ensure_ascii=False))}`" for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(_resolved(one, root), root) for one in schema[word])
    kinds = schema.get("type", "anything")
    text = kinds if isinstance(kinds, str) else " or ".join(kinds)
    if text == "array" and isinstance(schema.get("items"), dict):
        text = f"array of {_type(_resolved(schema['items'], root), root)}"
    return f"{text} ({schema['format']})" if "format" in schema else text


def _resolved(schema: Any, root: dict[str, Any]) -> Any:
    for _ in range(8):
        if not isinstance(schema, dict) or not str(schema.get("$ref", "")).startswith("#/"):
            return schema
        found: Any = root
        for part in schema["$ref"][2:].split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        schema = found
    return {}


def _plain(text: str) -> str:
    """Put a text on one line and escape it for a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")
