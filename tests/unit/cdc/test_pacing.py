"""The pause between Kafka transactions adapts to the broker."""

from __future__ import annotations

from cdc.publish.pacing import PAUSE_FIRST_S, PAUSE_MAX_S, PAUSE_MIN_S, Pacer


def committing(pacer: Pacer, *, took_s: float, times: int = 1) -> None:
    for _ in range(times):
        pacer.committed(100.0, 100.0 + took_s)


def test_first_transaction_waits_for_nothing() -> None:
    assert Pacer().wait_s(0.0) <= 0


def test_next_transaction_waits_out_what_is_left_of_the_pause() -> None:
    pacer = Pacer()
    pacer.committed(9.0, 9.005)

    assert 0 < pacer.wait_s(9.005) <= PAUSE_FIRST_S
    assert pacer.wait_s(9.005 + PAUSE_FIRST_S) <= 0


def test_refused_transactions_make_the_pause_longer_but_not_without_end() -> None:
    pacer = Pacer()
    committing(pacer, took_s=0.025)
    longer_s = pacer.pause_s
    committing(pacer, took_s=0.025, times=1000)

    assert longer_s > PAUSE_FIRST_S
    assert pacer.pause_s == PAUSE_MAX_S


def test_smooth_transactions_make_it_shorter_little_by_little() -> None:
    pacer = Pacer()
    committing(pacer, took_s=0.004)
    shorter_s = pacer.pause_s
    committing(pacer, took_s=0.004, times=10_000)

    assert PAUSE_FIRST_S * 0.98 < shorter_s < PAUSE_FIRST_S
    assert pacer.pause_s == PAUSE_MIN_S
