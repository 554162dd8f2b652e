"""The doctor's findings about tables."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cdc.doctor.finding import Finding, Level
from cdc.doctor.source_facts import TableRights
from cdc.doctor.table_checks import check_table, check_tables, check_topic_fit
from cdc.model.left_out import LeftOut
from cdc.model.relation import ReplicaIdentity
from cdc.replication.eligibility import without_key
from cdc.replication.table_shape import Leaf, SourceTable
from tests.fixtures.capture.source_builders import column, config, facts, keyless_table, publication, rights, table


def one(subject: SourceTable, allowed: TableRights | None = None) -> Finding:
    (finding,) = check_table(subject, allowed or rights())
    return finding


def test_table_with_a_key_needs_nothing() -> None:
    assert check_table(table(), rights()) == []


def test_tables_that_a_start_leaves_out_because_of_their_topics_are_named_with_what_fixes_them() -> None:
    changed = LeftOut("public.a", 1, "key_changed", "its key is (id, v) now", "-- give it its former key back")
    missing = LeftOut("public.b", 2, "no_topic", "topic 'shop.public.b' does not exist", "kafka-topics.sh --create")

    found = check_topic_fit([changed, missing, without_key(keyless_table())])

    assert [(one.level, one.check, one.table) for one in found] == [
        (Level.WARNING, "key_changed", "public.a"),
        (Level.WARNING, "no_topic", "public.b"),
    ]
    assert (found[0].sql, found[1].command) == (changed.statement, missing.statement)
    assert found[0].message == "public.a is left out: its key is (id, v) now"


def test_table_without_key_is_named_with_every_way_out() -> None:
    finding = one(keyless_table())

    assert (finding.level, finding.table) == (Level.WARNING, "public.log")
    assert "is left out" in finding.message
    assert "add column cdc_id bigint generated always as identity primary key" in finding.sql
    assert '"!public.log"' in finding.command
    assert "source.keyless" in finding.command


def test_new_key_column_never_takes_a_name_that_is_there() -> None:
    finding = one(keyless_table(columns=(column("cdc_id"), column("cdc_id1"))))

    assert "add column cdc_id2 bigint" in finding.sql


def test_index_that_could_be_the_identity_is_offered() -> None:
    finding = one(keyless_table(), rights(candidate_indexes=('u"x',)))

    assert finding.sql == 'alter table "public"."log" replica identity using index "u""x";'


@pytest.mark.parametrize(
    ("identity", "statement"),
    [
        (ReplicaIdentity.DEFAULT, 'alter table "public"."log" replica identity full;'),
        (ReplicaIdentity.FULL, 'create unique index on "public"."log" ("a", "b");'),
    ],
)
def test_statement_makes_the_key_possible_that_the_configuration_names(
    identity: ReplicaIdentity, statement: str
) -> None:
    finding = one(keyless_table(wanted_key=("a", "b"), replica_identity=identity), rights(candidate_indexes=("other",)))

    assert finding.sql.startswith(statement)


def test_key_of_a_table_that_is_not_there_is_an_error() -> None:
    found = check_tables(facts(table("orders")), config('keys = {"public.orderz" = ["id"]}'))

    assert [(f.level, f.check) for f in found if f.level is not Level.OK] == [(Level.ERROR, "keys")]


def _generated(version_num: int, settings: str = "", **publishes: Any) -> list[tuple[Level, str, str]]:
    columns = (column("id"), column("twice", generated=True), column("shown", generated=True, virtual=True))
    subject = table("orders", columns=columns)
    published = publication(subject, **publishes)
    found = check_tables(facts(subject, version_num=version_num, publication=published), config(settings))
    return [(f.level, f.message, f.sql) for f in found if f.check == "generated"]


_NOT_THERE: Final = "public.orders has generated columns that its events lack:"
_VIRTUAL: Final = (
    Level.OK,
    f"{_NOT_THERE} shown: PostgreSQL never publishes virtual generated columns",
    "",
)


def test_generated_columns_that_the_server_cannot_publish_are_a_warning() -> None:
    text = f"{_NOT_THERE} twice: PostgreSQL 17 cannot publish generated columns"

    stored, virtual = _generated(170006)

    assert (stored[0], stored[2], virtual) == (Level.WARNING, "", _VIRTUAL)
    assert stored[1].startswith(text)


def test_generated_columns_that_another_role_must_publish_are_a_warning_with_the_statement() -> None:
    alter = 'alter publication "cdc_shop" set (publish_generated_columns = stored);'

    assert _generated(180000, owned=False)[0][::2] == (Level.WARNING, alter)
    assert _generated(180000, "create = false")[0][::2] == (Level.WARNING, alter)
    assert _generated(180000)[0][::2] == (Level.OK, "")


def test_only_virtual_columns_are_reported_where_stored_ones_are_published() -> None:
    orders = table("orders").oid

    assert _generated(180000, generated=True, columns={orders: frozenset({"id", "twice"})}) == [_VIRTUAL]


def test_generated_columns_that_a_column_list_leaves_out_are_a_warning_without_a_statement() -> None:
    orders = table("orders").oid

    (found, _) = _generated(180000, listed=frozenset({orders}), columns={orders: frozenset({"id"})})

    assert (found[0], found[2]) == (Level.WARNING, "")
    assert "column list" in found[1]


def test_keyless_table_warns_of_failing_updates_until_its_identity_is_full() -> None:
    default = one(keyless_table(keyless=True))
    full = one(keyless_table(keyless=True, replica_identity=ReplicaIdentity.FULL))

    assert default.level is Level.WARNING
    assert "rejects every UPDATE and DELETE on it" in default.message
    assert default.sql.startswith('alter table "public"."log" replica identity full;')
    assert full.level is Level.OK


@pytest.mark.parametrize(("kind", "persistence"), [("r", "u"), ("f", "p")])
def test_table_without_wal_is_left_out_with_a_warning(kind: str, persistence: str) -> None:
    finding = one(table(kind=kind, persistence=persistence))

    assert (finding.check, finding.level) == ("unpublishable", Level.WARNING)


def test_large_values_offer_replica_identity_full() -> None:
    finding = one(table(), rights(toast_bytes=3 << 20))

    assert (finding.check, finding.level) == ("toast", Level.WARNING)
    assert "3.0 MB of large values (note)" in finding.message
    assert "capture reads it from the table" in finding.message
    assert "replica identity full" in finding.sql


def test_large_values_that_are_left_out_are_said_to_be() -> None:
    (finding,) = check_table(table(), rights(toast_bytes=1), reselect=False)

    assert "list it in source.unchanged" in finding.message


@pytest.mark.parametrize(
    ("mode", "toast_bytes", "identity", "level"),
    [
        ("reselect", 1, ReplicaIdentity.DEFAULT, Level.ERROR),
        ("reselect", 0, ReplicaIdentity.DEFAULT, Level.WARNING),
        ("reselect", 1, ReplicaIdentity.FULL, Level.WARNING),
        ("omit", 1, ReplicaIdentity.DEFAULT, Level.WARNING),
    ],
)
def test_large_values_that_may_not_be_read_are_an_error(
    mode: str, toast_bytes: int, identity: ReplicaIdentity, level: Level
) -> None:
    """The next update that does not change a large value stops capture."""
    subject = table(replica_identity=identity)
    allowed = rights(can_select=False, toast_bytes=toast_bytes)

    found = check_tables(facts(subject, rights={subject.oid: allowed}), config(f'[toast]\nmode = "{mode}"'))

    assert [f.level for f in found if f.check == "select"] == [level]


@pytest.mark.parametrize(("word", "level"), [("omit", Level.WARNING), ("reselect", Level.ERROR)])
def test_rights_are_judged_by_the_mode_of_the_table(word: str, level: Level) -> None:
    other = {"omit": "reselect", "reselect": "omit"}[word]
    toast = f'[toast]\nmode = "{other}"\ntables = {{"public.*" = "{word}"}}'
    subject = table()

    found = check_tables(
        facts(subject, rights={subject.oid: rights(can_select=False, toast_bytes=1)}), config(kafka=toast)
    )

    assert [f.level for f in found if f.check == "select"] == [level]


def test_row_level_security_that_hides_rows_is_lifted_for_the_role() -> None:
    subject = table()

    found = check_tables(facts(subject, rights={subject.oid: rights(filtered=True)}), config())

    assert [f.sql for f in found if f.check == "select"] == ['alter role "cdc" bypassrls;']


def test_large_values_are_fine_with_full_identity() -> None:
    assert check_table(table(replica_identity=ReplicaIdentity.FULL), rights(toast_bytes=1)) == []


@pytest.mark.parametrize(
    ("root", "leaf", "level"),
    [
        (ReplicaIdentity.DEFAULT, ReplicaIdentity.DEFAULT, None),
        (ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL, None),
        (ReplicaIdentity.FULL, ReplicaIdentity.DEFAULT, Level.ERROR),
        (ReplicaIdentity.DEFAULT, ReplicaIdentity.NOTHING, Level.ERROR),
    ],
)
def test_partition_must_log_what_the_table_says(root: ReplicaIdentity, leaf: ReplicaIdentity, level: Level) -> None:
    parted = table(kind="p", replica_identity=root, leaves=(Leaf("public", "p1", "r", "p", leaf),))

    assert [f.level for f in check_table(parted, rights())] == ([level] if level else [])


@pytest.mark.parametrize(("kind", "persistence"), [("f", "p"), ("r", "u")])
def test_partition_without_wal_is_a_warning(kind: str, persistence: str) -> None:
    leaf = Leaf("public", "p1", kind, persistence, ReplicaIdentity.DEFAULT)

    finding = one(table(kind="p", leaves=(leaf,)))

    assert (finding.check, finding.level) == ("partition", Level.WARNING)


def test_reserved_schema_is_refused() -> None:
    assert one(table(namespace="events")).check == "reserved_schema"


def test_no_table_at_all_is_an_error_that_shows_the_patterns() -> None:
    (finding,) = check_tables(facts(tables=(), rights={}), config('tables = ["nix.*"]'))

    assert finding.level is Level.ERROR
    assert '"nix.*"' in finding.message


def test_rights_a_snapshot_needs_come_as_grants() -> None:
    first, second = table("a"), table('b"c')
    found = check_tables(
        facts(first, second, rights={first.oid: rights(can_use_schema=False), second.oid: rights(can_select=False)}),
        config(),
    )

    (finding,) = [f for f in found if f.check == "select"]
    assert finding.sql.splitlines() == [
        'grant usage on schema "public" to "cdc";',
        'grant select on "public"."b""c" to "cdc";',
    ]


def test_summary_counts_what_can_be_captured() -> None:
    found = check_tables(facts(table("a"), table("b", kind="p"), keyless_table(keyless=True)), config())

    assert found[0].message == (
        "3 of 3 tables can be captured, 1 of them without a key, 1 partitioned, each published as one table"
    )
