"""The hour of history and the rates of sinks."""

from __future__ import annotations

import pytest

from cdc.overview.history import History, sampled
from cdc.overview.rates import Rates
from cdc.overview.sink_facts import SinkFacts


def test_series_that_begins_later_is_unknown_before() -> None:
    history = History(kept=10)
    history.add("a", {"x": 1.0})
    history.add("b", {"x": 2.0, "y": 5.0})

    assert history.document()["series"] == {"x": [1.0, 2.0], "y": [None, 5.0]}
    assert history.document()["end"] == "b"


def test_value_that_is_missing_is_unknown() -> None:
    history = History(kept=10)
    for values in ({"x": 1.0}, {}, {"x": None}, {"x": 4.0}):
        history.add("", values)

    assert history.document()["series"] == {"x": [1.0, None, None, 4.0]}


def test_only_the_newest_values_are_kept_and_what_is_unknown_for_that_long_is_forgotten() -> None:
    history = History(kept=3)
    for number in range(5):
        history.add("", {"x": float(number), **({"gone": 1.0} if number == 0 else {})})

    assert history.document()["series"] == {"x": [2.0, 3.0, 4.0]}


def test_sample_names_the_series_of_each_sink() -> None:
    found = sampled({"rows_per_second": 3.0, "slot": {"retained_bytes": 7}}, {"cache": {"lag_records": 2}})

    assert found["retained_bytes"] == 7
    assert found["sink:cache:lag_records"] == 2
    assert found["lag_seconds"] is None


def _report(records: int, age_s: float = 0.0) -> SinkFacts:
    return SinkFacts(name="cache", state="RUNNING", records=records, age_s=age_s)


def test_rate_is_computed_between_reports() -> None:
    rates = Rates()
    for second in range(0, 11, 2):
        rates.add(100.0 + second, [_report(1000 + 50 * second)])

    assert rates.now(110.0) == {"cache": pytest.approx(50.0)}


def test_the_same_report_seen_twice_does_not_count_twice() -> None:
    rates = Rates()
    rates.add(100.0, [_report(0)])
    rates.add(110.0, [_report(500)])
    rates.add(114.0, [_report(500, age_s=4.0)])

    assert rates.now(114.0) == {"cache": pytest.approx(50.0)}


def test_rate_begins_again_with_a_new_process_and_is_unknown_without_reports() -> None:
    rates = Rates()
    rates.add(100.0, [_report(9000)])
    rates.add(102.0, [_report(10)])
    assert rates.now(102.0) == {}

    rates.add(104.0, [_report(30)])
    assert rates.now(104.0) == {"cache": pytest.approx(10.0)}
    assert rates.now(200.0) == {}
