"""Hypothesis strategies for messages of PostgreSQL: names, relations, values."""

from __future__ import annotations

from hypothesis import strategies as st

from cdc.lsn import Lsn
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.wire.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Truncate,
    Tuple,
    TypeName,
    Update,
)

POSTGRES_EPOCH_US = 946_684_800_000_000

oids = st.integers(1, 2**32 - 1)
lsns = st.integers(0, 2**64 - 1).map(Lsn)
times_us = st.integers(-(2**63) + POSTGRES_EPOCH_US, 2**63 - 1)

_HOSTILE = [
    "%",
    "%b",
    "%%d",
    '"',
    "\\",
    "\n",
    "\t",
    "{",
    "}",
    "{}",
    "a.b",
    "a b",
    "é",
    "𝄞",
    "'",
    ";",
    "\x7f",
    "-",
    "\u2028",
]


def texts(*, min_size: int = 0, max_size: int = 12) -> st.SearchStrategy[str]:
    """Text a UTF-8 database can hold: no zero byte, no lone surrogates."""
    plain = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=4)
    pieces = st.lists(st.one_of(st.sampled_from(_HOSTILE), plain), min_size=min_size, max_size=max_size)
    return pieces.map("".join)


names = texts(min_size=1, max_size=4).filter(lambda name: len(name.encode()) <= 63)
values = st.one_of(st.binary(max_size=20), texts(max_size=5).map(str.encode), st.none(), st.just(UNCHANGED))


@st.composite
def columns(draw: st.DrawFn) -> Column:
    return Column(draw(names), draw(oids), draw(st.integers(-(2**31), 2**31 - 1)), draw(st.booleans()))


@st.composite
def relations(draw: st.DrawFn) -> Relation:
    identity = draw(st.sampled_from(ReplicaIdentity))
    namespace = draw(st.one_of(names, st.just("pg_catalog")))
    return Relation(draw(oids), namespace, draw(names), identity, tuple(draw(st.lists(columns(), max_size=5))))


def rows() -> st.SearchStrategy[Tuple]:
    return st.lists(values, max_size=6).map(tuple)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    kind = draw(st.sampled_from(["", "K", "O"]))
    return Update(draw(oids), kind, draw(rows()) if kind else None, draw(rows()))


def messages() -> st.SearchStrategy[Message]:
    """Any message of protocol version 1."""
    return st.one_of(
        st.builds(Begin, lsns, times_us, st.integers(0, 2**32 - 1)),
        st.builds(Commit, lsns, lsns, times_us),
        st.builds(Origin, lsns, texts()),
        relations(),
        st.builds(TypeName, oids, st.one_of(names, st.just("pg_catalog")), texts()),
        row_messages(),
        st.builds(Truncate, st.lists(oids, max_size=4).map(tuple), st.booleans(), st.booleans()),
        st.builds(LogicalMessage, st.booleans(), lsns, texts(), st.binary(max_size=20)),
    )


def row_messages() -> st.SearchStrategy[Insert | Update | Delete]:
    """Inserts, updates and deletes, of no particular relation."""
    return st.one_of(
        st.builds(Insert, oids, rows()),
        updates(),
        st.builds(Delete, oids, st.sampled_from("KO"), rows()),
    )


def damaged(data: bytes, at: int) -> list[bytes]:
    """`data` with the byte at `at` changed: by one bit, to the ends, and to letters that mean something."""
    old = data[at]
    others = {old ^ 1, old ^ 0x80, 0, 255, *b"ntubKNO"} - {old}
    return [data[:at] + bytes([other]) + data[at + 1 :] for other in sorted(others)]
