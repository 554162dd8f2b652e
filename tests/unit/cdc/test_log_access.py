"""The reader that requests of the page share."""

from __future__ import annotations

import pytest

from cdc.config.load import parse
from cdc.errors import BrokerUnreachable, TopicMismatch
from cdc.overview.log_access import LogAccess
from tests.fixtures.servers.manual_clock import ManualClock

_CONFIG = parse('name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "kafka.invalid:9"', {})


def test_after_kafka_did_not_answer_requests_are_refused_at_once_for_a_while() -> None:
    clock = ManualClock()
    log = LogAccess(_CONFIG, clock)
    with pytest.raises(BrokerUnreachable, match="no answer"), log.reader():
        raise BrokerUnreachable("no answer")

    clock.now_s += 4
    with pytest.raises(BrokerUnreachable, match="no answer"), log.reader():
        pytest.fail("the reader is lent although Kafka did not answer")

    clock.now_s += 2
    with log.reader():
        pass
    log.close()


def test_an_answer_that_is_an_error_does_not_refuse_others() -> None:
    log = LogAccess(_CONFIG, ManualClock())
    with pytest.raises(TopicMismatch), log.reader():
        raise TopicMismatch("no topic")

    with log.reader():
        pass
    log.close()


def test_after_the_end_no_reader_is_lent() -> None:
    log = LogAccess(_CONFIG, ManualClock())
    log.close()

    with pytest.raises(BrokerUnreachable, match="is stopping"), log.reader():
        pytest.fail("the reader is lent after the end")
