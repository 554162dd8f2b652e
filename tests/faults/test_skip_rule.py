"""The skip rule at its boundary: a commit record that starts exactly where the previous one ended."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.capture.slot_frames import SourceTransaction, waiting_transactions

if TYPE_CHECKING:
    from tests.fixtures.capture.referee import Oracle
    from tests.fixtures.servers.daemon import CaptureSite, Sections

KEYS: Final = {"public.t": ["id"]}
# Every source transaction is a Kafka transaction of its own.
ONE_BY_ONE: Final[Sections] = {"capture": {"batch_rows_max": 1}}
SPREAD: Final[Sections] = {"capture": {"batch_rows_max": 100}}
ROWS: Final = 5000
_ATTEMPTS: Final = 50


@pytest.fixture
def oracle(capture: CaptureSite) -> Oracle:
    """A table `t` that is published, a slot that nobody reads yet, and the referee of all that follows."""
    capture.sql(
        "create table t (id int primary key, v text)",
        f"create publication {capture.slot} for table t with (publish_via_partition_root = true)",
        f"select pg_create_logical_replication_slot('{capture.slot}', 'pgoutput')",
    )
    return capture.oracle()


def test_transaction_whose_commit_starts_at_the_stored_end_lsn_is_published(
    capture: CaptureSite, oracle: Oracle
) -> None:
    first, second = adjacent_commits(capture)
    die_between(capture, first, second)

    log = capture.settled(capture.running())

    assert history_faults(oracle.changes(), log, KEYS) == []


def test_skip_rule_with_less_or_equal_loses_the_transaction_and_is_seen(capture: CaptureSite, oracle: Oracle) -> None:
    first, second = adjacent_commits(capture)
    die_between(capture, first, second)

    log = capture.settled(capture.running(mutant="skip_at_end_lsn"))

    faults = history_faults(oracle.changes(), log, KEYS)
    assert any("the source has" in fault for fault in faults)
    assert second.xid not in {event.source["txId"] for event in log.events}
    assert first.xid in {event.source["txId"] for event in log.events}


def test_spread_transaction_goes_on_at_its_next_ordinal_after_a_kill(capture: CaptureSite, oracle: Oracle) -> None:
    die_inside(capture)

    log = capture.settled(capture.running(SPREAD))

    assert history_faults(oracle.changes(), log, KEYS) == []
    assert len(log.events) == ROWS + 1


def test_spread_transaction_without_a_skip_rule_comes_twice_and_is_seen(capture: CaptureSite, oracle: Oracle) -> None:
    die_inside(capture)

    log = capture.settled(capture.running(SPREAD, mutant="skip_nothing"))

    faults = history_faults(oracle.changes(), log, KEYS)
    assert any("2 times" in fault for fault in faults)


def test_transaction_delivered_but_not_committed_to_kafka_is_published_once(
    capture: CaptureSite, oracle: Oracle
) -> None:
    _, second = adjacent_commits(capture)
    dying = capture.daemon(ONE_BY_ONE, mutant=f"die_before_commit:{second.end_lsn}")
    assert dying.exit_code() < 0

    log = capture.settled(capture.running())

    assert history_faults(oracle.changes(), log, KEYS) == []


def adjacent_commits(capture: CaptureSite) -> tuple[SourceTransaction, SourceTransaction]:
    """Two transactions in the slot, the commit record of the second one right behind that of the first.

    Their rows lie before both commits; whether anything else gets between is the server's affair, so it is looked up.
    """
    with capture.connect() as one, capture.connect() as other:
        for attempt in range(_ATTEMPTS):
            one.execute("begin")
            other.execute("begin")
            one.execute("insert into t values (%s, 'one')", (2 * attempt,))
            other.execute("insert into t values (%s, 'other')", (2 * attempt + 1,))
            one.execute("set local synchronous_commit = off")
            other.execute("set local synchronous_commit = off")
            one.execute("commit")
            other.execute("commit")
            found = waiting_transactions(capture.dsn, capture.slot, capture.slot)
            for first, second in pairwise(found):
                if second.commit_lsn == first.end_lsn:
                    return first, second
    raise AssertionError(f"no two commit records were adjacent in {_ATTEMPTS} attempts")


def die_between(capture: CaptureSite, first: SourceTransaction, second: SourceTransaction) -> None:
    """Have a daemon publish `first` and be killed before it publishes `second`."""
    dying = capture.daemon(ONE_BY_ONE, mutant=f"die_after_commit:{first.end_lsn}")
    assert dying.exit_code() < 0
    stored = capture.log().progress[-1]
    assert stored["end_lsn"] == first.end_lsn == second.commit_lsn
    assert stored["next_ordinal"] == 0


def die_inside(capture: CaptureSite) -> None:
    """Have a daemon be killed when a large transaction is in the log by half."""
    capture.sql(
        "insert into t values (0, 'before')", f"insert into t select g, 'large' from generate_series(1, {ROWS}) g"
    )
    dying = capture.daemon(SPREAD, mutant=f"die_inside_transaction:{ROWS // 2}")
    assert dying.exit_code() < 0
    stored = capture.log().progress[-1]
    assert ROWS // 2 < stored["next_ordinal"] < ROWS
