"""The OpenAPI document of the HTTP endpoints, served as /openapi.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc import __version__
from cdc.model.run_state import State
from cdc.web.wait_endpoint import TIMEOUT_DEFAULT_S, TIMEOUT_MAX_S

_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
}
_STATUS: Final = {
    "type": "object",
    "required": ["name", "state", "reason", "state_seconds", "error"],
    "properties": {
        "name": {"type": "string"},
        "state": {"type": "string", "enum": [state.name for state in State]},
        "reason": {"type": ["string", "null"]},
        "state_seconds": {"type": "number"},
        "error": {
            "type": ["object", "null"],
            "required": ["error", "message"],
            "properties": {name: {"type": ["string", "null"]} for name in ("error", "message", "hint", "command")},
        },
    },
}
_VISIBLE: Final = {
    "type": "object",
    "required": ["sink", "lsn", "reached", "cut", "waited_seconds"],
    "properties": {
        "sink": {"type": "string"},
        "lsn": {"type": "string"},
        "reached": {"type": ["string", "null"]},
        "cut": {"type": ["integer", "null"]},
        "waited_seconds": {"type": "number", "minimum": 0},
        "blocked": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["table"],
                "properties": {"table": {"type": "string"}, "key": {"type": "string"}},
            },
        },
        "error": {"type": "string"},
    },
}
_REFUSED: Final = {"description": "a query parameter is not known, or its value is invalid"}


def document(sinks: Sequence[str] | None) -> dict[str, Any]:
    """Return the document of a server with these sinks; None: without /sinks/{sink}/wait."""
    paths = {
        "/livez": {"get": _operation("Whether the process is alive", {200: _text("alive")})},
        "/readyz": {
            "get": _operation("Whether the process is ready", {200: _text("ready"), 503: _text("not ready: its state")})
        },
        "/metrics": {"get": _operation("Metrics in Prometheus' text format", {200: _text("the page")})},
        "/status": {"get": _operation("The state of the process", {200: _json("the state", _STATUS)})},
        "/openapi.json": {"get": _operation("This document", {200: _json("the document", {"type": "object"})})},
    }
    if sinks is not None:
        paths["/sinks/{sink}/wait"] = {"get": _wait(sinks)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tailrace", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "http.token"}},
        },
    }


def _wait(sinks: Sequence[str]) -> dict[str, Any]:
    parameters = [
        {"name": "sink", "in": "path", "required": True, "schema": {"type": "string", "enum": sorted(sinks)}},
        {
            "name": "lsn",
            "in": "query",
            "required": True,
            "description": "result of pg_current_wal_insert_lsn() after the COMMIT",
            "schema": {"type": "string", "pattern": "^[0-9A-F]{1,8}/[0-9A-F]{1,8}$"},
        },
        {
            "name": "timeout_s",
            "in": "query",
            "description": "how long to wait",
            "schema": {"type": "number", "minimum": 0, "maximum": TIMEOUT_MAX_S, "default": TIMEOUT_DEFAULT_S},
        },
        {
            "name": "key",
            "in": "query",
            "content": {"application/json": {"schema": {"type": "object"}}},
            "description": "a JSON object as in the topic; the newest row of this key must be in the sink",
        },
        {
            "name": "table",
            "in": "query",
            "schema": {"type": "string"},
            "description": "the table of the key",
        },
    ]
    answers = {
        200: _json("the sink holds the transactions and readers see them", _VISIBLE),
        401: _json("the bearer token does not match", _ERROR),
        404: _json("unknown sink", _ERROR),
        409: _json("a dead letter blocks the key", _ERROR),
        503: _json("too many requests are waiting, the sink cannot be read, or the process is stopping", {}),
        504: _json("the time is up: how far the sink is", _VISIBLE),
    }
    found = _operation("Wait until a sink holds what was committed before an LSN", answers)
    return {**found, "parameters": parameters, "security": [{}, {"token": []}]}


def _operation(summary: str, answers: Mapping[int, Any]) -> dict[str, Any]:
    refused = {**_json("", _ERROR), **_REFUSED}
    codes = {**answers, 400: refused, 421: _json("the header Host is not accepted", _ERROR)}
    return {"summary": summary, "responses": {str(code): codes[code] for code in sorted(codes)}}


def _json(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _text(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}
