"""JSON Schema as contracts use it: the one importing place of the validator, and what a writer is held to.

A contract is **written strictly and read leniently**: where it does not say what becomes of members it does not
declare, a writer may not use any, and a reader passes over them. So a member can be declared later without anybody
having written something else under its name. A contract that says ``"additionalProperties": true`` gives that up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import jsonschema_rs

from outbox.errors import ContractInvalid

Schema: TypeAlias = "dict[str, Any] | bool"

COMPOSING: Final = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
_BESIDE: Final = (*COMPOSING, "$ref", "$dynamicRef", "patternProperties", "unevaluatedProperties")
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_PATH_MAX: Final = 200


class Breach(NamedTuple):
    """Where a payload breaks its contract: a JSON pointer into it, and the keyword it breaks. Without values."""

    path: str
    rule: str


class Validator:
    """A schema that is ready to be used. Thread-safe."""

    def __init__(self, schema: Schema, where: str) -> None:
        """Raises ContractInvalid, which names `where`, for what is no JSON Schema of draft 2020-12."""
        self._validator = _validator(schema, where)

    def breaches(self, value: object, *, most: int = 5) -> list[Breach]:
        """In what the value breaks the schema; empty: in nothing."""
        found: list[Breach] = []
        errors: Iterator[Any] = self._validator.iter_errors(value)
        for error in errors:
            found.append(Breach(pointer(error.instance_path), _rule(error.schema_path)))
            if len(found) >= most:
                break
        return found

    def takes(self, value: object) -> bool:
        """Whether the value keeps to the schema."""
        return self._validator.is_valid(value)


def _validator(schema: Schema, where: str) -> jsonschema_rs.Draft202012Validator:
    if isinstance(schema, Mapping) and schema.get("$schema", _DRAFT).rstrip("#") != _DRAFT:
        raise ContractInvalid(f"{where} is of another draft than 2020-12", hint=f'"$schema": "{_DRAFT}"')
    try:
        # Nothing is fetched: a contract that needs the network would be another one tomorrow.
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        path = pointer(getattr(error, "instance_path", []))
        raise ContractInvalid(
            f"{where} is no JSON Schema: {path or 'the document'} breaks {_rule(getattr(error, 'schema_path', []))}",
            hint="draft 2020-12; references lead to the same file only",
        ) from None


def strict(schema: Schema) -> Schema:
    """What a writer is held to: the schema, with objects closed that do not say otherwise. Pure; `schema` stays."""
    if isinstance(schema, bool):
        return schema
    composed = set(_composed_references(schema, inside=False))
    made: dict[str, Any] = _closed(schema, composed, "#")
    return made


def pointer(path: list[str | int]) -> str:
    """A JSON pointer (RFC 6901), cut where a payload's own names make it long."""
    text = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
    return text if len(text) <= _PATH_MAX else text[:_PATH_MAX] + "…"


def _rule(path: list[str | int]) -> str:
    """The keyword that was broken: the last of the path that is one."""
    words = [part for part in path if isinstance(part, str)]
    return words[-1] if words else "false"


def _closed(schema: Any, composed: set[str], at: str) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for name in ("properties", "$defs"):
        if isinstance(made.get(name), dict):
            made[name] = {key: _closed(value, composed, f"{at}/{name}/{key}") for key, value in made[name].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _closed(made[name], composed, f"{at}/{name}")
    if isinstance(made.get("prefixItems"), list):
        made["prefixItems"] = [_closed(one, composed, f"{at}/prefixItems") for one in made["prefixItems"]]
    open_ended = "properties" in made and "additionalProperties" not in made
    if open_ended and at not in composed and not any(name in made for name in _BESIDE):
        made["additionalProperties"] = False
    return made


def _composed_references(schema: Any, *, inside: bool) -> Iterator[str]:
    """References from within ``allOf`` and its like: closing what they lead to would refuse what stands beside it."""
    if isinstance(schema, list):
        for one in schema:
            yield from _composed_references(one, inside=inside)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and (inside or len(schema) > 1):
        yield reference
    for name, value in schema.items():
        yield from _composed_references(value, inside=inside or name in COMPOSING)
