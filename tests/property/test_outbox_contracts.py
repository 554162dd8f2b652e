"""Compatibility of contracts: documents that the old contract allows are validated against the new one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.compatibility import included, problems
from outbox.errors import ContractInvalid
from outbox.json_schema import Validator, strict

_NAMES = ("a", "b", "c")
_SCALARS: list[Any] = [None, True, False, 0, 1, -2, 3, 1.5, "", "x", "yy", "zzz"]
_KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
_LISTS = [[], *([one] for one in _SCALARS), [1, 1], ["x", None], [0, "yy"], [1, 3, 5]]
_FLAT = [{}, *({name: one} for name in _NAMES for one in _SCALARS), {"a": 1, "b": "x"}, {"a": 0, "b": None, "c": "zzz"}]
VALUES: list[Any] = [
    *_SCALARS,
    *_LISTS,
    *_FLAT,
    *({"a": one} for one in (*_LISTS, *_FLAT)),
    *({"b": one, "c": 1} for one in _FLAT),
    *([one] for one in _FLAT),
    {"a": {"a": {"b": 1}}, "c": [{}]},
]
"""Every value that is tried: small ones, all of them, find more than large ones by chance."""


def schema(random: Random, depth: int) -> Any:
    """A schema of any of the keywords, of the leaves when `depth` is 0."""
    kind = random.randrange(4 if depth <= 0 else 12)
    if kind == 0:
        return random.choice([True, {}, {"$ref": "#/$defs/d"}, {"type": random.choice(_KINDS)}])
    if kind == 1:
        return random.choice([{"const": random.choice(_SCALARS)}, {"enum": random.sample(_SCALARS, 3)}])
    if kind == 2:
        bounds = random.sample(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], random.randrange(3))
        steps = {"multipleOf": random.choice([1, 2, 3])} if random.random() < 0.3 else {}
        return {
            "type": random.choice(["integer", "number"]),
            **{name: random.randint(-2, 3) for name in bounds},
            **steps,
        }
    if kind == 3:
        made: dict[str, Any] = {"type": random.choice(["string", ["string", "null"]])}
        made.update(random.choice([{}, {"minLength": 1}, {"maxLength": 2}, {"pattern": "^[xy]*$"}]))
        return made
    if kind in {4, 5}:
        return _array(random, depth)
    return _composed(random, depth) if kind == 6 else _object(random, depth)


def _object(random: Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object"} if random.random() < 0.8 else {}
    made["properties"] = {name: schema(random, depth - 1) for name in random.sample(_NAMES, random.randrange(3))}
    for chance, name, value in (
        (0.5, "required", lambda: random.sample(_NAMES, random.randrange(3))),
        (0.3, "additionalProperties", lambda: random.choice([True, False, schema(random, 0)])),
        (0.2, "patternProperties", lambda: {random.choice(["^a", "[bc]$"]): schema(random, 0)}),
        (0.1, "minProperties", lambda: random.randrange(3)),
        (0.1, "maxProperties", lambda: random.randrange(3)),
        (0.1, "propertyNames", lambda: {"enum": ["a", "b"]}),
    ):
        if random.random() < chance:
            made[name] = value()
    return made


def _array(random: Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array", "items": schema(random, depth - 1)}
    for chance, name, value in (
        (0.3, "prefixItems", lambda: [schema(random, 0) for _ in range(random.randint(1, 2))]),
        (0.3, "minItems", lambda: random.randrange(3)),
        (0.3, "maxItems", lambda: random.randrange(3)),
        (0.2, "uniqueItems", lambda: True),
        (0.1, "contains", lambda: schema(random, 0)),
    ):
        if random.random() < chance:
            made[name] = value()
    return made


def _composed(random: Random, depth: int) -> dict[str, Any]:
    some = [schema(random, depth - 1) for _ in range(random.randint(1, 2))]
    made: dict[str, Any] = {random.choice(["allOf", "anyOf", "oneOf"]): some}
    if random.random() < 0.2:
        made.update(random.choice([{"not": schema(random, 0)}, {"if": schema(random, 0), "then": schema(random, 0)}]))
    if random.random() < 0.4:
        made.update(_object(random, depth - 1))
    return made


def document(random: Random) -> dict[str, Any]:
    """A contract: mostly an object, and a definition that does not lead to itself."""
    definition = schema(random, 0)
    while isinstance(definition, dict) and "$ref" in definition:
        definition = schema(random, 0)
    return {**(_object(random, 2) if random.random() < 0.8 else _composed(random, 2)), "$defs": {"d": definition}}


def edited(old: dict[str, Any], random: Random) -> dict[str, Any]:
    """A contract like this one: something in it is dropped, or another thing said."""
    made = copy.deepcopy(old)
    places: list[Any] = [made]
    for place in places:
        inner = list(place.values()) if isinstance(place, dict) else place
        places += [one for one in inner if isinstance(one, dict | list)]
    place = random.choice([one for one in places if isinstance(one, dict)])
    if place is not made.get("$defs") and place and random.random() < 0.6:
        name = random.choice([name for name in place if name != "$defs"] or [""])
        place.pop(name, None)
    else:
        name, value = random.choice([
            ("minimum", 1), ("maxLength", 2), ("additionalProperties", False), ("additionalProperties", True),
            ("required", ["a"]), ("properties", {"a": {"type": "string"}}),
            ("patternProperties", {"^a": {"type": "string"}}),
            ("type", ["object", "null", "array"]), ("enum", [1, "x", None]), ("uniqueItems", True), ("items", True),
            ("anyOf", [{"type": "integer"}, {"type": "object"}]), ("maxProperties", 1), ("maxItems", 1),
        ])  # fmt: skip
        place[name] = value
    return made


def usable(*documents: dict[str, Any]) -> list[Validator] | None:
    """Their validators; None when one is no JSON Schema, or its definition is gone or leads to itself."""
    if any('"$ref"' in json.dumps(one.get("$defs", {}).get("d", {"$ref": ""})) for one in documents):
        return None
    try:
        return [Validator(one, "it") for one in documents]
    except ContractInvalid:
        return None


@settings(max_examples=80)
@given(st.integers(0, 2**32))
def test_what_an_old_contract_lets_be_written_is_readable_under_one_that_may_follow(number: int) -> None:
    random, judged = Random(number), 0
    for _ in range(60):
        old = document(random)
        new = edited(old, random) if random.random() < 0.5 else edited(edited(old, random), random)
        pair = usable(strict(old), new)  # type: ignore[arg-type]
        if pair is None or problems(old, new):
            continue
        judged += 1
        writer, reader = pair
        lost = [value for value in VALUES if writer.accepts(value) and not reader.accepts(value)]
        assert lost == [], (old, new)

    assert judged > 5  # of sixty; the rule does not refuse everything


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_contract_may_follow_itself_and_full_is_both_ways(number: int) -> None:
    random = Random(number)
    for _ in range(20):
        old = document(random)
        new = edited(old, random)
        if usable(old, new) is None:
            continue

        assert included(old, copy.deepcopy(old)) == []
        ways = {mode: problems(old, new, mode) == [] for mode in ("backward", "forward", "full")}
        assert ways["full"] == (ways["backward"] and ways["forward"])


ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "integer"},
        "state": {"enum": ["open", "paid"]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 100},
    },
    "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}},
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    made = copy.deepcopy(ORDER)
    change(made)
    return made


@pytest.mark.parametrize(
    ("change", "backward", "forward"),
    [
        (lambda s: s.update(title="Order", description="x"), True, True),
        (lambda s: s["properties"].update(note={"type": "string"}), True, True),
        (lambda s: s["properties"].pop("state"), True, True),
        (lambda s: s["required"].append("state"), False, True),
        (lambda s: s["required"].remove("id"), True, False),
        (lambda s: s["properties"].pop("id"), True, True),  # still required, as anything
        (lambda s: s["properties"]["id"].update(type="number"), True, False),
        (lambda s: s["properties"]["id"].update(type="string"), False, False),
        (lambda s: s["properties"]["id"].update(minimum=1), False, True),
        (lambda s: s["properties"]["state"]["enum"].append("lost"), True, False),
        (lambda s: s["properties"]["state"]["enum"].pop(), False, True),
        (lambda s: s["properties"]["lines"].update(maxItems=50), False, True),
        (lambda s: s["$defs"]["line"]["properties"].update(count={"type": "integer"}), True, True),
        (lambda s: s["$defs"]["line"]["required"].append("count"), False, True),
        (lambda s: s["$defs"]["line"]["properties"]["sku"].update(maxLength=3), False, True),
        (lambda s: s.update(additionalProperties=False), True, True),
        (lambda s: s.update(unevaluatedProperties=False), False, True),
    ],
)
def test_changes_that_people_make_are_judged_as_they_expect(
    change: Callable[[dict[str, Any]], object], backward: bool, forward: bool
) -> None:
    new = changed(change)

    assert (problems(ORDER, new, "backward") == []) is backward
    assert (problems(ORDER, new, "forward") == []) is forward


def test_problem_names_the_place_and_the_reason() -> None:
    new = changed(lambda s: s["$defs"]["line"]["required"].append("count"))

    assert [tuple(one) for one in problems(ORDER, new)] == [
        ("/lines/*/count", "is required but may be missing (in events of the old contract)")
    ]


def test_recursive_contract_is_compared_to_its_end() -> None:
    tree = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}}}}
    other = copy.deepcopy(tree)
    other["$defs"]["n"]["required"] = ["c"]  # type: ignore[index]

    assert problems(tree, copy.deepcopy(tree), "full") == []
    assert problems(tree, other) != []


def test_member_that_only_fitted_a_pattern_may_not_become_another() -> None:
    old = {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}

    assert problems(old, {**old, "properties": {"a": {"type": "string"}}}) != []
