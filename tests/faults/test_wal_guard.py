"""Alarms about retained WAL are raised before the slot is lost, also while capture waits for a broker (A2, A3)."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cdc.lsn import Lsn
from tests.faults.test_gap import assert_gap, run_once
from tests.faults.test_why import assert_first
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.first_cause import first_cause
from tests.fixtures.servers.running_servers import needs_major
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack, Settings

_LIMIT_MB: Final = 128
_STEP_BYTES: Final = 4 << 20
_MB: Final = 1 << 20


class Pressed:
    """A capture of a server of the test's own, with one row in the log, and a daemon whose broker is away."""

    def __init__(self, capture: CaptureSite) -> None:
        self.capture = capture
        self.known_to = run_once(capture)
        self._absent = {"bootstrap": f"127.0.0.1:{free_ports(1)[0]}"}

    def waiting(self, **source: object) -> Daemon:
        """A daemon that waits for its broker and looks at the WAL all the time."""
        sections: Sections = {"kafka": self._absent, "source": {"wal_check_s": 0.05, **source}}
        daemon = self.capture.daemon(sections)
        until(lambda: wal(daemon), "the first look")
        return daemon

    def write(self, size: int = _STEP_BYTES) -> None:
        """So much WAL that no slot of ours has anything of."""
        self.capture.query("select pg_logical_emit_message(false, 'other', repeat('x', %s))", size)

    def looked(self, daemon: Daemon) -> None:
        """Wait for a look at all that is written now."""
        now = self.capture.wal()
        until(lambda: Lsn.parse(wal(daemon)["current_lsn"]) >= now, "a look")

    def wal_status(self) -> str:
        rows = self.capture.query("select wal_status from pg_replication_slots where slot_name = %s", self.capture.slot)
        return str(rows[0][0])


@contextmanager
def pressed(
    make_stack: MakeStack, kafka: KafkaServer, name: str, folder: Path, settings: Settings
) -> Iterator[Pressed]:
    source = make_stack("postgres", postgres=settings).postgres
    with capture_site(name, source.dsn, kafka.bootstrap, folder) as capture:
        yield Pressed(capture)


def wal(daemon: Daemon) -> dict[str, Any]:
    """What /status says of it; empty before the first look."""
    return daemon.status().get("wal") or {}


def long_ones(daemon: Daemon, pid: int) -> list[dict[str, Any]]:
    """What was logged of this session and of what it prepared; on a busy machine others are long, too."""
    return [one for one in daemon.events("long_transaction") if one["pid"] == pid or one["gid"] == "forgotten"]


def levels(daemon: Daemon, event: str = "wal_alarm") -> list[int]:
    return [one["alarm_percent"] for one in daemon.events(event)]


def test_alarms_come_in_order_each_once_before_the_slot_is_lost(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {"max_slot_wal_keep_size": f"{_LIMIT_MB}MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with pressed(make_stack, kafka, topic_prefix, tmp_path, settings) as site:
        daemon = site.waiting()
        assert wal(daemon)["alarms"] == []

        seen = []
        while site.wal_status() != "lost" and len(levels(daemon)) < 3:
            site.write()
            site.looked(daemon)
            seen.append(wal(daemon))
        assert levels(daemon) == [50, 25, 10]
        assert daemon.events("slot_lost") == [], "all of them came before"
        shares = [one["left_percent"] for one in daemon.events("wal_alarm")]
        assert [share <= level for share, level in zip(shares, (50, 25, 10), strict=True)] == [True] * 3
        assert any(look["alarms"] == [50] for look in seen), "one came after the other"
        assert seen[-1]["alarms"] == [50, 25, 10]
        said = json.loads(cdc("status", "--json", "-c", site.capture.write_config()).out)
        assert said["wal"]["alarms"] == [50, 25, 10], "from outside, too"

        def lost() -> bool:
            site.write(16 * _MB)
            site.capture.sql("select pg_switch_wal()", "checkpoint")
            return site.wal_status() == "lost"

        until(lost, "the slot is lost")
        until(lambda: daemon.events("slot_lost"), "the loss is logged")
        assert [one["reason"] for one in daemon.events("slot_lost")] == ["wal_removed"]
        assert levels(daemon) == [50, 25, 10], "each once"
        daemon.kill()

        stop = site.capture.daemon().stopped_with()
        assert_gap(stop, site.known_to)
        assert "wal_removed" in stop["message"]


def test_alarms_without_a_limit_go_by_the_setting_and_are_cleared_when_capture_is_level(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with pressed(make_stack, kafka, topic_prefix, tmp_path, {}) as site:
        source = {"wal_alarm_bytes": 40 * _MB, "wal_check_s": 0.05}
        daemon = site.waiting(**source)
        site.write(24 * _MB)
        until(lambda: levels(daemon) == [50], "the first alarm")
        site.write(24 * _MB)
        until(lambda: levels(daemon) == [50, 25, 10], "all of them")
        daemon.kill()

        daemon = site.capture.running({"source": source})
        until(lambda: levels(daemon), "they are told by the one that comes after, too")

        def level() -> bool:
            site.capture.sql("insert into t values (7) on conflict do nothing", "checkpoint")
            return levels(daemon, "wal_alarm_cleared") == [10, 25, 50]

        until(level, "all are cleared, from the lowest up", every_s=0.3)
        assert wal(daemon)["alarms"] == []
        assert daemon.stop() == 0


def test_slot_is_dropped_by_consent_and_capture_ends_in_a_gap_with_the_range(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with pressed(make_stack, kafka, topic_prefix, tmp_path, {}) as site:
        consent = {"on_wal_pressure": "drop_slot", "wal_drop_bytes": 32 * _MB}
        daemon = site.waiting(**consent)
        lost = site.capture.sql("insert into t values (2)")
        site.write(24 * _MB)
        site.looked(daemon)
        assert daemon.alive, "not before its threshold"

        site.write(16 * _MB)
        stop = daemon.stopped_with()

        assert_gap(stop, site.known_to)
        assert Lsn.parse(stop["known_to"]) < lost <= Lsn.parse(stop["resumes_at"])
        assert "on_wal_pressure" in stop["message"]
        assert stop["command"] == "cdc slot recreate --resnapshot"
        assert site.capture.query("select count(*) from pg_replication_slots") == [(0,)]
        assert_gap(site.capture.daemon().stopped_with(), site.known_to)


def test_slot_is_dropped_from_under_a_stream_that_a_frozen_process_holds(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with pressed(make_stack, kafka, topic_prefix, tmp_path, {}) as site:
        frozen = site.capture.running()
        frozen.freeze()
        daemon = site.waiting(on_wal_pressure="drop_slot", wal_drop_bytes=32 * _MB)
        site.write(40 * _MB)

        stop = daemon.stopped_with()

        assert stop["state"] == "GAP"
        assert site.capture.query("select count(*) from pg_replication_slots") == [(0,)]
        frozen.thaw()
        assert frozen.stopped_with()["state"] == "GAP"


def test_unread_slot_is_reported_before_it_is_lost(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    needs_major(18, "slots that are idle are invalidated")
    settings = {"idle_replication_slot_timeout": "600s"}
    with pressed(make_stack, kafka, topic_prefix, tmp_path, settings) as site:
        config = site.capture.write_config()

        said = json.loads(cdc("status", "--json", "-c", config).out)
        assert 0 < said["wal"]["idle_lost_in_seconds"] < 600
        assert "idle_replication_slot_timeout" in cdc("status", "-c", config).out
        found = json.loads(cdc("doctor", "--json", "-c", config).out)["findings"]
        assert [one["level"] for one in found if one["check"] == "slot_idle"] == ["warning"]

        daemon = site.waiting()
        assert wal(daemon)["idle_lost_in_seconds"] < 600, "a daemon that waits tells it, too"
        daemon.kill()

        site.capture.sql("alter system set idle_replication_slot_timeout = '1s'", "select pg_reload_conf()")

        def lost() -> bool:
            site.capture.sql("checkpoint")
            return site.wal_status() == "lost"

        until(lost, "the slot is invalidated", every_s=0.5)
        found = first_cause(site.capture.write_config())
        assert_first(found, "slot-lost", "source")
        assert "idle" in found["says"], found["all"]


def test_long_transaction_is_named_and_its_query_is_not(
    make_stack: MakeStack, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {"max_prepared_transactions": "5"}
    with pressed(make_stack, kafka, topic_prefix, tmp_path, settings) as site:
        daemon = site.waiting(transaction_alarm_s=0.2)
        with site.capture.connect() as session:
            session.execute("set application_name = 'the long one'")
            session.execute("begin; insert into other values (1) /* canary-77 */")
            until(lambda: len(long_ones(daemon, session.info.backend_pid)) == 1, "the transaction is logged")
            session.execute("prepare transaction 'forgotten'")
            until(lambda: len(long_ones(daemon, session.info.backend_pid)) == 2, "it is logged with its new name")
            session.execute("rollback prepared 'forgotten'")
            until(lambda: daemon.events("long_transaction_ended"), "its end, too")

            found = long_ones(daemon, session.info.backend_pid)
            told = [(one["pid"], one["gid"], one["application_name"]) for one in found]
            assert told == [(session.info.backend_pid, None, "the long one"), (None, "forgotten", "")]
        assert "canary-77" not in daemon.log_text()
