"""The doctor's findings about server, role, slot and publication."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.doctor.finding import Finding, Level
from cdc.doctor.source_checks import check_source
from cdc.errors import SourceRefused
from cdc.lsn import Lsn
from cdc.model.failover import FailoverFacts, StandbySlot
from cdc.replication.blockers import Blocker
from cdc.replication.slot import SlotFacts
from tests.fixtures.capture.source_builders import SETTINGS, config, facts, publication, rights, table

SLOT = SlotFacts(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    restart_lsn=Lsn(100),
    confirmed_flush_lsn=Lsn(200),
    wal_status="reserved",
    lag_bytes=10,
    retained_bytes=110,
)


def bad(text: str = "", **changes: Any) -> list[Finding]:
    """Return findings that are not OK, for a valid source with these `changes`."""
    return [f for f in check_source(facts(**changes), config(text)) if f.level is not Level.OK]


def with_setting(name: str, value: str) -> list[Finding]:
    return bad(settings={**SETTINGS, name: value})


def test_source_in_order_has_nothing_to_mend() -> None:
    assert bad() == []


@pytest.mark.parametrize(
    ("name", "value", "level", "sql"),
    [
        ("wal_level", "replica", Level.ERROR, "alter system set wal_level = 'logical';"),
        ("max_replication_slots", "1", Level.ERROR, "alter system set max_replication_slots = 6;"),
        ("max_wal_senders", "1", Level.ERROR, "alter system set max_wal_senders = 6;"),
        ("wal_sender_timeout", "0", Level.WARNING, "alter system set wal_sender_timeout = '60s';"),
        ("wal_sender_timeout", "1", Level.WARNING, "alter system set wal_sender_timeout = '60s';"),
        ("max_slot_wal_keep_size", "-1", Level.WARNING, "alter system set max_slot_wal_keep_size = '64GB';"),
        ("max_slot_wal_keep_size", "64", Level.WARNING, "alter system set max_slot_wal_keep_size = '64GB';"),
        ("idle_replication_slot_timeout", "600", Level.WARNING, "alter system set idle_replication_slot_timeout = 0;"),
        ("server_encoding", "SQL_ASCII", Level.WARNING, ""),
    ],
)
def test_setting_is_named_with_the_statement_that_mends_it(name: str, value: str, level: Level, sql: str) -> None:
    (finding,) = with_setting(name, value)

    assert finding.level is level
    assert finding.check == name
    assert finding.sql.startswith(sql)


@pytest.mark.parametrize(
    ("version_num", "level"),
    [(140019, Level.ERROR), (150013, Level.WARNING), (160009, Level.WARNING), (170005, Level.WARNING),
     (190000, Level.WARNING)],
)  # fmt: skip
def test_version_that_is_not_safe_is_named(version_num: int, level: Level) -> None:
    (finding,) = bad(version_num=version_num)

    assert (finding.check, finding.level) == ("version", level)


@pytest.mark.parametrize("version_num", [150014, 160010, 170006, 180000, 180006])
def test_safe_minor_is_silent(version_num: int) -> None:
    assert bad(version_num=version_num) == []


def test_standby_is_refused() -> None:
    (finding,) = bad(in_recovery=True)

    assert (finding.check, finding.level) == ("primary", Level.ERROR)


def test_role_without_replication_gets_the_statement() -> None:
    role = replace(facts().role, name='we"ird', replication=False)

    (finding,) = bad(role=role)

    assert finding.level is Level.ERROR
    assert finding.sql == 'alter role "we""ird" replication;'


def test_refused_replication_connection_says_why_and_what_to_do() -> None:
    error = SourceRefused("cannot connect: no pg_hba.conf entry", hint="edit pg_hba.conf")

    (finding,) = bad(replication_error=error)

    assert finding.level is Level.ERROR
    assert "no pg_hba.conf entry; edit pg_hba.conf" in finding.message


@pytest.mark.parametrize(("error", "level"), [(None, Level.WARNING), (SourceRefused("no"), Level.ERROR)])
def test_pooler_is_seen(error: SourceRefused | None, level: Level) -> None:
    findings = bad(pooled=True, replication_error=error)

    assert next(f.level for f in findings if f.check == "pooler") is level


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plugin": "test_decoding"}, "instead of pgoutput"),
        ({"database": "other"}, "belongs to database 'other'"),
        ({"invalidation": "wal_removed"}, "wal_removed"),
        ({"temporary": True}, "temporary"),
        ({"two_phase": True}, "two_phase"),
    ],
)
def test_unusable_slot_is_an_error(changes: dict[str, Any], words: str) -> None:
    (finding,) = bad(slot=replace(SLOT, **changes))

    assert (finding.check, finding.level) == ("slot", Level.ERROR)
    assert words in finding.message


@pytest.mark.parametrize("changes", [{"plugin": "test_decoding"}, {"database": "other"}, {"temporary": True}])
def test_slot_of_another_program_is_never_proposed_for_dropping(changes: dict[str, Any]) -> None:
    (finding,) = bad(slot=replace(SLOT, **changes))

    assert "drop" not in finding.sql + finding.command + finding.message


@pytest.mark.parametrize("changes", [{"wal_status": "unreserved"}, {"safe_wal_size": 1 << 20}])
def test_slot_about_to_be_lost_is_a_warning_because_a_start_still_saves_it(changes: dict[str, Any]) -> None:
    (finding,) = bad(slot=replace(SLOT, **changes))

    assert (finding.check, finding.level) == ("slot", Level.WARNING)
    assert "about to be lost" in finding.message


def test_slot_in_use_counts_as_free() -> None:
    settings = {**SETTINGS, "max_replication_slots": "1", "max_wal_senders": "1"}

    assert bad(slot=replace(SLOT, active_pid=4711), settings=settings) == []


def test_missing_slot_made_by_hand_gets_its_statement() -> None:
    findings = bad("create = false", publication=publication(table()))

    assert [f.sql for f in findings] == ["select pg_create_logical_replication_slot('cdc_shop', 'pgoutput');"]


def test_old_and_prepared_transactions_that_hold_up_a_new_slot_are_named_with_their_end() -> None:
    young = Blocker(1, "", "shop", "app", "active", 0.5)
    old = Blocker(2, "", "shop", "psql", "idle in transaction", 60.0)
    prepared = Blocker(None, "gid'x", "shop", "", "prepared", 1.0)

    findings = bad(blockers=(young, old, prepared))

    assert [f.sql for f in findings] == ["select pg_terminate_backend(2);", "rollback prepared 'gid''x';"]
    assert bad(blockers=(old,), slot=SLOT) == []


def test_missing_publication_is_made_by_run_or_by_statement() -> None:
    assert bad(slot=SLOT) == []

    (finding,) = bad("create = false", slot=SLOT)

    assert finding.level is Level.ERROR
    assert finding.sql.startswith('create publication "cdc_shop" for table only "public"."orders"')


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"can_create": False}, "no CREATE on the database"),
        ({}, "does not own public.orders"),
    ],
)
def test_publication_we_may_not_make_is_an_error(changes: dict[str, Any], words: str) -> None:
    role = replace(facts().role, **changes)

    (finding,) = bad(role=role, rights={table().oid: rights(owned=False)})

    assert finding.level is Level.ERROR
    assert words in finding.message


def test_superuser_may_make_any_publication() -> None:
    role = replace(facts().role, superuser=True, can_create=False)

    assert bad(role=role, rights={table().oid: rights(owned=False)}) == []


def test_publication_of_another_that_lacks_a_table_names_its_owner() -> None:
    (finding,) = bad(publication=publication(owned=False, owner="dba"))

    assert "lacks public.orders" in finding.message
    assert "owned by 'dba'" in finding.message
    assert finding.sql == 'alter publication "cdc_shop" add table only "public"."orders";'


@pytest.mark.parametrize(
    ("changes", "sql"),
    [
        ({"update": False}, "set (publish = 'insert, update, delete, truncate')"),
        ({"via_root": False}, "set (publish_via_partition_root = true)"),
    ],
)
def test_publication_with_unfit_options_gets_the_statement(changes: dict[str, bool], sql: str) -> None:
    parted = table(kind="p")

    (finding,) = bad(tables=(parted,), publication=publication(parted, **changes))

    assert finding.level is Level.ERROR
    assert sql in finding.sql


def test_publication_of_leaves_leaves_out_partitioned_tables_alone() -> None:
    parted, plain = table("parted", kind="p"), table("plain")

    (finding,) = bad(tables=(parted, plain), publication=publication(plain, via_root=False))

    assert finding.level is Level.WARNING
    assert "public.parted" in finding.message
    assert "publish_via_partition_root = true" in finding.sql


def test_table_that_the_role_may_not_publish_is_a_warning_while_others_are_captured() -> None:
    late, there = table("late"), table("there")

    (finding,) = bad(tables=(late, there), publication=publication(there, owned=False, owner="dba"))

    assert finding.level is Level.WARNING
    assert "lacks public.late" in finding.message
    assert finding.sql == 'alter publication "cdc_shop" add table only "public"."late";'


def test_publication_without_truncate_is_a_warning_only_when_truncate_should_stop() -> None:
    published = publication(table(), truncate=False)

    assert [f.check for f in bad(publication=published)] == ["publication_truncate"]
    assert bad('on_truncate = "ignore"', publication=published) == []


def test_row_filter_is_named() -> None:
    (finding,) = bad(publication=publication(table(), filtered=frozenset({table().oid})))

    assert "row filters on public.orders" in finding.message


def test_slot_that_nobody_reads_is_a_warning_where_that_costs_it() -> None:
    idle = replace(SLOT, inactive_s=400.0)
    settings = {**SETTINGS, "idle_replication_slot_timeout": "600"}

    found = {f.check: f.message for f in bad(slot=idle, settings=settings)}

    assert "in 200 s" in found["slot_idle"]
    assert "slot_idle" not in {f.check for f in bad(slot=idle)}
    assert "slot_idle" not in {f.check for f in bad(slot=replace(idle, active_pid=7), settings=settings)}


def test_failover_is_refused_before_17_and_its_lacks_are_warnings() -> None:
    (old,) = bad("failover = true", version_num=160010)
    ready = FailoverFacts(wanted=True, slot_failover=True, standbys=(StandbySlot("s", True, True, 0),))

    assert (old.check, old.level) == ("failover", Level.ERROR)
    assert bad("failover = true", slot=SLOT, failover=ready) == []
    (lack,) = bad("failover = true", slot=SLOT, failover=replace(ready, standbys=()))
    assert (lack.check, lack.level) == ("failover", Level.WARNING)
    assert "synchronized_standby_slots" in lack.message
