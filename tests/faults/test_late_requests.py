"""A commit of an earlier Kafka transaction arrives while a later one is open with half its rows (C3).

The attack is real: a producer that is not thrown away after a lost request has the later transaction cut in two by it.
A late Produce does no harm either way: the broker knows its sequence numbers from the one that was sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.links import IMPATIENT, trap_text
from tests.fixtures.faults.proxy import END_TXN, PRODUCE
from tests.fixtures.faults.tally import LONG_ONLY

if TYPE_CHECKING:
    from tests.fixtures.capture.referee import Oracle
    from tests.fixtures.faults.proxy import Proxy, Trap
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

# A line so slow that a transaction of several requests is open for seconds.
_LATENCY_S: Final = 0.15
# A late commit that comes a moment before or behind the rows of the later transaction does no harm.
_ROUNDS: Final = 8
# What the daemon says when it is first to see a transaction that was cut in two: it reads back what it committed.
_DAMAGED: Final = "ProgressDamaged"


def test_late_commit_cannot_end_a_later_transaction(linked: tuple[CaptureSite, Proxy]) -> None:
    assert attacked(*linked, mutant="") == []


def test_without_rotation_a_late_commit_ends_a_later_transaction_and_is_seen(linked: tuple[CaptureSite, Proxy]) -> None:
    faults = attacked(*linked, mutant="no_rotation", rounds=_ROUNDS)

    assert any("times" in fault or "the source has" in fault or _DAMAGED in fault for fault in faults)


@LONG_ONLY
def test_late_rows_are_refused_by_the_broker_even_without_rotation(linked: tuple[CaptureSite, Proxy]) -> None:
    assert attacked(*linked, mutant="no_rotation", request_kind=PRODUCE) == []


def attacked(
    capture: CaptureSite, proxy: Proxy, *, mutant: str, request_kind: int = END_TXN, rounds: int = 1
) -> list[str]:
    """What is wrong with the log after the attack, or after the first of several that did harm."""
    oracle = capture.oracle()
    daemon = capture.running(IMPATIENT, mutant=mutant)
    for first in range(0, rounds * 100_000, 100_000):
        late = proxy.trap(request_kind, "hold", text=trap_text(capture, request_kind))
        capture.sql(f"insert into t select {first} + g, 'caught' from generate_series(1, 100) g")
        assert late.sprung.wait(90)
        capture.settled(daemon)
        _while_open(capture, proxy, first, late)
        if faults := _faults(capture, daemon, oracle):
            return faults
    return []


def _faults(capture: CaptureSite, daemon: Daemon, oracle: Oracle) -> list[str]:
    """What is wrong with the log, told by the oracle or by the daemon that refused to go on from it."""
    try:
        log = capture.settled(daemon)
    except RuntimeError:
        if daemon.alive or _DAMAGED not in daemon.log_text():
            raise
        return [_DAMAGED]
    return history_faults(oracle.changes(), log, {"public.t": ["id"]})


def _while_open(capture: CaptureSite, proxy: Proxy, first: int, late: Trap) -> None:
    """Have `late` delivered when the broker has one part of the rows of a transaction and not the others."""
    proxy.latency_s = _LATENCY_S
    parts = [proxy.trap(PRODUCE, "pass", text=trap_text(capture, PRODUCE)) for _ in range(2)]
    capture.sql(f"insert into t select {first} + g, repeat('open', 200) from generate_series(1000, 9000) g")
    for part in parts:
        assert part.sprung.wait(90)
    late.release()
    proxy.latency_s = 0.0
    capture.sql(f"insert into t values ({first} + 20000, 'after')")
