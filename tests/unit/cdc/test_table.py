"""Which columns are the key, and which tables a pattern selects."""

from __future__ import annotations

import re

import pytest

from cdc.errors import SourceRefused
from cdc.model.relation import ReplicaIdentity
from cdc.patterns import chosen, matches
from cdc.replication.publication import add_statement, create_statement, publishable, to_add
from cdc.replication.table_shape import Index, choose_key
from tests.fixtures.capture.source_builders import keyless_table, publication, table


def index(name: str = "pk", *columns: str, **changes: bool) -> Index:
    flags = {
        "primary": True,
        "replica_identity": False,
        "immediate": True,
        "valid": True,
        "not_null": True,
        "generated": False,
        **changes,
    }
    return Index(name=name, columns=columns or ("id",), **flags)


PRIMARY = index("pk", "b", "a")
IDENTITY = index("u", "c", primary=False, replica_identity=True)


@pytest.mark.parametrize(
    ("identity", "columns"),
    [
        (ReplicaIdentity.DEFAULT, ("b", "a")),
        (ReplicaIdentity.FULL, ("b", "a")),
        (ReplicaIdentity.INDEX, ("c",)),
        (ReplicaIdentity.NOTHING, ()),
    ],
)
def test_key_is_what_the_replica_identity_says(identity: ReplicaIdentity, columns: tuple[str, ...]) -> None:
    assert choose_key(identity, [PRIMARY, IDENTITY]).columns == columns


@pytest.mark.parametrize(
    ("identity", "indexes", "words"),
    [
        (ReplicaIdentity.DEFAULT, [], "no primary key"),
        (ReplicaIdentity.FULL, [IDENTITY], "no primary key"),
        (ReplicaIdentity.INDEX, [PRIMARY], "index of its replica identity is gone"),
        (ReplicaIdentity.NOTHING, [PRIMARY], "NOTHING"),
        (ReplicaIdentity.DEFAULT, [index(immediate=False)], "deferrable"),
        (ReplicaIdentity.DEFAULT, [index(valid=False)], "not valid"),
        (ReplicaIdentity.DEFAULT, [index(not_null=False)], "may be null"),
        (ReplicaIdentity.DEFAULT, [index(generated=True)], "generated"),
    ],
)
def test_table_without_a_usable_key_says_why(identity: ReplicaIdentity, indexes: list[Index], words: str) -> None:
    key = choose_key(identity, indexes)

    assert key.columns == ()
    assert words in key.problem


UNIQUE = index("u", "c", "d", primary=False)


@pytest.mark.parametrize(
    ("identity", "wanted", "columns"),
    [
        (ReplicaIdentity.FULL, ("d", "c"), ("c", "d")),
        (ReplicaIdentity.FULL, ("a", "b"), ("b", "a")),
        (ReplicaIdentity.DEFAULT, ("a", "b"), ("b", "a")),
        (ReplicaIdentity.INDEX, ("c",), ("c",)),
    ],
)
def test_key_is_what_the_configuration_names(
    identity: ReplicaIdentity, wanted: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    assert choose_key(identity, [PRIMARY, IDENTITY, UNIQUE], wanted).columns == columns


@pytest.mark.parametrize(
    ("identity", "indexes", "wanted", "words"),
    [
        (ReplicaIdentity.DEFAULT, [PRIMARY, UNIQUE], ("c", "d"), r"show only \(b, a\)"),
        (ReplicaIdentity.INDEX, [IDENTITY, UNIQUE], ("c", "d"), r"show only \(c\)"),
        (ReplicaIdentity.FULL, [PRIMARY, UNIQUE], ("c",), "no unique index has exactly these columns"),
        (ReplicaIdentity.FULL, [index("u", "c", primary=False, immediate=False)], ("c",), "index u is deferrable"),
        (ReplicaIdentity.FULL, [index("u", "c", primary=False, not_null=False)], ("c",), "may be null"),
        (ReplicaIdentity.NOTHING, [PRIMARY], ("b", "a"), "NOTHING"),
    ],
)
def test_key_that_the_configuration_names_and_that_cannot_be_says_why(
    identity: ReplicaIdentity, indexes: list[Index], wanted: tuple[str, ...], words: str
) -> None:
    key = choose_key(identity, indexes, wanted)

    assert key.columns == ()
    assert re.search(words, key.problem)


@pytest.mark.parametrize(
    ("patterns", "selected"),
    [
        (["public.*"], True),
        (["public.*", "!public.audit_*"], False),
        (["!public.audit_*", "public.*"], True),
        (["public.*", "!public.audit_*", "public.audit_log"], True),
        (["PUBLIC.*"], False),
        ([], False),
        (["!public.audit_log"], False),
        (["public.audit_???"], True),
    ],
)
def test_last_pattern_that_fits_decides(patterns: list[str], selected: bool) -> None:
    assert matches("public.audit_log", patterns) is selected


def test_tables_without_key_are_refused_by_name_and_reason() -> None:
    with pytest.raises(SourceRefused) as caught:
        publishable([table(), keyless_table()])

    assert "1 of 2 tables have no usable key: public.log: it has no primary key" in caught.value.message
    assert "source.keyless" in caught.value.hint


def test_tables_that_cannot_be_published_are_left_out_silently() -> None:
    assert publishable([table("a"), table("b", persistence="u"), table("c", kind="f")]) == [table("a")]


def test_no_table_is_refused() -> None:
    with pytest.raises(SourceRefused, match=r"no table of this database matches source\.tables"):
        publishable([table(persistence="u")])


def test_statements_quote_every_name() -> None:
    subject = table('o"; drop', namespace="S.x")

    assert create_statement('p"', [subject]) == (
        'create publication "p""" for table only "S.x"."o""; drop"\n'
        "    with (publish = 'insert, update, delete, truncate', publish_via_partition_root = true);"
    )
    assert "publish_via_partition_root = true);" in create_statement("p", [subject], 170006)
    assert "true, publish_generated_columns = stored);" in create_statement("p", [subject], 180000)
    assert add_statement("p", [subject, table()]) == (
        'alter publication "p" add table only "S.x"."o""; drop", only "public"."orders";'
    )


def test_only_what_is_missing_is_added() -> None:
    first, second = table("a"), table("b")

    assert to_add(publication(first, second), "p", [first, second]) == []
    assert to_add(publication(first), "p", [first, second]) == [add_statement("p", [second])]
    assert to_add(None, "p", [first]) == [create_statement("p", [first])]


def test_override_is_that_of_the_last_pattern_that_fits() -> None:
    overrides = {"public.*": "a", "public.docs_*": "b", "*.docs_1": "c"}

    assert [chosen(name, overrides, "z") for name in ("public.t", "public.docs_2", "public.docs_1", "other.t")] == [
        "a",
        "b",
        "c",
        "z",
    ]
