"""The OpenAPI document of the HTTP endpoints, served as /openapi.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.json import schema_components

from cdc import __version__
from cdc.control.action_record import LIMIT_MAX
from cdc.control.requests import ACTIONS, ActionRequest
from cdc.model.run_state import State
from cdc.web.actions_endpoint import LIMIT_DEFAULT
from cdc.web.wait_endpoint import TIMEOUT_DEFAULT_S, TIMEOUT_MAX_S

if TYPE_CHECKING:
    from cdc.web.page_routes import PageDocument

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
        "snapshotting": {
            "description": "tables that snapshots are reading: they may lack earlier changes, so the sink is not there",
            "type": "array",
            "items": {"type": "string"},
        },
        "error": {"type": "string"},
    },
}
_REFUSED: Final = {"description": "a query parameter is not known, or its value is invalid"}


_RECORD: Final = {
    "type": "object",
    "required": ["at", "who", "from", "via", "action", "arguments", "result", "error"],
    "properties": {
        **{name: {"type": "string"} for name in ("at", "who", "from", "via", "action", "result")},
        "arguments": {"type": "object"},
        "error": {
            "type": ["object", "null"],
            "properties": {name: {"type": "string"} for name in ("class", "message")},
        },
    },
}
_RECORDS: Final = {
    "type": "object",
    "required": ["actions", "unreadable"],
    "properties": {"actions": {"type": "array", "items": _RECORD}, "unreadable": {"type": "integer"}},
}
_OUTCOME: Final = {
    "type": "object",
    "required": ["action", "result", "recorded", "facts"],
    "properties": {
        "action": {"type": "string", "enum": list(ACTIONS)},
        "result": {"type": "string", "enum": ["done", "requested"]},
        "recorded": {"type": "boolean"},
        "warning": {"type": "string"},
        "facts": {"type": "object"},
    },
}
_FAILED: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        **{name: {"type": "string"} for name in ("error", "class", "hint", "command", "action", "result", "warning")},
        "recorded": {"type": "boolean"},
    },
}


def document(
    sinks: Sequence[str] | None, *, actions: bool = False, page: Sequence[PageDocument] = ()
) -> dict[str, Any]:
    """Return the document of a server with these sinks; None: without /sinks/{sink}/wait. `page`: those of /api/."""
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
    schemas: dict[str, Any] = {}
    if actions:
        (request,), schemas = schema_components([ActionRequest], ref_template="#/components/schemas/{name}")
        paths["/actions"] = {"get": _recorded(), "post": _performed(request)}
    paths |= {f"/api/{one.path}": {"get": _of_page(one)} for one in page}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tailrace", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": _without_defaults(schemas),
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


def _of_page(one: PageDocument) -> dict[str, Any]:
    """Return an operation of the page. Its document is for the page, and may change with a release."""
    answers = {
        200: _json("the document", {"type": "object"}),
        400: _json("a parameter is unknown, missing or invalid", _FAILED),
        401: _json("the bearer token does not match http.token", _ERROR),
        409: _json("what it names does not exist, or an operator must act", _FAILED),
        503: _json("too many requests are waiting, or Kafka or a store does not answer", _FAILED),
    }
    if one.needs_token:
        answers[403] = _json("http.token is not configured", _ERROR)
    parameters = [
        {"name": name, "in": "query", "required": parameter.default is None, "description": parameter.says,
         "schema": parameter.schema()}
        for name, parameter in one.parameters.items()
    ]  # fmt: skip
    security: list[dict[str, list[str]]] = [{"token": []}] if one.needs_token else [{}, {"token": []}]
    return {**_operation(one.says, answers), "parameters": parameters, "security": security}


def _recorded() -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}
    parameters = [{"name": "limit", "in": "query", "description": "how many records", "schema": schema}]
    answers = {
        200: _json("the newest records, the oldest first", _RECORDS),
        **_of_token(),
        409: _json("Kafka refuses to read them", _FAILED),
        503: _json("too many requests are running, or Kafka does not answer", _FAILED),
    }
    found = _operation("The newest recorded actions", answers)
    return {**found, "parameters": parameters, "security": [{"token": []}]}


def _performed(request: Mapping[str, Any]) -> dict[str, Any]:
    answers = {
        200: _json("what was done, or was requested from capture or a sink", _OUTCOME),
        **_of_token(),
        409: _json("the action is refused, or needs an operator", _FAILED),
        413: _json("the body is too long", _ERROR),
        415: _json("the body is not application/json", _ERROR),
        503: _json("too many requests are running, or Kafka or a store does not answer", _FAILED),
        504: _json("the pause is requested, and workers have not stopped in time", _FAILED),
    }
    found = _operation("Perform an action", answers)
    body = {"required": True, "content": {"application/json": {"schema": request}}}
    return {**found, "requestBody": body, "security": [{"token": []}]}


def _of_token() -> dict[int, Any]:
    return {
        401: _json("the bearer token is missing or does not match", _ERROR),
        403: _json("http.token is not configured", _ERROR),
    }


def _without_defaults(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out msgspec's defaults: an absent field is not the same as an empty one."""
    for schema in schemas.values():
        for field in schema["properties"].values():
            field.pop("default", None)
    return dict(schemas)


def _operation(summary: str, answers: Mapping[int, Any]) -> dict[str, Any]:
    refused = {**_json("", _ERROR), **_REFUSED}
    codes = {**answers, 400: refused, 421: _json("the header Host is not accepted", _ERROR)}
    return {"summary": summary, "responses": {str(code): codes[code] for code in sorted(codes)}}


def _json(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _text(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}
