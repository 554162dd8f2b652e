"""Whether one contract may follow another: what an old one lets a writer write is held against the new one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outbox.compatibility import included, problems
from outbox.jsonschema import Validator, strict

_NAMES = st.sampled_from(["a", "b", "c"])
_SCALARS = st.none() | st.booleans() | st.integers(-4, 4) | st.sampled_from(["", "x", "yy", "zzz"]) | st.just(1.5)


def _numbers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return st.fixed_dictionaries(
        {"type": st.just(kind)},
        optional={**{name: st.integers(-3, 3) for name in bounds}, "multipleOf": st.sampled_from([1, 2, 3])},
    )


_LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.just({}),
    st.builds(lambda value: {"const": value}, _SCALARS),
    st.builds(lambda values: {"enum": values}, st.lists(_SCALARS, min_size=1, max_size=3)),
    _numbers("integer"),
    _numbers("number"),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 3), "maxLength": st.integers(0, 3), "pattern": st.just("^[xy]*$")},
    ),
    st.builds(lambda kinds: {"type": kinds}, st.lists(
        st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]), min_size=1, unique=True
    )),
    st.just({"$ref": "#/$defs/d"}),
)  # fmt: skip


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object"),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "required": st.lists(_NAMES, unique=True, max_size=2),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(0, 3),
            "propertyNames": st.just({"maxLength": 1}),
        },
    )


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
            "contains": inner,
        },
    )


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "type": st.sampled_from(["object", "integer", "string"]),
            "properties": st.dictionaries(_NAMES, inner, max_size=2),
        },
    )


_SCHEMAS = st.recursive(
    _LEAVES, lambda inner: _objects(inner) | _objects(inner) | _arrays(inner) | _composed(inner), max_leaves=8
)
_DOCUMENTS = st.builds(
    lambda body, definition: {**body, "$defs": {"d": definition}},
    _objects(_SCHEMAS) | _composed(_SCHEMAS),
    _SCHEMAS,
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=6
)


def _edited(schema: Any, random: Random) -> Any:
    """A schema like this one: something in it is dropped, loosened, tightened or added."""
    made = copy.deepcopy(schema)
    places = [made]
    for place in places:
        if isinstance(place, dict):
            places += [value for value in place.values() if isinstance(value, dict | list)]
        elif isinstance(place, list):
            places += [value for value in place if isinstance(value, dict | list)]
    place = random.choice([place for place in places if isinstance(place, dict)])
    if place and random.random() < 0.5:
        del place[random.choice(sorted(place))]
    else:
        name, value = random.choice([
            ("type", "object"), ("type", ["object", "null"]), ("type", "number"), ("minimum", 1), ("maxLength", 2),
            ("properties", {"a": {"type": "string"}}), ("additionalProperties", False), ("required", ["a"]),
            ("required", []), ("enum", [1, 2]), ("anyOf", [{"type": "integer"}, {"type": "object"}]),
        ])  # fmt: skip
        place[name] = value
    return made


def _usable(*documents: Any) -> list[Validator]:
    """Their validators; examples that are no JSON Schema, or refer to themselves only, are passed over."""
    try:
        return [Validator(document, "it") for document in documents]
    except Exception:
        assume(False)
        raise


def _circular(document: dict[str, Any]) -> bool:
    """A definition that is itself without a member in between: validators do not end there."""
    return '"$ref"' in str(document["$defs"]).replace("'", '"')


@settings(max_examples=300)
@given(_DOCUMENTS, st.data(), st.randoms(use_true_random=False))
def test_what_an_old_contract_lets_be_written_is_readable_under_one_that_may_follow(
    old: dict[str, Any], data: st.DataObject, random: Random
) -> None:
    new = _edited(_edited(old, random), random) if random.random() < 0.7 else data.draw(_DOCUMENTS)
    assume(isinstance(new.get("$defs", {}).get("d", True), dict | bool))
    new.setdefault("$defs", {}).setdefault("d", True)
    assume(not _circular(old) and not _circular(new))
    writer, reader = _usable(strict(old), new)
    assume(problems(old, new) == [])

    for _ in range(8):
        value = data.draw(_VALUES)
        if writer.takes(value):
            assert reader.takes(value)


@settings(max_examples=60)
@given(_DOCUMENTS)
def test_contract_may_follow_itself(document: dict[str, Any]) -> None:
    assume(not _circular(document))
    _usable(document)

    if "patternProperties" not in str(document) and "$ref" not in str(document):
        assert included(document, document) == []


@settings(max_examples=60)
@given(_DOCUMENTS, _DOCUMENTS)
def test_full_is_backward_and_forward(old: dict[str, Any], new: dict[str, Any]) -> None:
    assume(not _circular(old) and not _circular(new))
    _usable(old, new)

    full = problems(old, new, "full") == []
    assert full == (problems(old, new, "backward") == [] and problems(old, new, "forward") == [])
    assert (problems(old, new, "forward") == []) == (included(strict(new), old) == [])


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
        ("/lines/*/count", "is required, and may be missing, and it may have been written")
    ]


def test_recursive_contract_is_compared_to_its_end() -> None:
    tree = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}}}}
    other = copy.deepcopy(tree)
    other["$defs"]["n"]["required"] = ["c"]  # type: ignore[index]

    assert problems(tree, copy.deepcopy(tree), "full") == []
    assert problems(tree, other) != []
