"""Signals: own ones survive a round trip, Debezium's are understood, and invalid ones give a named error."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.signal_parsing import Signal, SignalError, encode, in_order, key_of, parse

_TABLES = st.lists(st.text(min_size=1, max_size=12), max_size=3).map(tuple)
_VALUE = st.integers() | st.text(max_size=8) | st.booleans()
_KEYS = st.lists(st.dictionaries(st.text(max_size=5), _VALUE, min_size=1, max_size=3), max_size=4)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["command", "type", "data", "tables", "keys", "id", "where", "data-collections", "start", "x"])
        , inner | st.sampled_from(["start", "log", "execute-snapshot", "incremental"]), max_size=4),
    max_leaves=12,
)  # fmt: skip


def _debezium(kind: str, **data: object) -> bytes:
    return json.dumps({"type": kind, "data": {"type": "INCREMENTAL", **data}}).encode()


@given(st.text(max_size=9), _TABLES.filter(bool), st.text(max_size=9), _KEYS)
def test_signal_survives_being_written(name: str, tables: tuple[str, ...], where: str, keys: list[object]) -> None:
    found = tuple(dict.fromkeys(key_of(json.dumps(key).encode()) for key in keys))
    signal = Signal(name, "start", tables, where="" if found else where, keys=found)

    assert parse(b"shop", encode(signal), "shop") == signal


@given(st.binary(max_size=40) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_any_record_is_a_signal_or_a_named_error(value: bytes) -> None:
    with suppress(SignalError):
        assert isinstance(parse(None, value, "shop"), Signal)


def test_records_of_other_keys_are_ignored() -> None:
    value = encode(Signal("", "stop"))

    assert parse(b"other", value, "shop") is None
    assert parse(b"shop", None, "shop") is None
    assert parse(None, value, "shop") == parse(b"shop", value, "shop") == Signal("", "stop")


def test_debezium_snapshot_with_conditions_is_understood() -> None:
    found = parse(
        b"shop",
        _debezium(
            "execute-snapshot",
            **{
                "data-collections": [r"public\.orders", r"sales\..*"],
                "additional-conditions": [{"data-collection": "sales.items", "filter": "color='blue'"}],
            },
        ),
        "shop",
    )

    assert found is not None
    assert (found.action, found.tables) == ("start", (r"public\.orders", r"sales\..*"))
    names = ["public.orders", "public.orders2", "sales.items", "sales.x"]
    assert [found.matching(pattern, names) for pattern in found.tables] == [["public.orders"], names[2:]]
    assert found.where_of("sales.items") == "color='blue'"
    assert found.where_of("sales.x") == ""


@pytest.mark.parametrize(
    ("kind", "action"), [("pause-snapshot", "pause"), ("resume-snapshot", "resume"), ("stop-snapshot", "stop")]
)
def test_debezium_steering_is_for_all_tables(kind: str, action: str) -> None:
    found = parse(None, _debezium(kind), "shop")

    assert found is not None
    assert (found.action, found.tables) == (action, ())


def test_debezium_log_has_its_message() -> None:
    found = parse(None, _debezium("log", message="at {}"), "shop")

    assert found is not None
    assert (found.action, found.message) == ("log", "at {}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\xff", "not JSON"),
        (b"{}", "neither"),
        (b'{"type":"schema-changes"}', "unsupported signal type"),
        (b'{"command":"drop"}', "command"),
        (b'{"command":"start"}', "needs `tables`"),
        (b'{"command":"stop","where":"a = 1"}', "cannot have"),
        (b'{"command":"start","tables":["t"],"where":"a = 1","keys":[{"id":1}]}', "use one of them"),
        (b'{"command":"start","tables":["t"],"keys":[{}]}', "at least one column"),
        (b'{"command":"start","tables":["t"],"keys":[{"id":[1]}]}', "numbers, text"),
        (b'{"command":"start","tables":["t"],"table":1}', "table"),
        (_debezium("execute-snapshot"), "needs `data-collections`"),
        (_debezium("execute-snapshot", **{"type": "BLOCKING", "data-collections": ["t"]}), "incremental"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(value: bytes, why: str) -> None:
    with pytest.raises(SignalError, match=why):
        parse(None, value, "shop")


def test_too_many_keys_are_refused() -> None:
    keys = b",".join(b'{"id":%d}' % number for number in range(10_001))

    with pytest.raises(SignalError, match="at most 10000"):
        parse(None, b'{"command":"start","tables":["t"],"keys":[%b]}' % keys, "shop")


def test_key_gets_the_order_of_its_table_and_keeps_its_numbers() -> None:
    key = key_of(b'{ "b": 12.50, "a": "\\u00e9" }')

    assert in_order(key, ["a", "b"]) == '{"a":"é","b":12.50}'.encode()
    with pytest.raises(SignalError, match="columns a"):
        in_order(key, ["a"])
