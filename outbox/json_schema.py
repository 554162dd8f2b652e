"""Validates payloads against JSON Schemas, strictly for writers and leniently for readers.

Only this module imports `jsonschema_rs`. If a contract does not mention additional members, a writer may not write any,
and readers ignore them. So a member can be declared later, and no older event has another meaning under its name.
``"additionalProperties": true`` turns this off.
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
    """A violation of a contract: a JSON pointer into the payload, and the broken keyword. Contains no values."""

    path: str
    rule: str


class Validator:
    """A compiled schema. Thread-safe."""

    def __init__(self, schema: Schema, where: str) -> None:
        """Compile a schema. Raises ContractInvalid, which names `where`, if it is not valid under draft 2020-12."""
        self._validator = _validator(schema, where)

    def breaches(self, value: object, *, most: int = 5) -> list[Breach]:
        """Return at most `most` violations of the schema; empty if the value is valid."""
        found: list[Breach] = []
        errors: Iterator[Any] = self._validator.iter_errors(value)
        for error in errors:
            found.append(Breach(pointer(error.instance_path), _rule(error.schema_path)))
            if len(found) >= most:
                break
        return found

    def accepts(self, value: object) -> bool:
        """Whether the value is valid."""
        return self._validator.is_valid(value)


def _validator(schema: Schema, where: str) -> jsonschema_rs.Draft202012Validator:
    if isinstance(schema, Mapping) and schema.get("$schema", _DRAFT).rstrip("#") != _DRAFT:
        raise ContractInvalid(f"{where} uses another draft than 2020-12", hint=f'use "$schema": "{_DRAFT}"')
    try:
        # Never fetch a reference: what the network returns may change without a change of the contract.
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=True, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        path = pointer(getattr(error, "instance_path", []))
        raise ContractInvalid(
            f"{where} is not a valid JSON Schema: {path or 'the document'} breaks "
            f"{_rule(getattr(error, 'schema_path', []))}",
            hint="write it in draft 2020-12, with references only to the same file",
        ) from None


def strict(schema: Schema) -> Schema:
    """Return the schema for writers: objects allow no undeclared members unless they say so. Leaves `schema` as is."""
    if isinstance(schema, bool):
        return schema
    composed = set(_composed_references(schema, inside=False))
    made: dict[str, Any] = _closed(schema, composed, "#")
    return made


def pointer(path: list[str | int]) -> str:
    """Return a JSON pointer (RFC 6901), truncated if the payload's own names make it long."""
    text = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
    return text if len(text) <= _PATH_MAX else text[:_PATH_MAX] + "…"


def _rule(path: list[str | int]) -> str:
    """Return the broken keyword: the last name in the path."""
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
    """Yield references from within ``allOf`` and the like: a closed target would refuse the members beside it."""
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
