"""Progress records: what is written can be read, and what cannot be trusted is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ProgressDamaged
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut, Identity, Progress, SchemaKey
from cdc.model.signal_record import SignalAnswer, newest_answers
from cdc.model.table_facts import (
    AcceptedFindings,
    CatalogScope,
    ColumnFacts,
    DdlFinding,
    LeafFacts,
    TableFacts,
    TableRecord,
)
from cdc.progress.record_format import (
    accepted_key,
    catalog_key,
    decode,
    encode,
    identity_key,
    progress_key,
    sentinel_key,
    table_key,
)

_IDENTITY = Identity(
    system_identifier="18446744073709551615",
    timeline=3,
    database="shop",
    database_oid=16384,
    slot="cdc_shop",
    publication="cdc_shop",
    publication_oid=16385,
    server_version=180006,
    partitions={"shop.public.orders": 4},
    topic_ids={"shop.public.orders": "8QrJm1v2QkO5nDwe0cJg3A"},
)
_PROGRESS = Progress(epoch=1, end_lsn=110, commit_lsn=100, next_ordinal=3, verified_lsn=105)
_CUT = Cut(epoch=1, end_lsn=110, changed={"shop.public.orders-0": (5, 4, "00000000000000ff")})
_FULL_CUT = Cut(
    epoch=2,
    end_lsn=110,
    commit_lsn=100,
    next_ordinal=3,
    verified_lsn=105,
    full=True,
    since_lsn=7,
    tables={"public.orders": "complete"},
    changed={},
)

_SCOPE = CatalogScope(lsn=7, xid=770, all_tables=True, schemas=("a", "b"), selected=("public.*",))
_FINDING = DdlFinding(kind="joined", table="public.t", what="w", hint="h", command="c", epoch=1, since_lsn=1, lsn=2)
_FACTS = TableFacts(
    9,
    "public",
    "t",
    0,
    770,
    (ColumnFacts(1, "id", 23, -1, 770, 0, False, True),),
    (LeafFacts(9, "public", "t", 9, True),),
)
_TABLE = TableRecord(facts=_FACTS, findings=(_FINDING,))
_ACCEPTED = AcceptedFindings(epoch=1, lsn=7)

Readable = Progress | Identity | Cut | CatalogScope | TableRecord | AcceptedFindings
_READERS: dict[type, Callable[[bytes], Readable]] = {
    Progress: lambda data: decode(data, Progress, "shop.__progress"),
    Identity: lambda data: decode(data, Identity, "shop.__progress"),
    Cut: lambda data: decode(data, Cut, "shop.__progress"),
    CatalogScope: lambda data: decode(data, CatalogScope, "shop.__progress"),
    TableRecord: lambda data: decode(data, TableRecord, "shop.__progress"),
    AcceptedFindings: lambda data: decode(data, AcceptedFindings, "shop.__progress"),
}


@pytest.mark.parametrize(
    "record",
    [
        _PROGRESS,
        _IDENTITY,
        _CUT,
        _FULL_CUT,
        Progress(epoch=1, end_lsn=0),
        _SCOPE,
        _TABLE,
        TableRecord(facts=None),
        _ACCEPTED,
    ],
)
def test_every_record_survives_a_round_trip(record: Readable) -> None:
    assert _READERS[type(record)](encode(record)) == record


@pytest.mark.parametrize("record", [_PROGRESS, _IDENTITY, _CUT, _SCOPE, _TABLE, _ACCEPTED])
def test_every_record_says_its_version(record: Readable) -> None:
    """The version is written even if it is the default: a reader of another version must see it."""
    assert encode(record).startswith(b'{"version":1,')


def test_positions_are_written_as_integers() -> None:
    assert encode(Progress(epoch=1, end_lsn=Lsn(0x16B374D848))) == (
        b'{"version":1,"epoch":1,"end_lsn":97500059720,"commit_lsn":0,"next_ordinal":0,"verified_lsn":0}'
    )


@pytest.mark.parametrize("kind", list(_READERS))
def test_record_of_another_version_is_refused_with_both_numbers(kind: type) -> None:
    with pytest.raises(ProgressDamaged, match="has version 2; this release reads version 1") as caught:
        _READERS[kind](b'{"version":2,"anything":true}')

    assert caught.value.facts["topic"] == "shop.__progress"
    assert caught.value.state == "MISCONFIGURED"


@pytest.mark.parametrize("kind", list(_READERS))
@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{}", b'{"version":"1"}', b'{"version":1}', b"\xff", b'{"version":1', b"garbage"]
)
def test_garbage_is_refused_and_names_the_topic(data: bytes, kind: type) -> None:
    with pytest.raises(ProgressDamaged, match=r"shop\.__progress"):
        _READERS[kind](data)


@given(st.binary(max_size=30))
def test_any_bytes_are_refused(data: bytes) -> None:
    for read in _READERS.values():
        with pytest.raises(ProgressDamaged):
            read(data)


@given(st.integers(0, 200), st.sampled_from([b"", b'"', b"}", b"9", b"\x80", b"null"]))
def test_damaged_record_is_refused_or_a_record(at: int, other: bytes) -> None:
    for record in (_PROGRESS, _IDENTITY, _FULL_CUT, _SCOPE, _TABLE, _ACCEPTED):
        data = encode(record)
        broken = data[: at % len(data)] + other + data[at % len(data) + 1 :]
        try:
            found = _READERS[type(record)](broken)
        except ProgressDamaged:
            continue
        assert isinstance(found, type(record))


def test_every_record_has_a_key_of_its_own() -> None:
    assert [progress_key("shop"), identity_key("shop"), sentinel_key("shop"), catalog_key("shop")] == [
        b"shop",
        b"shop/identity",
        b"shop/sentinel",
        b"shop/catalog",
    ]
    assert table_key("shop", "public.t") == b"shop/catalog/public.t"
    assert accepted_key("shop", "public.t") == b"shop/accepted/public.t"


def test_schema_key_is_table_and_id() -> None:
    assert encode(SchemaKey("public.orders", "22bfc5e0")) == b'{"table":"public.orders","schema_id":"22bfc5e0"}'


def test_answers_to_signals_stay_small_and_the_last_one_is_kept() -> None:
    long = [SignalAnswer(offset=offset, done=tuple(map(str, range(3000)))) for offset in range(3)]
    many = [SignalAnswer(offset=offset) for offset in range(60)]

    assert [answer.offset for answer in newest_answers(long)] == [2]
    assert [answer.offset for answer in newest_answers([*long, SignalAnswer(offset=9)])] == [2, 9]
    assert [answer.offset for answer in newest_answers(many)] == list(range(10, 60))
