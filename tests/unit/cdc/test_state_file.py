"""The file of `cdc state export`: complete or refused, and digests that compaction does not change."""

from __future__ import annotations

import random

import pytest

from cdc.errors import UsageError
from cdc.model.log_record import LogRecord
from cdc.model.state_file import TAIL_RECORDS, Digest, Digesting, StateFile, decode, encode

STATE = StateFile(
    name="shop",
    release="0.2.0",
    exported_at="2026-11-28T15:00:00+00:00",
    records={b"shop": b'{"version":1,"epoch":1,"end_lsn":7}', b"shop/identity": b'{"version":1}'},
    digests=(Digest(topic="shop.public.t", partition=0, live_count=2, live_hash="00000000000000ff", tail=("01",)),),
)


def record(offset: int, key: str | None, value: str | None) -> LogRecord:
    texts = [None if one is None else one.encode() for one in (key, value)]
    return LogRecord("shop.public.t", 0, offset, 0, texts[0], texts[1], None)


def digest(*records: tuple[str | None, str | None]) -> Digest:
    digesting = Digesting("shop.public.t", 0)
    digesting.add(record(offset, *one) for offset, one in enumerate(records))
    return digesting.done()


def test_state_is_read_as_it_was_written() -> None:
    assert decode(b"".join(encode(STATE))) == STATE


def test_file_that_is_cut_off_anywhere_is_refused() -> None:
    data = b"".join(encode(STATE))

    for length in range(len(data) - 1):
        with pytest.raises(UsageError):
            decode(data[:length])


def test_file_without_a_line_is_refused() -> None:
    lines = list(encode(STATE))

    for left_out in range(1, len(lines) - 1):
        with pytest.raises(UsageError, match="cut off"):
            decode(b"".join(line for index, line in enumerate(lines) if index != left_out))


def test_file_of_a_newer_release_is_refused_by_its_version() -> None:
    data = b"".join(encode(STATE)).replace(b'"version":1', b'"version":2', 1)

    with pytest.raises(UsageError, match="version 2; this release reads version 1"):
        decode(data)


def test_another_file_is_refused() -> None:
    with pytest.raises(UsageError, match="is not an exported state"):
        decode(b'{"kind":"other","version":1}\n')


def test_compaction_does_not_change_a_digest() -> None:
    chance = random.Random(7)
    records = [(f"k{chance.randrange(20)}", chance.choice(["a", "b", "c", None])) for _ in range(500)]
    newest = dict(records)
    last = {key: index for index, (key, _) in enumerate(records)}

    compacted = [(key, newest[key]) for key in sorted(newest, key=lambda key: last[key])]
    without_tombstones = [one for one in compacted if one[1] is not None]

    assert digest(*records) == digest(*compacted) == digest(*without_tombstones)
    assert digest(*records).differs(digest(*without_tombstones)) == ""


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        ([("a", "1")], "it has 1 rows, the original 2"),
        ([("a", "1"), ("b", "old")], "other rows"),
        ([("a", "2"), ("b", "1")], "other rows"),
        ([("a", "1"), ("b", "2"), ("a", None)], "it has 1 rows"),
    ],
)
def test_copy_without_the_newest_record_of_a_key_differs(copy: list[tuple[str, str | None]], why: str) -> None:
    assert why in digest(("a", "1"), ("b", "2")).differs(digest(*copy))


def test_copy_of_records_without_a_key_may_lack_old_ones_but_not_new_ones() -> None:
    original = [(None, str(number)) for number in range(300)]

    assert len(digest(*original).tail) == TAIL_RECORDS
    assert digest(*original).differs(digest(*original[250:])) == ""
    assert "last records" in digest(*original).differs(digest(*original[:-1]))
    assert "it is empty" in digest(*original).differs(digest())
