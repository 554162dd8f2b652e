"""`cdc.verify` on real servers: it accepts what capture publishes, and finds every kind of damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from cdc.config.load import load, parse
from cdc.errors import CutNotReached, UsageError
from cdc.lsn import Lsn
from cdc.verify.log_check import fold_and_compare
from tests.fixtures.capture.type_forms import ALL, URL, columns, made_domains
from tests.fixtures.capture.type_tables import create, fill
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from cdc.config.settings import Config
    from cdc.verify.verify_report import TableReport, VerifyReport
    from tests.fixtures.servers.daemon import CaptureSite

ONE_PARTITION: Final[dict[str, Any]] = {"kafka": {"partitions": 1}}

# One column of every kind whose JSON is not simply what to_jsonb shows, and some whose it is.
KINDS: Final = """
create type mood as enum ('calm', 'it''s "loud"');
create type place as (x integer, label text);
create domain price as numeric(12, 4) check (value >= 0);
create table kinds (
    id bigint, part numeric(6, 2), exact numeric, prices price[], document jsonb, documents json[], mood mood,
    moods mood[], place place, places place[], ratio double precision, ratios real[], at timestamptz, span interval,
    bytes bytea, days daterange, flags bit(3), grid integer[][], doubled bigint generated always as (id * 2) stored,
    primary key (id, part))
"""
FILL_KINDS: Final = r"""
insert into kinds values
(1, 1.50, 'NaN', '{1.5,NULL,2}', '{"a": [1, null], "b": "ü"}', array['{"x":1}', 'null']::json[], 'calm',
 array['calm', 'it''s "loud"']::mood[], row(1, 'a "b", c')::place, array[row(2, null)]::place[], 1e23,
 '{1e20,NaN,-0,0.1}', '2024-02-29 12:00:00.5+02', '1 year 2 days 03:04:05', '\x00ff', '[2024-01-01,)', '101',
 '{{1,2},{3,4}}'),
(9007199254740993, 0, '-Infinity', '{}', 'null', null, null, null, null, null, '-Infinity', null, 'infinity', null,
 '', 'empty', null, null),
(3, -7.25, 12345678901234567890.123456789, null, '1e2', null, null, null, null, null, 5e-324, null,
 '0044-03-15 00:00:00+00 BC', '-1 mon', null, null, null, '[2:3]={7,8}')
"""


def verified(site: CaptureSite, **options: Any) -> VerifyReport:
    """Compare as of now."""
    return fold_and_compare(configuration(site), site.wal(), **options)


def configuration(site: CaptureSite) -> Config:
    return load(site.folder / f"cdc-{len(site.daemons) - 1}.toml", {})


def table_of(report: VerifyReport, name: str) -> TableReport:
    return next(table for table in report.tables if table.table == f"public.{name}")


def test_values_of_every_kind_agree_with_what_the_server_says(capture: CaptureSite) -> None:
    capture.sql(KINDS)
    capture.running()
    capture.sql(FILL_KINDS, "update kinds set part = part + 1, at = at + interval '1 day' where id = 3")

    report = verified(capture)

    kinds = table_of(report, "kinds")
    assert report.ok, report
    assert kinds.differences.compared == 3
    assert kinds.live_count == 3
    assert kinds.tombstone_count == 1  # the key changed


def test_numbers_by_choice_agree_too(capture: CaptureSite) -> None:
    capture.sql(KINDS)
    capture.running({"encode": {"numeric": "number", "int64": "string"}})
    capture.sql(FILL_KINDS)

    assert verified(capture).ok


@pytest.mark.parametrize("encode", [ALL, URL], ids=["all", "debezium"])
def test_forms_by_choice_agree_too_in_keys_and_arrays(capture: CaptureSite, encode: dict[str, str]) -> None:
    capture.sql("create extension hstore", *made_domains(), KINDS)
    with capture.connect() as session:
        create(session, columns(), "forms")
        session.execute(
            "create table keys (d date, b bytea, t time, at timestamp, i interval, j jsonb, v int,"
            " primary key (d, b, t, at, i, j))"
        )
    capture.running({"encode": encode})
    with capture.connect() as session:
        fill(session, columns(), "forms")
    capture.sql(
        FILL_KINDS,
        """insert into keys values
        ('2026-11-21', '\\xfbff', '24:00', '2026-11-21 16:52:38.25', '1 year -3 days', '{"a": null}'),
        ('infinity', '', '00:00', '-infinity', '-1 mon 0.5 s', '"text"')""",
        "update keys set v = 1",
        "update keys set d = '0044-03-15 BC' where d = 'infinity'",
    )

    report = verified(capture)

    assert report.ok, report
    assert table_of(report, "keys").tombstone_count == 1
    assert table_of(report, "forms").differences.compared > 5


def test_changes_of_every_kind_fold_to_the_tables(capture: CaptureSite) -> None:
    capture.sql(
        'create table "Odd.Name" ("a-b" text primary key, "Größe" integer)',
        "create table files (id integer primary key, name text, body text)",
        "alter table files alter body set storage external",
        "create table visits (page text, hits integer)",
        "alter table visits replica identity full",
    )
    capture.running({"source": {"keyless": ["public.visits"]}})
    capture.sql(
        """insert into "Odd.Name" select 'k' || i, i from generate_series(1, 300) i""",
        """delete from "Odd.Name" where "Größe" % 3 = 0""",
        """update "Odd.Name" set "a-b" = "a-b" || '''"' where "Größe" % 5 = 0""",
        """insert into "Odd.Name" values ('k3', 3)""",
        "insert into files select i, 'n', repeat(md5(i::text), 200) from generate_series(1, 20) i",
        "update files set name = 'renamed' where id % 2 = 0",  # leaves body alone, which is out of line
        "update files set id = id + 100 where id % 4 = 0",  # so does this, and no record of the new key ever had it
        "insert into visits select 'p' || i % 3, 1 from generate_series(1, 30) i",
        "update visits set hits = 2 where page = 'p1'",
        "delete from visits where page = 'p2'",
    )

    report = verified(capture, totals={"public.visits": "hits"})

    visits, files = table_of(report, "visits"), table_of(report, "files")
    assert report.ok, report
    assert {table.countable for table in report.tables} == {"exact"}
    assert (visits.keyed, visits.live_count, visits.totals) == (False, 20, {"hits": (30, 30)})
    assert (files.live_count, files.differences.partial) == (20, 0)


def test_a_kill_under_load_leaves_nothing_to_find(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer primary key, v integer)")
    daemon = capture.running({"capture": {"batch_rows_max": 50}})
    capture.sql("insert into t select i, 0 from generate_series(1, 2000) i")
    daemon.kill()
    capture.sql("update t set v = v + 1", "delete from t where id % 7 = 0")
    capture.running({"capture": {"batch_rows_max": 50}})

    report = verified(capture, totals={"public.t": "v"})

    assert report.ok, report
    assert report.record_count == 2000 + 2000 + 2 * 285
    assert table_of(report, "t").totals == {"v": (1715, 1715)}


def test_rows_that_capture_did_not_see_are_named_by_key(capture: CaptureSite) -> None:
    capture.sql(
        "create table t (id integer primary key, secret text)",
        "create table visits (page text)",
        "alter table visits replica identity full",
    )
    daemon = capture.running({"source": {"keyless": ["public.visits"]}})
    capture.sql("insert into t values (1, 'a'), (2, 'b'), (3, 'c')", "insert into visits values ('x'), ('x'), ('y')")
    lsn = capture.wal()
    daemon.until_position(lsn)
    daemon.stop()
    capture.sql(
        "update t set secret = 'hidden' where id = 1",
        "delete from t where id = 2",
        "insert into t values (4, 'hidden')",
        "delete from visits where page = 'y'",
        "insert into visits values ('x')",
    )

    report = fold_and_compare(configuration(capture), lsn)

    t, visits = table_of(report, "t").differences, table_of(report, "visits").differences
    assert not report.ok
    assert (t.missing, t.extra, t.different) == (1, 1, 1)
    assert t.examples == {"different": ['{"id":1}'], "extra": ['{"id":2}'], "missing": ['{"id":4}']}
    assert (visits.missing, visits.extra, visits.examples) == (1, 1, {})
    assert not report.faults.named()
    assert "hidden" not in str(report)


def test_an_event_that_is_in_the_log_twice_is_found(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer primary key, v integer)")
    capture.running(ONE_PARTITION).until_position(capture.sql("insert into t values (1, 1)"))
    event = capture.log().topic(capture.topic("t"))[0]
    _produce(capture, event.key, event.value)
    capture.sql("insert into t values (2, 1)")

    report = verified(capture)

    assert not report.ok
    assert report.faults.named() == {"repeated": 1, "miscounted": 1}
    assert table_of(report, "t").differences.count == 0


def test_an_older_event_behind_a_newer_one_is_found(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer primary key, v integer)")
    capture.running(ONE_PARTITION)
    capture.sql("insert into t values (1, 1)", "update t set v = 2")
    event = capture.settled(capture.daemons[-1]).topic(capture.topic("t"))[0]
    _produce(capture, event.key, event.value)
    capture.sql("insert into t values (2, 1)")

    report = verified(capture)

    assert report.faults.named() == {"disordered": 1, "miscounted": 1}
    assert table_of(report, "t").differences.examples == {"different": ['{"id":1}']}


@pytest.mark.parametrize("key", [b'{"id":1}', b"7"])
def test_a_foreign_record_is_found(capture: CaptureSite, key: bytes) -> None:
    capture.sql("create table t (id integer primary key, v integer)")
    capture.running(ONE_PARTITION).until_position(capture.sql("insert into t values (1, 1)"))
    _produce(capture, key, b'{"op":"c","after":7}')
    capture.sql("insert into t values (2, 1)")

    report = verified(capture)

    assert report.faults.named() == {"foreign": 1, "miscounted": 1}
    assert table_of(report, "t").differences.count == 0


def test_a_record_that_was_lost_is_found(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer primary key, v integer)")
    capture.running(ONE_PARTITION)
    capture.sql("insert into t values (1, 1)", "insert into t values (2, 2)")
    capture.settled(capture.daemons[-1])
    _set_policy(capture, "delete")  # Kafka deletes no records of a topic that it compacts
    _delete_first(capture)
    _set_policy(capture, "compact")

    report = verified(capture)

    assert report.faults.named() == {"miscounted": 1}
    assert table_of(report, "t").differences.examples == {"missing": ['{"id":1}']}


def test_a_table_without_a_key_whose_first_records_are_gone_is_not_reported_as_clean(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer)")
    capture.running({**ONE_PARTITION, "source": {"keyless": ["public.t"]}})
    capture.sql("insert into t values (1)", "insert into t values (2)")
    capture.settled(capture.daemons[-1])
    _delete_first(capture)

    report = verified(capture)

    assert not report.ok
    assert "retention" in table_of(report, "t").problem


def test_a_table_that_left_the_publication_is_not_reported_as_clean(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer primary key)", "create table u (id integer primary key)")
    daemon = capture.running()
    lsn = capture.sql("insert into t values (1)")
    daemon.until_position(lsn)
    daemon.stop()
    capture.sql(f"alter publication cdc_{capture.name} drop table t")

    report = fold_and_compare(configuration(capture), lsn)

    assert not report.ok
    assert "publication" in table_of(report, "t").problem
    assert table_of(report, "u").ok


def test_an_lsn_that_the_log_does_not_reach_is_an_error_of_its_own(capture: CaptureSite) -> None:
    capture.sql("create table t (id integer primary key)")
    capture.running().stop()
    capture.sql("insert into t values (1)")

    with pytest.raises(CutNotReached) as caught:
        verified(capture, wait_s=0.3)

    assert caught.value.retry == "timed"


def test_progress_reaches_its_total(capture: CaptureSite) -> None:
    seen: list[tuple[str, str, int, int]] = []

    class Noting:
        def verifying(self, table: str, doing: str, done: int, total: int) -> None:
            seen.append((table, doing, done, total))

    capture.sql("create table t (id integer primary key)")
    capture.running()
    capture.sql("insert into t select generate_series(1, 1200)")

    verified(capture, progress=Noting())

    assert [step for step in seen if step[2] == step[3]] == [
        ("public.t", "fold", 1200, 1200),
        ("public.t", "compare", 1200, 1200),
    ]


def _produce(site: CaptureSite, key: bytes | None, value: bytes | None) -> None:
    """What a program does that must not write here."""
    producer = Producer({"bootstrap.servers": site.bootstrap})
    producer.produce(site.topic("t"), key=key, value=value, partition=0)
    assert producer.flush(90) == 0


def _set_policy(site: CaptureSite, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, site.topic("t"), incremental_configs=[entry])
    admin = _admin(site)
    _await(admin.incremental_alter_configs([resource]))


def _delete_first(site: CaptureSite) -> None:
    """Delete the first record, once the leader knows the policy that allows it."""
    admin = _admin(site)

    def deleted() -> bool:
        try:
            _await(admin.delete_records([TopicPartition(site.topic("t"), 0, 1)]))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.POLICY_VIOLATION:
                return False
            raise
        return True

    until(deleted, "the record is deleted")


def _admin(site: CaptureSite) -> AdminClient:
    return AdminClient({"bootstrap.servers": site.bootstrap})


def _await(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(90)


@pytest.mark.parametrize("form", ["flat", "avro"])
def test_other_formats_than_json_are_refused_by_their_setting(form: str) -> None:
    text = 'name = "s"\n[source]\ndsn = "dbname=s"\n[kafka]\nbootstrap = "h:1"\n[registry]\nurl = "http://h"\n'
    config = parse(f'{text}[encode]\nformat = "{form}"\n', {})

    with pytest.raises(UsageError, match=f'encode.format = "{form}"'):
        fold_and_compare(config, Lsn(1))
