"""Source transactions: rollbacks are invisible, order is commit order, size does not matter (B3, P3, P8)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.servers.running_servers import needs_major
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

KEYS: Final = {"public.t": ["id"]}
LARGE_ROWS: Final = int(os.environ.get("TAILRACE_LARGE_ROWS", "250000"))
GROWTH_BYTES: Final = 64 << 20  # fault B3; 250,000 rows are 110 MB of records


def test_rolled_back_transactions_and_savepoints_are_never_seen(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    daemon = capture.running()

    capture.sql(
        "begin; insert into t values (1, 'rolled back'); rollback",
        "begin; insert into t values (2, 'kept'); savepoint a; insert into t values (3, 'lost'); rollback to a;"
        " insert into t values (4, 'kept'); savepoint b; update t set v = 'lost'; rollback to b; commit",
        "do $$ begin for i in 10..60 loop begin insert into t values (i, 'sub'); if i % 2 = 0 then"
        " raise exception 'no'; end if; exception when raise_exception then null; end; end loop; end $$",
    )
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, KEYS) == []
    assert sorted(row["id"] for row in log.fold(capture.topic("t")).values()) == [2, 4, *range(11, 60, 2)]
    assert [event.source["ordinal"] for event in log.events[:2]] == [1, 2]


def test_prepared_transaction_is_seen_when_committed_and_never_when_rolled_back(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running()
    name = capture.name

    capture.sql(f"begin; insert into t values (1, 'committed'); prepare transaction '{name}-1'")
    capture.sql(f"begin; insert into t values (2, 'rolled back'); prepare transaction '{name}-2'")
    capture.sql("insert into t values (3, 'meanwhile')")
    before = capture.settled(daemon)
    capture.sql(f"commit prepared '{name}-1'", f"rollback prepared '{name}-2'")
    after = capture.settled(daemon)

    assert [event.after["id"] for event in before.events] == [3]
    assert [event.after["id"] for event in after.events] == [3, 1]
    assert after.faults() == []


def test_what_replication_wrote_is_left_out_when_asked(capture: CaptureSite) -> None:
    needs_major(16, "a subscription can leave out what has an origin")
    origin = f"other_{capture.name}"
    replicated = (
        f"select pg_replication_origin_create('{origin}')",
        f"select pg_replication_origin_session_setup('{origin}')",
        "insert into t values (2)",
    )
    capture.sql("create table t (id int primary key)")
    daemon = capture.running({"source": {"origin": "none"}})

    capture.sql("insert into t values (1)", *replicated)
    capture.sql("insert into t values (3)", f"select pg_replication_origin_drop('{origin}')")

    assert [event.after["id"] for event in capture.settled(daemon).events] == [1, 3]


def test_interleaved_transactions_come_in_commit_order(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    daemon = capture.running()

    with capture.connect() as early, capture.connect() as late:
        early.execute("begin; insert into t values (1, 'began first')")
        late.execute("begin; insert into t values (2, 'began second')")
        early.execute("insert into t values (3, 'began first')")
        late.execute("commit")
        early.execute("commit")
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, KEYS) == []
    assert [event.after["id"] for event in log.events] == [2, 1, 3]


def test_commit_before_an_older_and_larger_transaction_is_acknowledged(capture: CaptureSite) -> None:
    """Rows of the larger one lie below the end of the commit before it: a row's LSN is no position."""
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    capture.running().stop()
    with capture.connect() as large:
        large.execute("begin; insert into t select g, 'large' from generate_series(1, 3000) g")
        capture.sql("insert into t select -g, 'small' from generate_series(1, 20) g")
        large.execute("commit")

    daemon = capture.running({"capture": {"batch_rows_max": 20}})
    log = capture.settled(daemon)

    assert history_faults(oracle.changes(), log, KEYS) == []
    until(lambda: capture.confirmed() >= log.progress[-1]["end_lsn"], "all of it is acknowledged")


def test_transaction_larger_than_the_cap_is_spread_and_others_are_not(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    daemon = capture.running({"capture": {"batch_rows_max": 100}})

    capture.sql(
        "insert into t values (-1, 'before')",
        "insert into t select g, 'large' from generate_series(1, 3000) g",
        "insert into t values (0, 'after')",
    )
    log = capture.settled(daemon)

    spread = [cut for cut in log.cuts if cut["next_ordinal"]]
    assert history_faults(oracle.changes(), log, KEYS) == []
    assert len(spread) >= 10
    assert len({cut["commit_lsn"] for cut in spread}) == 1
    ordinals = [cut["next_ordinal"] for cut in spread]
    assert ordinals == sorted(set(ordinals)), "every Kafka transaction goes on where the last one ended"
    assert {cut["end_lsn"] <= spread[0]["commit_lsn"] for cut in spread} == {True}
    assert all(not record["next_ordinal"] for record in log.progress[-1:])


def test_large_transaction_does_not_grow_the_daemon(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running()
    capture.sql("insert into t select -g, 'warm' from generate_series(1, 20000) g")
    capture.settled(daemon)
    before = daemon.rss_peak_bytes()

    end = capture.sql(f"insert into t select g, 'row ' || g from generate_series(1, {LARGE_ROWS}) g")
    daemon.until_position(end, within_s=240)

    assert daemon.rss_peak_bytes() - before < GROWTH_BYTES
    assert daemon.status()["rows"] == LARGE_ROWS + 20000


def test_ten_thousand_subtransactions_with_rollbacks_are_exact_and_do_not_grow_the_daemon(
    capture: CaptureSite,
) -> None:
    """Fault B3: one transaction of ten thousand subtransactions; half are rolled back, some nest."""
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running()
    capture.settled(daemon)
    oracle = capture.oracle()
    before = daemon.rss_peak_bytes()

    capture.sql(
        "do $$ begin for i in 1..10000 loop begin"
        " insert into t values (i, 'sub');"
        " if i % 100 = 1 then begin insert into t values (-i, 'inner'); raise exception 'no';"
        "   exception when raise_exception then null; end; end if;"
        " if i % 2 = 0 then raise exception 'no'; end if;"
        " exception when raise_exception then null; end; end loop; end $$"
    )
    log = capture.settled(daemon)

    assert daemon.rss_peak_bytes() - before < GROWTH_BYTES
    assert [event.after["id"] for event in log.events] == list(range(1, 10001, 2))
    assert history_faults(oracle.changes(), log, KEYS) == []


def test_second_start_goes_on_exactly_where_the_first_ended(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    oracle = capture.oracle()
    daemon = capture.running()
    daemon.until_position(capture.sql("insert into t values (1, 'while running')"))
    assert daemon.stop() == 0
    capture.sql("insert into t values (2, 'while stopped')")
    again = capture.running()
    capture.sql("insert into t values (3, 'while running again')")
    log = capture.settled(again)

    assert history_faults(oracle.changes(), log, KEYS) == []
    assert [event.after["id"] for event in log.events] == [1, 2, 3]


def test_decoding_the_same_wal_again_gives_the_same_bytes(capture: CaptureSite) -> None:
    """Guarantee G9: a copy of the slot, read into topics that were made again under the same names."""
    capture.sql("create table t (id int primary key, v text, n numeric, at timestamptz)")
    assert capture.running().stop() == 0
    slot, twin = capture.slot, f"{capture.slot}_twin"
    capture.sql(
        f"select pg_copy_logical_replication_slot('{slot}', '{twin}')",
        "insert into t select g, 'row', g / 7.0, now() from generate_series(1, 50) g",
        "update t set id = id + 100 where id % 3 = 0",
        "delete from t where id % 5 = 0",
    )
    original = capture.settled(capture.running())
    capture.end()

    # The same name makes the same bytes, so its topics are read and then made again.
    before = [(record.partition, record.key, record.value) for record in original.data]
    capture.forget_topics()
    capture.sql(
        f"select pg_drop_replication_slot('{slot}')", f"select pg_copy_logical_replication_slot('{twin}', '{slot}')"
    )
    replayed = capture.settled(capture.running())

    assert before
    assert [(record.partition, record.key, record.value) for record in replayed.data] == before
