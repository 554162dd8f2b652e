"""Server text to JSON, family by family: a value is what to_jsonb shows, but for numeric, bigint, json and composites.

tests/integration compares the same encoders with a real server; this file fixes the forms that must not change by
accident.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from cdc.encode.builtin_types import ARRAYS, SCALARS, SEMICOLON_ARRAYS
from cdc.encode.values import EncodeOptions, TypeEncoding, resolve, unknown_types
from cdc.errors import DecodeError
from cdc.model.type_facts import TypeFacts

_OIDS = {name: oid for oid, name in SCALARS.items()}

TABLE = [
    ("bool", "t", "true"),
    ("bool", "f", "false"),
    ("int2", "-32768", "-32768"),
    ("int4", "2147483647", "2147483647"),
    ("int8", "-9223372036854775808", "-9223372036854775808"),
    ("float4", "1.5", "1.5"),
    ("float8", "1e+300", "1e+300"),
    ("float8", "-0", "-0"),
    ("float8", "NaN", '"NaN"'),
    ("float8", "Infinity", '"Infinity"'),
    ("float8", "-Infinity", '"-Infinity"'),
    ("numeric", "12345678901234567890.10", '"12345678901234567890.10"'),
    ("numeric", "NaN", '"NaN"'),
    ("numeric", "Infinity", '"Infinity"'),
    ("money", "-$1,000.50", '"-$1,000.50"'),
    ("text", 'say "hi"\\\n\t\x01é𝄞', '"say \\"hi\\"\\\\\\n\\t\\u0001é𝄞"'),
    ("text", "", '""'),
    ("varchar", "100%", '"100%"'),
    ("bpchar", "a  ", '"a  "'),
    ("name", "pg_class", '"pg_class"'),
    ("char", '"', '"\\""'),
    ("xml", "<a b='1'/>", "\"<a b='1'/>\""),
    ("bytea", "\\x", '"\\\\x"'),
    ("bytea", "\\xdeadbeef", '"\\\\xdeadbeef"'),
    ("json", '{"a" : null}', '"{\\"a\\" : null}"'),
    ("jsonb", '"\\u0000"', '"\\"\\\\u0000\\""'),
    ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ("date", "2024-02-29", '"2024-02-29"'),
    ("date", "0044-03-15 BC", '"0044-03-15 BC"'),
    ("date", "-infinity", '"-infinity"'),
    ("time", "24:00:00", '"24:00:00"'),
    ("timetz", "12:00:00.000001+05:30", '"12:00:00.000001+05:30"'),
    ("timestamp", "2024-02-29 12:00:00.5", '"2024-02-29T12:00:00.5"'),
    ("timestamp", "0044-03-15 00:00:00 BC", '"0044-03-15T00:00:00 BC"'),
    ("timestamp", "infinity", '"infinity"'),
    ("timestamptz", "2024-02-29 12:00:00.123456+00", '"2024-02-29T12:00:00.123456+00:00"'),
    ("timestamptz", "0044-03-15 00:00:00+00 BC", '"0044-03-15T00:00:00+00:00 BC"'),
    ("timestamptz", "-infinity", '"-infinity"'),
    ("timestamptz", "294276-12-31 23:59:59.999999+00", '"294276-12-31T23:59:59.999999+00:00"'),
    ("interval", "P1Y2M3DT4H5M6.7S", '"P1Y2M3DT4H5M6.7S"'),
    ("bit", "101", '"101"'),
    ("varbit", "", '""'),
    ("oid", "4294967295", '"4294967295"'),
    ("xid8", "18446744073709551615", '"18446744073709551615"'),
    ("pg_lsn", "16/B374D848", '"16/B374D848"'),
    ("regclass", '"Odd ""name"""', '"\\"Odd \\"\\"name\\"\\"\\""'),
    ("inet", "192.168.0.1/24", '"192.168.0.1/24"'),
    ("cidr", "2001:db8::/32", '"2001:db8::/32"'),
    ("macaddr", "08:00:2b:01:02:03", '"08:00:2b:01:02:03"'),
    ("point", "(1,-2.5)", '"(1,-2.5)"'),
    ("polygon", "((0,0),(1,1))", '"((0,0),(1,1))"'),
    ("int4range", "[1,3)", '"[1,3)"'),
    ("tstzrange", '["2024-01-01 00:00:00+00",)', '"[\\"2024-01-01 00:00:00+00\\",)"'),
    ("nummultirange", "{[1,2),[3,4)}", '"{[1,2),[3,4)}"'),
    ("tsvector", "'a':1A 'b':2", "\"'a':1A 'b':2\""),
    ("int2vector", "1 2 3", "[1,2,3]"),
    ("int2vector", "", "[]"),
    ("oidvector", "23 25", '["23","25"]'),
    ("oidvector", "", "[]"),
]

ARRAY_TABLE = [
    (1007, "{1,NULL,-3}", "[1,null,-3]"),
    (1016, "[0:1]={1,2}", "[1,2]"),
    (1009, '{a,"b,c",NULL,"NULL","","\\"\\\\"}', '["a","b,c",null,"NULL","","\\"\\\\"]'),
    (1000, "{{t,f},{f,NULL}}", "[[true,false],[false,null]]"),
    (1231, "{1.10,NaN}", '["1.10","NaN"]'),
    (1022, "{1.5,-Infinity}", '[1.5,"-Infinity"]'),
    (1001, '{"\\\\xdead",NULL}', '["\\\\xdead",null]'),
    (1185, '{"2024-02-29 12:00:00+00",infinity}', '["2024-02-29T12:00:00+00:00","infinity"]'),
    (1182, "{2024-02-29}", '["2024-02-29"]'),
    (3807, '{"{\\"a\\": null}",NULL}', '["{\\"a\\": null}",null]'),
    (1020, "{(1,1),(0,0);(2,2),(1,1)}", '["(1,1),(0,0)","(2,2),(1,1)"]'),
    (1017, '{"(1,2)","(3,4)"}', '["(1,2)","(3,4)"]'),
    (3905, '{"[1,3)",empty}', '["[1,3)","empty"]'),
    (1006, '{"1 2",3}', "[[1,2],[3]]"),
    (1007, "{}", "[]"),
]


@pytest.mark.parametrize(("name", "text", "wanted"), TABLE)
def test_value_of_a_built_in_type_has_its_one_encoding(name: str, text: str, wanted: str) -> None:
    assert _encoded(_resolved(_OIDS[name]), text) == wanted
    json.loads(wanted)


@pytest.mark.parametrize(("oid", "text", "wanted"), ARRAY_TABLE)
def test_array_of_a_built_in_type_has_its_one_encoding(oid: int, text: str, wanted: str) -> None:
    assert _encoded(_resolved(oid), text) == wanted
    json.loads(wanted)


MICROS = EncodeOptions(time="micros")
PARTS = EncodeOptions(interval="parts")
VALUE = EncodeOptions(json="value")

CHOICE_TABLE = [
    ("date", MICROS, "1970-01-01", "0"),
    ("date", MICROS, "2026-11-21", "20778"),
    ("date", MICROS, "1969-12-31", "-1"),
    ("date", MICROS, "0044-03-15 BC", "-735160"),
    ("date", MICROS, "4714-11-24 BC", "-2440588"),
    ("date", MICROS, "5874897-12-31", "2145042905"),
    ("date", MICROS, "-infinity", '"-infinity"'),
    ("time", MICROS, "00:00:00", "0"),
    ("time", MICROS, "24:00:00", "86400000000"),
    ("time", MICROS, "23:59:59.999999", "86399999999"),
    ("time", MICROS, "00:00:00.5", "500000"),
    ("timetz", MICROS, "12:00:00+02", '"12:00:00+02"'),
    ("timestamp", MICROS, "1970-01-01 00:00:00.000001", "1"),
    ("timestamp", MICROS, "1969-12-31 23:59:59.999999", "-1"),
    ("timestamp", MICROS, "0044-03-15 01:02:03 BC", "-63517820277000000"),
    ("timestamp", MICROS, "294247-01-10 04:00:54.775807", "9223372036854775807"),
    ("timestamp", MICROS, "294247-01-10 04:00:54.775808", '"294247-01-10T04:00:54.775808"'),
    ("timestamp", MICROS, "infinity", '"infinity"'),
    ("timestamptz", MICROS, "2026-11-21 16:52:38+00", '"2026-11-21T16:52:38+00:00"'),
    ("bytea", EncodeOptions(bytea="base64"), "\\x", '""'),
    ("bytea", EncodeOptions(bytea="base64"), "\\xfbff", '"+/8="'),
    ("bytea", EncodeOptions(bytea="base64url"), "\\xfbff", '"-_8="'),
    ("interval", PARTS, "PT0S", '{"months":0,"days":0,"micros":0}'),
    ("interval", PARTS, "P1Y2M-3DT4H5M6.789S", '{"months":14,"days":-3,"micros":14706789000}'),
    ("interval", PARTS, "P-1Y-2MT-0.5S", '{"months":-14,"days":0,"micros":-500000}'),
    ("interval", PARTS, "PT-1H-1M-1.000001S", '{"months":0,"days":0,"micros":-3661000001}'),
    ("interval", PARTS, "infinity", '"infinity"'),
    ("json", VALUE, ' {"a" : null, "b": 1e400}', ' {"a" : null, "b": 1e400}'),
    ("jsonb", VALUE, '"é"', '"é"'),
]


@pytest.mark.parametrize(("name", "options", "text", "wanted"), CHOICE_TABLE)
def test_operator_chooses_how_a_value_looks(name: str, options: EncodeOptions, text: str, wanted: str) -> None:
    assert _encoded(_resolved(_OIDS[name], options=options), text) == wanted
    json.loads(wanted)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("date", MICROS, "2026-02-30"),
        ("date", MICROS, "2026-02"),
        ("time", MICROS, "16:52"),
        ("timestamp", MICROS, "2026-11-21T00:00:00"),
        ("timestamp", MICROS, "2026-11-21 00:00:00.1234567"),
        ("bytea", EncodeOptions(bytea="base64"), "00ff"),
        ("bytea", EncodeOptions(bytea="base64url"), "\\x0"),
        ("interval", PARTS, "P"),
        ("interval", PARTS, "P1DT"),
        ("interval", PARTS, "1 day"),
    ],
)
def test_text_that_no_session_of_ours_prints_is_a_decode_error(name: str, options: EncodeOptions, text: str) -> None:
    with pytest.raises(DecodeError):
        _encoded(_resolved(_OIDS[name], options=options), text)


def test_json_that_is_not_utf8_is_refused_also_when_it_is_passed_through() -> None:
    encode = _resolved(_OIDS["json"], options=VALUE).encode
    assert encode is not None

    with pytest.raises(UnicodeDecodeError):
        encode(b'"\xff"')


def test_hstore_is_an_object_by_choice_and_only_that_of_the_extension() -> None:
    types = {
        20000: TypeFacts(20000, "public.hstore", "b", extension="hstore"),
        20001: TypeFacts(20001, "public.hstore[]", "b", element_oid=20000),
        20002: TypeFacts(20002, "mine.hstore", "c"),
    }
    options = EncodeOptions(hstore="json")

    assert _encoded(_resolved(20000, types, options), '"a"=>"1", "b"=>NULL') == '{"a":"1","b":null}'
    assert _encoded(_resolved(20001, types, options), '{"\\"a\\"=>\\"1\\"",NULL,""}') == '[{"a":"1"},null,{}]'
    assert _resolved(20001, types, options).encoding == "array<hstore_json>"
    assert _resolved(20002, types, options).encoding == "text"
    assert _encoded(_resolved(20000, types), '"a"=>NULL') == '"\\"a\\"=>NULL"'


def test_choice_reaches_arrays_and_domains() -> None:
    types = {20000: TypeFacts(20000, "day", "d", base_oid=1082), 20001: TypeFacts(20001, "days", "d", base_oid=1182)}

    assert _encoded(_resolved(20000, types, MICROS), "1970-01-02") == "1"
    assert _encoded(_resolved(20001, types, MICROS), "[0:1]={1970-01-02,infinity}") == '[1,"infinity"]'
    assert _resolved(1001, options=EncodeOptions(bytea="base64")).encoding == "array<base64>"


def test_type_that_is_made_of_a_forgotten_one_is_marked() -> None:
    types = {20000: TypeFacts(20000, "d", "d", base_oid=20009), 20001: TypeFacts(20001, "d[]", "b", element_oid=20000)}

    assert [_resolved(oid, types).known for oid in (23, 1007, 20009, 20000, 20001)] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("name", "options", "text", "wanted"),
    [
        ("numeric", EncodeOptions(numeric="number"), "12345678901234567890.10", "12345678901234567890.10"),
        ("numeric", EncodeOptions(numeric="number"), "NaN", '"NaN"'),
        ("numeric", EncodeOptions(numeric="number"), "-Infinity", '"-Infinity"'),
        ("int8", EncodeOptions(int64="string"), "-9223372036854775808", '"-9223372036854775808"'),
        ("int4", EncodeOptions(int64="string"), "1", "1"),
    ],
)
def test_operator_chooses_how_wide_numbers_look(name: str, options: EncodeOptions, text: str, wanted: str) -> None:
    assert _encoded(_resolved(_OIDS[name], options=options), text) == wanted


def test_choice_for_wide_numbers_reaches_arrays_and_domains() -> None:
    options = EncodeOptions(numeric="number", int64="string")
    types = {20000: TypeFacts(20000, "amount", "d", base_oid=1700), 20001: TypeFacts(20001, "ids", "d", base_oid=1016)}

    assert _encoded(_resolved(1231, options=options), "{1.10,NaN}") == '[1.10,"NaN"]'
    assert _encoded(_resolved(20000, types, options), "1.10") == "1.10"
    assert _encoded(_resolved(20001, types, options), "{1,2}") == '["1","2"]'


def test_domain_over_domains_is_what_they_stand_on() -> None:
    types = {
        20000 + depth: TypeFacts(20000 + depth, f"d{depth}", "d", base_oid=20001 + depth if depth < 9 else 16)
        for depth in range(10)
    }

    resolved = _resolved(20000, types)

    assert (resolved.name, resolved.encoding, _encoded(resolved, "t")) == ("d0", "boolean", "true")


def test_domains_in_a_circle_end_as_text() -> None:
    """No server has them; a broken catalog answer must not hang or overflow."""
    types = {20000: TypeFacts(20000, "a", "d", base_oid=20001), 20001: TypeFacts(20001, "b", "d", base_oid=20000)}

    assert _encoded(_resolved(20000, types), "x") == '"x"'


def test_enum_is_its_label() -> None:
    resolved = _resolved(20000, {20000: TypeFacts(20000, "mood", "e")})

    assert (resolved.encoding, _encoded(resolved, 'so "so"')) == ("string", '"so \\"so\\""')


def test_array_of_a_made_type_uses_the_delimiter_of_that_type() -> None:
    types = {
        20000: TypeFacts(20000, "mood", "e", delimiter=";"),
        20001: TypeFacts(20001, "mood[]", "b", element_oid=20000, delimiter=";"),
    }

    resolved = _resolved(20001, types)

    assert (resolved.name, resolved.encoding) == ("mood[]", "array<string>")
    assert _encoded(resolved, '{a,b;"c d"}') == '["a,b","c d"]'


@pytest.mark.parametrize("kind", ["c", "r", "m", "b"])
def test_composites_ranges_and_other_made_types_are_their_text(kind: str) -> None:
    resolved = _resolved(20000, {20000: TypeFacts(20000, "thing", kind)})

    assert (resolved.name, resolved.encoding, _encoded(resolved, '(1,"a b",)')) == ("thing", "text", '"(1,\\"a b\\",)"')


def test_unknown_type_is_its_text() -> None:
    resolved = _resolved(99999)

    assert (resolved.name, resolved.encoding, _encoded(resolved, "[1,2,3]")) == ("oid 99999", "text", '"[1,2,3]"')
    assert unknown_types({23, 1007, 99999}) == {99999}


@pytest.mark.parametrize("oid", [*SCALARS, *ARRAYS])
def test_every_built_in_type_resolves_without_the_catalog(oid: int) -> None:
    resolved = _resolved(oid)

    assert not resolved.name.startswith("oid ") or ARRAYS.get(oid) == 2275  # an array of a pseudo-type
    assert (resolved.encoding.startswith("array<")) == (oid in ARRAYS or oid in {22, 30})


def test_only_boxes_are_separated_by_semicolons() -> None:
    """https://www.postgresql.org/docs/18/arrays.html: "among the standard data types … all use a comma, except for
    type box".
    """
    assert {SCALARS[ARRAYS[oid]] for oid in SEMICOLON_ARRAYS} == {"box"}


def _resolved(
    oid: int, types: Mapping[int, TypeFacts] | None = None, options: EncodeOptions | None = None
) -> TypeEncoding:
    return resolve(oid, types or {}, options or EncodeOptions())


def _encoded(resolved: TypeEncoding, text: str) -> str:
    return text if resolved.encode is None else resolved.encode(text.encode()).decode()
