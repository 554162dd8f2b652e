"""A row larger than the topic allows stops capture by name, or large columns are left out if configured."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.json_transcoder import Transcoder
from cdc.encode.row_records import TranscodeOptions
from cdc.errors import RowRefused
from cdc.model.change_records import Record, TopicBuffer
from cdc.model.relation import ReplicaIdentity
from cdc.wire.pgoutput import UNCHANGED, Delete, Insert, Message, Update
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.servers import customer_table

_LIMIT = 1000
_BIG = b"x" * 1200
_SMALL = b"y" * 700


def test_oversize_row_stops_capture_and_names_table_column_and_size() -> None:
    with pytest.raises(RowRefused) as caught:
        _records(Insert(customer_table.OID, (b"7", _SMALL, _BIG)), "stop")

    facts = caught.value.facts
    assert (facts["table"], facts["column"]) == ("public.customers", "note")
    assert facts["record_bytes"] == len(
        _value(_records(Insert(customer_table.OID, (b"7", _SMALL, _BIG)), "stop", 1 << 20))
    )
    assert caught.value.state == "MISCONFIGURED"


def test_refusal_never_shows_the_row() -> None:
    with pytest.raises(RowRefused) as caught:
        _records(Insert(customer_table.OID, (b"7", b"s3cret", _BIG)), "stop")

    assert "s3cret" not in f"{caught.value} {caught.value.facts} {caught.value.hint}"


def test_omit_leaves_out_the_largest_column_first_and_names_it() -> None:
    document = _document(_records(Insert(customer_table.OID, (b"7", b"Ann", _BIG)), "omit"))

    assert document["after"] == {"id": 7, "name": "Ann"}
    assert document["source"]["omitted"] == ["note"]


def test_omit_leaves_out_as_many_columns_as_it_must() -> None:
    document = _document(_records(Insert(customer_table.OID, (b"7", _SMALL, _BIG)), "omit"))

    assert document["after"] == {"id": 7}
    assert document["source"]["omitted"] == ["name", "note"]


def test_omit_distinguishes_left_out_from_unchanged() -> None:
    document = _document(_records(Update(customer_table.OID, "", None, (b"7", _BIG, UNCHANGED)), "omit"))

    assert document["after"] == {"id": 7}
    assert (document["source"]["omitted"], document["source"]["unchanged"]) == (["name"], ["note"])


def test_omit_leaves_a_column_out_of_both_images() -> None:
    message = Update(customer_table.OID, "O", (b"7", b"A", _BIG), (b"7", b"Ann", b"short"))

    document = _document(_records(message, "omit", full=True))

    assert (document["before"], document["after"]) == ({"id": 7, "name": "A"}, {"id": 7, "name": "Ann"})


def test_row_whose_key_is_too_large_is_refused_even_with_omit() -> None:
    """A key column is never left out: the record would belong to another row."""
    with pytest.raises(RowRefused):
        _records(Insert(customer_table.OID, (b"7", _BIG, b"n")), "omit", key=("name",))


def test_oversize_old_row_is_refused_or_made_smaller_too() -> None:
    message = Delete(customer_table.OID, "O", (b"7", b"Ann", _BIG))

    with pytest.raises(RowRefused):
        _records(message, "stop", full=True)
    event, tombstone = _records(message, "omit", full=True)
    assert json.loads(event[1] or b"")["before"] == {"id": 7, "name": "Ann"}
    assert tombstone[1] is None


@given(st.lists(st.integers(0, 900), min_size=2, max_size=2), st.integers(450, 2000))
def test_omitted_row_fits_or_is_refused_and_keeps_every_smaller_column(sizes: list[int], limit: int) -> None:
    message = Insert(customer_table.OID, (b"7", b"n" * sizes[0], b"t" * sizes[1]))
    whole = len(_value(_records(message, "stop", 1 << 20)))

    records = _records(message, "omit", limit)

    document = _document(records)
    omitted = document["source"].get("omitted", [])
    assert len(_value(records)) <= limit
    assert bool(omitted) == (whole > limit)
    kept = [size for name, size in zip(("name", "note"), sizes, strict=True) if name not in omitted]
    left_out = [size for name, size in zip(("name", "note"), sizes, strict=True) if name in omitted]
    assert max(kept, default=0) <= min(left_out, default=900)


def _records(
    message: Message,
    oversize: Literal["stop", "omit"],
    limit: int = _LIMIT,
    *,
    key: tuple[str, ...] = ("id",),
    full: bool = False,
) -> list[Record]:
    identity = ReplicaIdentity.FULL if full else ReplicaIdentity.DEFAULT
    buffer = TopicBuffer(customer_table.TOPIC, 1)
    options = TranscodeOptions("shop", "shop_db", limit, oversize)
    transcoder = Transcoder(customer_table.schema(key, identity=identity), buffer, options)
    method = {Insert: transcoder.insert, Update: transcoder.update, Delete: transcoder.delete}[type(message)]
    method(server.frame(message, start=3000), customer_table.STAMP, 5)
    return buffer.partitions[0]


def _value(records: list[Record]) -> bytes:
    return records[0][1] or b""


def _document(records: list[Record]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_value(records))
    return document
