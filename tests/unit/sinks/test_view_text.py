"""Text and JSON in views: what is refused, with the construct, its place and an alternative."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from cdc.errors import ViewRefused
from cdc.model.progress_record import SchemaColumn
from cdc.replication.collations import Collation, Collations, of_database
from sinks.warehouse.verify.view_collations import declares_c, wrong_collations
from sinks.warehouse.views.column_types import type_name
from sinks.warehouse.views.definition import bind, parse_view
from sinks.warehouse.views.meaning import json_text
from sinks.warehouse.views.meaning.pg_types import PgType, column_type
from sinks.warehouse.views.meaning.regex_paths import ambiguity, recurses
from sinks.warehouse.views.meaning.regex_syntax import Unknown, parsed

TYPES = {
    "mirror/public.t": {
        "id": PgType("int4"),
        "name": PgType("text"),
        "code": PgType("bpchar", length=5),
        "doc": PgType("jsonb"),
        "raw": PgType("json"),
        "old": PgType("jsonb as a value"),
        "mail": PgType("citext"),
        "owner": PgType("name"),
    }
}
C = Collation("C", order=True, case=True)
C_UTF8 = Collation("C.UTF-8 (builtin)", order=True, case=False)
GERMAN = Collation("de_DE.UTF-8", order=False, case=False)


def refusal(item: str, *, header: str = "") -> ViewRefused:
    text = f"-- dialect: postgres\n{header}select {item} as x from t"
    with pytest.raises(ViewRefused) as refused:
        bind([parse_view(Path("v.sql"), text)], list(TYPES), TYPES)
    return refused.value


def spark(item: str, *, header: str = "") -> str:
    text = f"-- dialect: postgres\n{header}select {item} as x from t"
    return bind([parse_view(Path("v.sql"), text)], list(TYPES), TYPES)[0].sql


@pytest.mark.parametrize(
    ("item", "what", "hint"),
    [
        ("initcap(name)", "initcap(), which follows the collation", 'collate "C"'),
        ("name ilike 'a'", "without case by the collation", 'collate "C"'),
        ("name like 'a\\'", "ends a like pattern with its escape", "twice"),
        ("name like name escape '!'", "escape with a pattern", "literal"),
        ("name similar to 'a%'", "uses similar to", "~"),
        ("format('%I', name)", "more than %s", "concat"),
        ("format('%s')", "0 values for 1 times %s", ""),
        ("regexp_match(name, 'a')", "regexp_match(text", "substring(x from"),
        ("regexp_split_to_array(name, ',')", "regexp_split_to_array(text", "split_part"),
        ("name ~ name", "a regular expression that is not a literal", "like"),
        ("name ~* 'a'", "without case by the collation", 'collate "C"'),
        (r"name ~ 'a\d'", "a class of characters at character 2 of the regular expression", "[0-9]"),
        ("name ~ '[[:alpha:]]'", "a class of characters at character 2", "[0-9]"),
        ("name ~ 'a(?=b)'", "a look-around (? at character 2", "(?:...)"),
        (r"name ~ '(a)\1'", r"the escape \1 at character 4", "punctuation"),
        ("name ~ '(?i)a'", "options, a comment or a look-around (? at character 1", "(?:...)"),
        ("code ~ 'a'", "char(n) with a regular expression", "::text"),
        ("substring(name from 'a|ab')", "takes the longest match", "~"),
        ("substring(name from 'a?(?:ab)?')", "takes the longest match", "~"),
        ("substring(name from '(a)?b')", "a group that is not part of every match", "(?:...)"),
        ("regexp_replace(name, 'a*', 'x')", "matches the empty text", "~"),
        ("regexp_replace(name, 'a+?', 'x')", "as few times as possible", "~"),
        ("regexp_replace(name, 'a', name)", "not a literal", "literal"),
        (r"regexp_replace(name, 'a', '\q')", "another character in a replacement", r"\1"),
        (r"regexp_replace(name, '(a)', '\11')", "a digit behind a group", "two steps"),
        ("regexp_replace(name, 'a', 'b', 'n')", "these flags", "g, i, c"),
        ("doc -> name", "a key that is not a literal", "'key'"),
        ("doc -> 3000000000", "a key that is not a literal", "'key'"),
        ("doc #>> '{\"a\"}'", "this path into a jsonb", "{a,b,0}"),
        ("doc @> doc", "@> with what is not a literal", "@>"),
        ("doc @> '{a}'", "invalid JSON", "@>"),
        ("raw ->> 'a'", "reads a json", "jsonb in PostgreSQL"),
        ("old ->> 'a'", "jsonb as a value", ""),
        ("name ->> 'a'", "operator of jsonb with text", "jsonb"),
        ("doc = doc", "compares values of type jsonb", "@>"),
        ("raw::jsonb", "casts json to jsonb", ""),
        ("jsonb_set(doc, '{a}', '1')", "jsonb_set(jsonb", "jsonb_build_object"),
        ("json_build_object('a', 1)", "json_build_object", "jsonb_build_object"),
        ("jsonb_build_object(name, 1)", "keys are not literals", "jsonb_build_object"),
        ("mail = 'a'", "the same citext", "lower(x::text"),
        ("owner = 'a'", "the same name", "x::text"),
    ],
)  # fmt: skip
def test_text_that_is_not_known_to_be_equal_is_refused(item: str, what: str, hint: str) -> None:
    error = refusal(item)

    assert what in error.message
    assert "line 2" in error.message
    assert hint in error.hint


def test_a_key_that_the_parser_would_trim_is_refused() -> None:
    assert "starts with a blank" in refusal("doc -> ' a'").message
    assert "['s a']" in spark("doc #> '{a}' -> 'b' ->> 'x'").replace("['sx']", "['s a']")


def test_a_declared_collation_allows_classes_and_case() -> None:
    header = "-- collation: C\n"
    assert "[0-9]" in spark(r"name ~ '^\d+$'", header=header)
    assert "[Aa]" in spark("name ~* 'a'", header=header)
    assert "translate" in spark("initcap(name)", header=header)


def test_a_name_is_text_of_collation_c_once_it_is_cast() -> None:
    assert "max(`owner`)" in spark("max(owner::text)").replace("`t`.", "").replace("t_", "")


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        ("^a$", r"\Aa\z"),
        ("[a-c]", "[a-c]"),
        ("[^a]", r"[\x{0}-\x{60}b-\x{10ffff}]"),
        ("a.b", "a.b"),
        ("a{2,3}?", "a{2,3}?"),
        ("(?:ab)+|c", "(?:ab){1,}|c"),
        (r"\.", r"\x{2e}"),
        ("[]a-]", r"[\x{2d}\x{5d}a]"),
        ("ä", r"\x{e4}"),
    ],
)
def test_a_regular_expression_is_written_again_for_java(pattern: str, java: str) -> None:
    assert parsed(pattern, c=False, any_case=False).java() == java


@pytest.mark.parametrize(
    ("pattern", "at"),
    [
        *(
            ("***=a", 1),
            ("a**", 3),
            ("(a", 1),
            ("a)", 2),
            ("[a", 1),
            ("a{2,1}", 2),
            ("a{256}", 2),
            ("*a", 1),
            ("^*", 1),
        ),
        *(("a|", 3), ("()", 2), ("[[.a.]]", 2), ("[a-\\d]", 4), ("[z-a]", 5), (r"\y", 1), (r"a\x41", 2), ("a{,2}", 2)),
        *(("[a-c-e]", 5), ("[ä-ü]", 5), ("a++", 3), ("]", 1), ("[[:foo:]]", 2), ("a\\", 2), ("[a\\", 3), ("[a-", 4)),
    ],
)
def test_a_regular_expression_is_refused_with_its_position(pattern: str, at: int) -> None:
    with pytest.raises(Unknown) as unknown:
        parsed(pattern, c=False, any_case=False)
    assert unknown.value.at == at


@pytest.mark.parametrize("pattern", ["a|ab", "a?(ab)?", "(a|b)*b", "a*a", "(a*)*", "a+?", "a^b", "a?ab"])
def test_a_pattern_whose_match_can_differ_is_ambiguous(pattern: str) -> None:
    assert ambiguity(parsed(pattern, c=False, any_case=False))


@pytest.mark.parametrize("pattern", ["a|b", "a+b?", "^a(bc)?$", "a{1,3}b", "[a-z]+(-[0-9]+)*", "^.*$"])
def test_a_deterministic_pattern_has_one_match(pattern: str) -> None:
    assert not ambiguity(parsed(pattern, c=False, any_case=False))


def test_only_a_repeated_group_needs_a_limit_of_the_text() -> None:
    assert not recurses(parsed("[a-z]+b*", c=False, any_case=False))
    assert recurses(parsed("(ab|c)+", c=False, any_case=False))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{"b":1,"a":2,"aa":3,"b":4}', '{"a": 2, "b": 4, "aa": 3}'),
        ("[1e2, 1.50, -0, -0.0, 1E-3]", "[100, 1.50, 0, 0.0, 0.001]"),
        (r'"\u00e9\u001f\/\"\\"', r'"é\u001f/\"\\"'),
        (" null ", "null"),
        ("[true,false,{}]", "[true, false, {}]"),
    ],
)
def test_a_literal_of_jsonb_is_printed_as_postgresql_does(text: str, printed: str) -> None:
    assert json_text.printed(json_text.document(text)) == printed


@pytest.mark.parametrize("text", ["", "{", "[NaN]", r'"\u0000"', r'"\ud800"', "1e999999", "{'a': 1}"])
def test_a_literal_that_jsonb_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        json_text.document(text)


def test_a_jsonb_in_the_log_as_a_value_is_another_type() -> None:
    text = SchemaColumn(name="doc", type="jsonb", type_oid=3802, type_modifier=-1, encoding="json", key=False)
    value = structs.replace(text, encoding="json_value")

    assert column_type(type_name(text), -1, "string") == PgType("jsonb")
    assert column_type(type_name(value), -1, "string") != PgType("jsonb")


@pytest.mark.parametrize(
    ("row", "order", "case"),
    [
        (("c", "C", "C", ""), True, True),
        (("c", "POSIX", "POSIX", ""), True, True),
        (("c", "C", "en_US.UTF-8", ""), True, False),
        (("c", "en_US.UTF-8", "en_US.UTF-8", ""), False, False),
        (("b", "C", "C", "C"), True, True),
        (("b", "C", "C", "C.UTF-8"), True, False),
        (("i", "C", "C", "und"), False, False),
    ],
)
def test_the_collation_of_a_database_orders_by_code_points_or_not(
    row: tuple[str, str, str, str], *, order: bool, case: bool
) -> None:
    found = of_database(*row)
    assert (found.order, found.case) == (order, case)


@pytest.mark.parametrize(
    ("query", "database", "wrong"),
    [
        ("select max(name) as x from t", C, ""),
        ("select max(name) as x from t", GERMAN, "the database has de_DE.UTF-8, which orders text in another way"),
        ("select max(name) as x from t", C_UTF8, ""),
        ("select lower(name) as x from t", C_UTF8, "for which lower() is not limited to ASCII"),
        ("select id as x from t where name ~ '[a]'", C_UTF8, "for which a regular expression is not limited to ASCII"),
    ],
)
def test_a_declared_collation_is_compared_with_the_database(query: str, database: Collation, wrong: str) -> None:
    found = wrong_collations(f"-- dialect: postgres\n-- collation: C\n{query}", Collations(database))

    assert (wrong in found[0]) if wrong else not found
    assert not wrong_collations(f"-- dialect: postgres\n{query}", Collations(database))


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("select city as x from public.t", 1),
        ("select * from t", 2),
        ("select id as x from t", 0),
        ("select city as x from other", 0),
        ("select city as x from mirror.t", 1),
    ],
)
def test_a_declared_collation_is_compared_with_the_columns_that_a_view_reads(query: str, count: int) -> None:
    folded = Collation("folded", order=False, case=False, deterministic=False)
    found = Collations(C, {("public", "t"): {"city": GERMAN, "tag": folded}})

    assert len(wrong_collations(f"-- dialect: postgres\n-- collation: C\n{query}", found)) == count


def test_a_nondeterministic_column_is_wrong_in_every_view_of_postgresqls_sql() -> None:
    found = Collations(C, {("public", "t"): {"tag": Collation("folded", order=False, case=False, deterministic=False)}})

    (why,) = wrong_collations("-- dialect: postgres\nselect tag as x from t", found)
    assert "public.t.tag has the nondeterministic collation folded" in why
    assert not wrong_collations("select tag as x from t", found)
    assert declares_c("-- dialect: postgres\n-- Collation: c\nselect 1 as x")
