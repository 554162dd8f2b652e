"""Event topics are unique per type; the router loses, duplicates and reorders nothing; any bytes are handled."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from cdc.config.outbox_settings import Outbox
from cdc.encode.envelope import stamp as make_stamp
from cdc.errors import DecodeError
from cdc.lsn import Lsn
from cdc.model.topic_names import TOPIC_LENGTH_MAX
from cdc.wire.pgoutput import Begin, Insert
from outbox.event_topics import EventTopics
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.outbox.scripted_router import OID, ROW, Routing

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic
_TOPICS = EventTopics.of("shop", Outbox())
_close = st.text(st.sampled_from("ab_-2e.h% é"), max_size=6)
kinds = st.one_of(_close, st.text(max_size=100)).filter(lambda text: "\0" not in text)
_values = st.sampled_from([None, b"", b"{}", b"[", b"x", b"\xff", b"\\x00", b"1" * 300])


@given(kinds, kinds)
def test_two_types_of_aggregates_never_share_a_topic(one: str, other: str) -> None:
    assume(one != other)
    topics = _TOPICS.topic(_bytes(one)), _TOPICS.topic(_bytes(other))

    assert topics[0] != topics[1] or topics[0] is None


@given(kinds)
def test_topic_is_legal_and_tells_its_type(kind: str) -> None:
    topic = _TOPICS.topic(_bytes(kind))

    if topic is None:
        assert not kind or len("shop.events.") + len(_bytes(kind)) * 3 > TOPIC_LENGTH_MAX
    else:
        assert _LEGAL.fullmatch(topic)
        assert _TOPICS.type_of(topic) == kind


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), max_size=60))
def test_every_event_is_in_its_topic_once_in_order_however_often_it_is_handed_over(
    steps: list[tuple[str, int, bool]],
) -> None:
    routing = Routing()
    for number, (kind, aggregate, hand_over) in enumerate(steps):
        routing.insert(aggregate_type=kind.encode(), aggregate_id=b"%d" % aggregate, payload=b"%d" % number)
        if hand_over:
            routing.gather()
    found = {
        (topic, key): [int(value or b"") for other, value, _ in records if other == key]
        for topic, records in routing.gather().items()
        for key in {record[0] for record in records}
    }

    wanted: dict[tuple[str, bytes], list[int]] = {}
    for number, (kind, aggregate, _) in enumerate(steps):
        wanted.setdefault((f"shop.events.{kind}", b"%d" % aggregate), []).append(number)
    assert found == wanted


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(ROW, _values)), max_size=8))
def test_any_row_is_published_or_refused_once(rows: list[dict[str, bytes | None]]) -> None:
    routing = Routing(types_max=2)
    for row in rows:
        row["payload_bytes"] = row["payload_bytes"] and b"\\x00ff"
        routing.insert(**row)
    topics = routing.gather()

    counts = routing.router.counts
    assert counts.events + sum(counts.refused.values()) == len(rows)
    assert sum(map(len, topics.values())) == len(rows)
    assert Counter(routing.reasons()) == counts.refused


@given(st.binary(max_size=80))
def test_any_bytes_are_an_event_or_a_decode_error(data: bytes) -> None:
    routing = Routing()
    frame = server.frame(Insert(OID, tuple(ROW.values())))[:30] + data

    try:
        routing.rows.insert(frame, make_stamp(Begin(Lsn(1), 0, 1), 1), 1)
    except DecodeError:
        assert routing.gather() == {}


@given(st.binary(max_size=200))
def test_any_message_is_an_event_or_refused(content: bytes) -> None:
    routing = Routing()

    assert routing.message(content)
    assert sum(map(len, routing.gather().values())) == 1


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
