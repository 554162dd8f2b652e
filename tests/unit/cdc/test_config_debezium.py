"""Debezium's options in `[encode]`: accepted if the JSON is the same, else rejected with a reason."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import pytest

from cdc.config.debezium_options import CHOICES, MODES
from cdc.config.load import parse
from cdc.config.settings import Encode
from cdc.errors import ConfigError

_MINIMAL = 'name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "localhost:9092"\n[encode]\n'
_SAME = [(name, value, choice.key, ours) for name, choice in CHOICES.items() for value, ours in choice.same.items()]
_OTHER = [(name, value, why) for name, choice in CHOICES.items() for value, why in choice.other.items()]


def encode(text: str, **environ: str) -> Encode:
    return parse(_MINIMAL + text, environ).encode


@pytest.mark.parametrize(("name", "value", "key", "ours"), _SAME)
def test_option_that_is_the_same_is_taken(name: str, value: str, key: str, ours: str) -> None:
    assert getattr(encode(f'"{name}" = "{value}"'), key) == ours
    assert getattr(encode(f'{name} = "{value.upper()}"'), key) == ours  # a table in a table, without the quotes


@pytest.mark.parametrize(("name", "value", "why"), _OTHER)
def test_option_that_is_not_the_same_says_what_there_is_instead(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)) as caught:
        encode(f'"{name}" = "{value}"')

    assert caught.value.exit_code == 2
    assert f"encode.{name}" in caught.value.message


def test_every_form_that_is_named_is_one() -> None:
    texts = [why for _, _, why in _OTHER]
    named = {pair for text in texts for pair in re.findall(r'(\w+) = "(\w+)"', text)}
    named |= {(key, ours) for _, _, key, ours in _SAME}

    for key, value in named:
        assert getattr(msgspec.convert({key: value}, Encode), key) == value
    assert {name for name, _, _ in _OTHER} == set(CHOICES)
    assert [text for text in texts if not re.search(r'\w+ = "\w+"', text)] == []


@pytest.mark.parametrize("ours", ['"string"', '"number"'])
def test_both_names_must_say_the_same(ours: str) -> None:
    text = f'numeric = {ours}\n"decimal.handling.mode" = "string"'
    if ours == '"string"':
        assert encode(text).numeric == "string"
        return
    with pytest.raises(ConfigError, match=r'means numeric = "string", but encode\.numeric is "number"') as caught:
        encode(text)

    assert caught.value.hint == "remove one of them"


def test_environment_wins_over_a_name_of_debezium() -> None:
    assert encode('"binary.handling.mode" = "base64"', TAILRACE_ENCODE_BYTEA="hex").bytea == "hex"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"binary.handling.mode" = "utf8"', 'encode.binary.handling.mode is "utf8"; expected one of "bytes", "base64"'),
        ('"binary.handling.mode" = 5', "encode.binary.handling.mode is 5;"),
        ('"money.fraction.digits" = 2', "unknown key encode.money.fraction.digits"),
        ('interval = "micros"', "encode.interval: "),
    ],
)
def test_unsupported_option_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        encode(text)


COMPATIBLE: Final = 'compatibility = "debezium"\n'


def test_with_compatibility_debeziums_options_say_what_they_say_there() -> None:
    found = encode(f'{COMPATIBLE}"decimal.handling.mode" = "double"\n"time.precision.mode" = "connect"')

    assert (found.compatibility, found.debezium) == ("debezium", {"decimal": "double", "time": "connect"})
    assert (found.numeric, found.time) == ("string", "iso"), "our own options stay as they are"
    assert encode('"decimal.handling.mode" = "string"', TAILRACE_ENCODE_COMPATIBILITY="debezium").debezium == {
        "decimal": "string"
    }


@pytest.mark.parametrize("mode", ["decimal.handling.mode", "time.precision.mode", "hstore.handling.mode"])
def test_with_compatibility_every_value_that_debezium_has_is_taken(mode: str) -> None:
    key, values = MODES[mode]

    assert [encode(f'{COMPATIBLE}"{mode}" = "{value}"').debezium for value in values] == [{key: v} for v in values]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{COMPATIBLE}time = "micros"', 'decides the form of every value, but encode.time is "micros"'),
        (f'{COMPATIBLE}format = "avro"', 'supports JSON only, but encode.format is "avro"'),
        (f'{COMPATIBLE}"decimal.handling.mode" = "exact"', 'is "exact"; expected one of "precise", "double", "string"'),
        (f'{COMPATIBLE}debezium = {{decimal = "exact"}}', 'encode.debezium.decimal is "exact"; expected one of'),
        (f'{COMPATIBLE}debezium = {{decimals = "string"}}', "unknown key"),
        (f'{COMPATIBLE}debezium = {{decimal = "string"}}\n"decimal.handling.mode" = "double"', "but encode.debezium."),
        ('debezium = {decimal = "string"}', 'encode.debezium needs encode.compatibility = "debezium"'),
        ('compatibility = "debezum"', "encode.compatibility"),
        (f'{COMPATIBLE}[sinks.lake]\nkind = "warehouse"\npath = "lake"', "writes values that sinks cannot read"),
        (
            f'{COMPATIBLE}[sinks.hot]\nkind = "cache"\nurl = "redis://h"',
            "writes values that sinks cannot read: sinks.hot",
        ),
        (f'{COMPATIBLE}[sinks.find]\nkind = "search"\nurl = "http://h:9200"', "that sinks cannot read: sinks.find"),
    ],
)
def test_what_does_not_go_with_compatibility_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        encode(text)
