"""The decoder, and the writer that other tests use, agree byte for byte with the output of a real server."""

from __future__ import annotations

from cdc.model.relation import Relation, ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, LogicalMessage, Message, Origin, Truncate, Update, decode
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.golden import payloads


def _messages() -> list[Message]:
    return [decode(payload) for payload in payloads()]


def test_server_sent_every_message_there_is() -> None:
    assert {payload[:1] for payload in payloads()} == {bytes([tag]) for tag in b"BCORYIUDTM"}


def test_our_writer_writes_what_the_server_wrote() -> None:
    """Property tests depend on this writer, so it must write exactly what a server writes."""
    for payload in payloads():
        assert server.encode(decode(payload)) == payload


def test_hostile_names_arrive_whole() -> None:
    relations = {message.name: message for message in _messages() if isinstance(message, Relation)}

    odd = relations['Odd %s "n" t']
    assert [column.name for column in odd.columns] == ["Kéy %", "a\\b", "{x}"]
    assert [column.identity for column in odd.columns] == [True, False, False]


def test_identity_decides_what_is_shown_of_the_old_row() -> None:
    identity = {message.oid: message.replica_identity for message in _messages() if isinstance(message, Relation)}
    kinds: dict[ReplicaIdentity, set[str]] = {}
    for message in _messages():
        if isinstance(message, Update | Delete):
            kinds.setdefault(identity[message.relation_oid], set()).add(message.old_kind)

    assert kinds == {
        ReplicaIdentity.DEFAULT: {"", "K"},
        ReplicaIdentity.FULL: {"O"},
        ReplicaIdentity.INDEX: {"", "K"},
    }


def test_value_out_of_line_that_did_not_change_is_not_sent() -> None:
    updates = [message for message in _messages() if isinstance(message, Update)]

    assert sum(UNCHANGED in update.new for update in updates) >= 3
    assert all(UNCHANGED not in (update.old or ()) for update in updates)


def test_null_and_empty_and_text_are_three_things() -> None:
    first, second = [message for message in _messages() if isinstance(message, Insert)][:2]

    assert first.new == (b"1", b"Ann", None)
    assert second.new == (b"2", b"", "é𝄞".encode())


def test_truncate_names_its_tables_and_options() -> None:
    (truncate,) = [message for message in _messages() if isinstance(message, Truncate)]

    assert (len(truncate.relation_oids), truncate.cascade, truncate.restart_identity) == (2, True, True)


def test_messages_and_origins_are_read() -> None:
    found = [message for message in _messages() if isinstance(message, LogicalMessage | Origin)]

    emitted = {
        (message.transactional, message.prefix, message.content)
        for message in found
        if isinstance(message, LogicalMessage)
    }
    assert emitted == {(True, "prefix", b"text"), (False, "", b"\x00\xff")}
    assert [message.name for message in found if isinstance(message, Origin)] == ["elsewhere"]
