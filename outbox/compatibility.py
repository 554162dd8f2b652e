"""Checks whether a new contract is compatible with an old one. Pure.

The check reports "compatible" only if it can prove it, and reports what it cannot prove as a problem. So a keyword that
depends on its neighbours (`additionalProperties`, `then`, `minContains`) must never be compared by itself. Tests
generate payloads that the old contract allows and validate them against the new one.

- **backward**: readers with the new contract can read events written under the old one (upgrade consumers first),
- **forward**: readers with the old contract can read events written under the new one (upgrade producers first),
- **full**: both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple

from outbox.json_schema import Schema, Validator, strict

Mode = Literal["backward", "forward", "full"]

_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
     "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema"}
)  # fmt: skip
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string"})
# Keywords with a meaning of their own: a schema with the same keyword and value is at least as narrow.
_ALONE: Final = frozenset(
    {"not", "propertyNames", "dependentRequired", "dependentSchemas", "oneOf", "pattern", "format"}
)
# Keywords whose meaning depends on each other: the whole group must be equal.
_TOGETHER: Final = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
)
_WHOLE: Final = frozenset({"unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$anchor", "$dynamicAnchor"})
_HANDLED: Final = frozenset(
    {"type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties", "items",
     "prefixItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
     "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "allOf", "anyOf", "$ref",
     *_ALONE, *_WHOLE, *(name for group in _TOGETHER for name in group)}
)  # fmt: skip
_DEPTH_MAX: Final = 60


class Problem(NamedTuple):
    """An incompatibility between two contracts: the path in the contract, and what is wrong there."""

    path: str
    what: str


def problems(old: Schema, new: Schema, mode: Mode = "backward") -> list[Problem]:
    """Return why `new` may not follow `old`; empty if they are compatible."""
    found: list[Problem] = []
    if mode in {"backward", "full"}:
        found += [Problem(at, f"{what} (in events of the old contract)") for at, what in included(strict(old), new)]
    if mode in {"forward", "full"}:
        found += [Problem(at, f"{what} (for readers of the old contract)") for at, what in included(strict(new), old)]
    return found


def included(written: Schema, read: Schema) -> list[Problem]:
    """Return why a value that is valid under `written` might be invalid under `read`; empty if none can be."""
    return list(_Rule(written, read).check(written, read, "", 0))


class _Rule:
    """Compares two documents. Keeps their roots, for references, and the pairs that are being compared."""

    def __init__(self, written: Schema, read: Schema) -> None:
        self._roots = (written, read)
        self._open: set[tuple[str, str]] = set()

    def check(self, old: Any, new: Any, at: str, depth: int) -> Iterator[Problem]:
        """Yield the problems of this pair of schemas and of the schemas inside them."""
        old, new = self._resolved(old, 0), self._resolved(new, 1)
        if old is False or new is True or (isinstance(new, dict) and not _plain(new)):
            return
        if new is False:
            yield Problem(at, "is no longer allowed")
            return
        if isinstance(old, dict) and self._same(old, new):
            return
        pair = (_canonical(old), _canonical(new))
        if pair in self._open:
            return  # a recursive type, whose parts are being compared already
        if depth > _DEPTH_MAX:
            yield Problem(at, "is nested too deeply to compare")
            return
        self._open.add(pair)
        try:
            yield from self._compare({} if old is True else old, new, at, depth + 1)
        finally:
            self._open.discard(pair)

    def _compare(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Problem]:
        unknown = sorted(name for name in set(new) - _HANDLED - _ANNOTATIONS if not name.startswith("x-"))
        if unknown or any(name in new for name in _WHOLE):
            yield Problem(at, f"uses {', '.join(unknown or sorted(_WHOLE & set(new)))}, which cannot be compared")
            return
        values = _values(old)
        if values is not None:
            yield from self._listed(values, new, at)
            return
        branches = old.get("anyOf") or old.get("oneOf")
        if branches and not (_canonical(old.get("oneOf")) == _canonical(new.get("oneOf")) and "oneOf" in new):
            rest = {name: value for name, value in old.items() if name not in {"anyOf", "oneOf"}}
            for number, branch in enumerate(branches):
                both = {"allOf": [rest, branch]} if _plain(rest) else branch
                yield from self.check(both, new, f"{at}/{number}", depth)
            return
        for part in _parts(new):
            yield from self._part(old, part, at, depth)

    def _part(self, old: dict[str, Any], part: Any, at: str, depth: int) -> Iterator[Problem]:
        """Check one of the parts that `new` requires together; `old` satisfies it if any of its own parts does."""
        candidates = [{name: value for name, value in old.items() if name != "allOf"}, *old.get("allOf", ())]
        if len(candidates) == 1:
            yield from self._single(old, self._resolved(part, 1), at, depth)
            return
        first: list[Problem] | None = None
        for candidate in candidates:
            found = list(self.check(candidate, part, at, depth))
            if not found:
                return
            first = found if first is None or len(found) < len(first) else first
        yield from first or ()

    def _single(self, old: dict[str, Any], new: Any, at: str, depth: int) -> Iterator[Problem]:
        if not isinstance(new, dict):
            yield from self.check(old, new, at, depth)
            return
        if len(_parts(new)) > 1:
            yield from self.check(old, new, at, depth)
            return
        if "anyOf" in new:
            if not any(not list(self.check(old, branch, at, depth)) for branch in new["anyOf"]):
                yield Problem(at, "may match none of the alternatives in anyOf")
            return
        yield from self._keywords(old, new, at, depth)

    def _keywords(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Problem]:
        if "enum" in new or "const" in new:
            yield Problem(at, "may have a value that the new list does not contain")
        for name in sorted(_ALONE & set(new)):
            if not self._same(old.get(name), new[name]):
                yield Problem(at, f"has a different {name}")
        for group in _TOGETHER:
            there = [name for name in group if name in new]
            if there and not self._same([old.get(name) for name in group], [new.get(name) for name in group]):
                yield Problem(at, f"has a different {there[0]}")
        kinds = _kinds(old)
        wrong = sorted(kinds - _kinds(new))
        if wrong:
            yield Problem(at, f"may be of type {' or '.join(wrong)}, which is not allowed")
        if "number" in kinds or "integer" in kinds:
            yield from _numbers(old, new, at)
        if "string" in kinds:
            yield from _limits(old, new, at, ("minLength", "maxLength"))
        if "array" in kinds:
            yield from self._arrays(old, new, at, depth)
        if "object" in kinds:
            yield from self._objects(old, new, at, depth)

    def _objects(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Problem]:
        required = set(old.get("required", ()))
        for name in sorted(set(new.get("required", ())) - required):
            yield Problem(f"{at}/{name}", "is required but may be missing")
        yield from _limits({"minProperties": len(required), **old}, new, at, ("minProperties", "maxProperties"))
        patterns = old.get("patternProperties", {})
        kept = self._same(patterns, new.get("patternProperties", {}))
        if new.get("patternProperties") and not kept:
            yield Problem(at, "has different patternProperties")
        declared, declared_now = old.get("properties", {}), new.get("properties", {})
        rest, rest_now = old.get("additionalProperties", True), new.get("additionalProperties", True)
        for name in sorted({*declared, *declared_now}):
            # The name may also match a pattern; the member may then have any value that the pattern allows.
            before = declared.get(name, True if patterns else rest)
            yield from self.check(before, declared_now.get(name, rest_now), f"{at}/{name}", depth)
        yield from self.check(rest, rest_now, f"{at}/*", depth)
        if not kept:
            for pattern, schema in sorted(patterns.items()):
                yield from self.check(schema, rest_now, f"{at}/{pattern}", depth)

    def _arrays(self, old: dict[str, Any], new: dict[str, Any], at: str, depth: int) -> Iterator[Problem]:
        yield from _limits(old, new, at, ("minItems", "maxItems"))
        longest = old.get("maxItems")
        if new.get("uniqueItems") and not old.get("uniqueItems") and not (longest is not None and longest <= 1):
            yield Problem(at, "may contain an item twice")
        first, first_now = old.get("prefixItems", []), new.get("prefixItems", [])
        rest, rest_now = old.get("items", True), new.get("items", True)
        for number in range(max(len(first), len(first_now))):
            before = first[number] if number < len(first) else rest
            now = first_now[number] if number < len(first_now) else rest_now
            if longest is None or number < longest:
                yield from self.check(before, now, f"{at}/{number}", depth)
        if longest is None or longest > max(len(first), len(first_now)):
            yield from self.check(rest, rest_now, f"{at}/*", depth)

    def _listed(self, values: list[Any], new: dict[str, Any], at: str) -> Iterator[Problem]:
        """Validate each of a finite set of values, with the `$defs` of the root for references."""
        root = self._roots[1]
        known: dict[str, Any] = {
            name: root[name] for name in ("$defs", "definitions") if isinstance(root, dict) and name in root
        }
        if any(isinstance(reference, str) and not reference.startswith(("#/$defs/", "#/definitions/")) for reference in
               _references(new)):  # fmt: skip
            yield Problem(at, "has a reference outside $defs, which cannot be compared")
            return
        validator = Validator({**new, **known}, "the contract")
        if not all(validator.accepts(value) for value in values):
            yield Problem(at, "has a value that is not allowed")

    def _same(self, old: Any, new: Any) -> bool:
        """Whether both schemas, and everything that they refer to, are equal."""
        if _canonical(old) != _canonical(new):
            return False
        return _reached(old, self._roots[0], {}) == _reached(new, self._roots[1], {})

    def _resolved(self, schema: Any, which: int) -> Any:
        """Follow references within the document; a reference beside other keywords becomes one part of an allOf."""
        for _ in range(_DEPTH_MAX):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            target = _followed(self._roots[which], schema["$ref"])
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            if not _plain(rest):
                schema = target
            else:
                return {"allOf": [target, rest]}
        return {"not": {}} if which else True


def _followed(root: Any, reference: Any) -> Any:
    """Resolve a reference; for one that leaves the document return a keyword that cannot be compared."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return {"$dynamicRef": str(reference)}
    found = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return {"$dynamicRef": reference}
    return found


def _reached(schema: Any, root: Any, found: dict[str, str]) -> dict[str, str]:
    """Map every reachable reference to the text of its target."""
    for reference in _references(schema):
        if str(reference) not in found:
            target = _followed(root, reference)
            found[str(reference)] = _canonical(target)
            _reached(target, root, found)
    return found


def _parts(schema: dict[str, Any]) -> list[Any]:
    """Split a schema into parts that must all hold. Keywords that depend on each other stay in one part."""
    rest = {name: value for name, value in schema.items() if name not in {"allOf", "anyOf"}}
    choice = [{"anyOf": schema["anyOf"]}] if "anyOf" in schema else []
    return [*([rest] if _plain(rest) else []), *choice, *schema.get("allOf", ())] or [rest]


def _references(schema: Any) -> Iterator[Any]:
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _references(value)
    if isinstance(schema, dict) and "$ref" in schema:
        yield schema["$ref"]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop keywords that do not constrain values."""
    return {name: value for name, value in schema.items() if name not in _ANNOTATIONS}


def _canonical(schema: Any) -> str:
    return json.dumps(_bare(schema), sort_keys=True, default=str)


def _bare(schema: Any) -> Any:
    """Drop annotations from a schema and the schemas inside it; names of members are not keywords."""
    if not isinstance(schema, dict):
        return [_bare(one) for one in schema] if isinstance(schema, list) else schema
    made: dict[str, Any] = {}
    for name, value in schema.items():
        if name in {"properties", "patternProperties", "dependentSchemas"} and isinstance(value, dict):
            made[name] = {key: _bare(inner) for key, inner in value.items()}
        elif name in {"enum", "const"}:
            made[name] = value
        elif name not in _ANNOTATIONS:
            made[name] = _bare(value)
    return made


def _values(schema: dict[str, Any]) -> list[Any] | None:
    """Return every value that a schema allows, or more, if it lists them; else None."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    kinds = schema.get("type")
    listed = {kinds} if isinstance(kinds, str) else set(kinds or ())
    if listed and listed <= {"null", "boolean"}:
        return [
            value for kind, some in (("null", [None]), ("boolean", [True, False])) if kind in listed for value in some
        ]
    return None


def _kinds(schema: dict[str, Any]) -> set[str]:
    """Return the types that a schema allows; `number` includes `integer`."""
    given = schema.get("type")
    kinds = set(_TYPES) if given is None else {given} if isinstance(given, str) else set(given)
    return kinds | {"integer"} if "number" in kinds else kinds


def _limits(old: dict[str, Any], new: dict[str, Any], at: str, names: tuple[str, str]) -> Iterator[Problem]:
    least, most = names
    if least in new and old.get(least, 0) < new[least]:
        yield Problem(at, f"may be less than {least}")
    if most in new and (most not in old or old[most] > new[most]):
        yield Problem(at, f"may be greater than {most}")


def _numbers(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Problem]:
    for sign, inclusive, exclusive in ((1, "minimum", "exclusiveMinimum"), (-1, "maximum", "exclusiveMaximum")):
        bounds = [
            (sign * Fraction(str(old[name])), name == exclusive) for name in (inclusive, exclusive) if name in old
        ]
        for name in (inclusive, exclusive):
            if name not in new:
                continue
            wanted = (sign * Fraction(str(new[name])), name == exclusive)
            if not any(bound >= wanted for bound in bounds):
                yield Problem(at, f"may be outside {name}")
    if "multipleOf" in new:
        step = Fraction(str(new["multipleOf"]))
        whole = "number" not in _kinds(old) and (1 / step).denominator == 1
        given = old.get("multipleOf")
        if not whole and (given is None or (Fraction(str(given)) / step).denominator != 1):
            yield Problem(at, "may not be a multiple of multipleOf")
