"""Reading the recorded state: the newest record of each kind, or an error that names what is missing."""

from __future__ import annotations

import pytest

from cdc.errors import ProgressDamaged
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.model.progress_record import Cut, Progress
from cdc.progress.record_format import encode, identity_key, progress_key, sentinel_key
from cdc.progress.restore import restore
from tests.fixtures.capture.memory_log import MemoryLog
from tests.fixtures.servers.identities import identity

_IDENTITY = identity()
_PROGRESS, _CUTS = ("shop.__progress", 0), ("shop.__cuts", 0)


def _rolling(number: int) -> str:
    return f"{number:016x}"


class Log:
    """A log written by hand; each method commits one transaction."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self._transaction = 0

    def put(self, key: bytes, value: bytes | None, *, committed: bool = True) -> None:
        self._append(_PROGRESS, (key, value, None), committed=committed)

    def progress(self, end_lsn: int, *, committed: bool = True) -> None:
        self.put(progress_key("shop"), encode(Progress(epoch=1, end_lsn=end_lsn)), committed=committed)

    def identity(self) -> None:
        self.put(identity_key("shop"), encode(_IDENTITY))

    def cut(
        self,
        changed: dict[str, tuple[int, int, str]],
        *,
        full: bool = False,
        since_lsn: int = 0,
        committed: bool = True,
        end_lsn: int = 1,
    ) -> None:
        record = encode(Cut(epoch=1, end_lsn=end_lsn, full=full, since_lsn=since_lsn, changed=changed))
        self._append(_CUTS, (None, record, None), committed=committed)

    def _append(
        self, partition: tuple[str, int], record: tuple[bytes | None, bytes | None, None], *, committed: bool
    ) -> None:
        self._transaction += 1
        if committed:
            self.log.committed.add(self._transaction)
        self.log.append(partition, record, self._transaction)
        self.log.append(partition, None, self._transaction)


def _started() -> Log:
    log = Log()
    log.identity()
    log.progress(110)
    return log


def test_empty_log_is_a_first_start() -> None:
    restored = restore(MemoryLog(), "shop")

    assert (restored.progress, restored.identity, restored.position) == (None, None, None)
    assert (restored.accounts, restored.sentinel) == ({}, None)


def test_newest_committed_progress_counts() -> None:
    log = _started()
    log.progress(120)
    log.progress(999, committed=False)

    assert restore(log.log, "shop").position == StreamPosition(Lsn(120))


def test_place_inside_a_spread_transaction_is_restored() -> None:
    log = _started()
    log.put(progress_key("shop"), encode(Progress(epoch=1, end_lsn=110, commit_lsn=120, next_ordinal=7)))

    assert restore(log.log, "shop").position == StreamPosition(Lsn(110), Lsn(120), 7)


def test_position_without_an_identity_is_refused() -> None:
    log = Log()
    log.progress(110)

    with pytest.raises(ProgressDamaged, match="position without an identity"):
        restore(log.log, "shop")


def test_identity_without_a_position_is_refused() -> None:
    log = Log()
    log.identity()

    with pytest.raises(ProgressDamaged):
        restore(log.log, "shop")


def test_deleted_position_is_refused_and_no_first_start() -> None:
    log = _started()
    log.put(progress_key("shop"), None)

    with pytest.raises(ProgressDamaged):
        restore(log.log, "shop")


def test_records_of_other_pipelines_and_foreign_keys_are_passed_over() -> None:
    log = _started()
    log.put(b"other", b"garbage")
    log.put(b"", b"garbage")

    assert restore(log.log, "shop").position == StreamPosition(Lsn(110))


def test_garbage_in_place_of_the_position_is_refused() -> None:
    log = _started()
    log.put(progress_key("shop"), b"garbage")

    with pytest.raises(ProgressDamaged):
        restore(log.log, "shop")


def test_sentinel_is_the_newest_nonce() -> None:
    log = _started()
    log.put(sentinel_key("shop"), b"one")
    log.put(sentinel_key("shop"), b"two")

    assert restore(log.log, "shop").sentinel == b"two"


def test_accounts_are_the_newest_full_map_with_later_changes_over_it() -> None:
    log = _started()
    log.cut({"old-0": (1, 1, _rolling(1))}, full=True)
    log.cut({"a-0": (2, 2, _rolling(2)), "b-0": (3, 3, _rolling(3))}, full=True)
    log.cut({"a-0": (4, 4, _rolling(4))})
    log.cut({"c-0": (5, 5, _rolling(5))})
    log.cut({"a-0": (9, 9, _rolling(9))}, committed=False)

    assert restore(log.log, "shop").accounts == {
        "a-0": (4, 4, _rolling(4)),
        "b-0": (3, 3, _rolling(3)),
        "c-0": (5, 5, _rolling(5)),
    }


def test_full_map_far_back_is_found() -> None:
    log = _started()
    log.cut({"a-0": (2, 2, _rolling(2))}, full=True)
    for _ in range(3000):
        log.cut({})

    assert restore(log.log, "shop").accounts == {"a-0": (2, 2, _rolling(2))}


def test_index_without_a_full_map_restarts_its_counts() -> None:
    log = _started()
    log.cut({"a-0": (2, 2, _rolling(2))})

    restored = restore(log.log, "shop")

    assert restored.accounts == {}
    assert restored.since_lsn == 110


def test_beginning_of_the_counts_is_remembered_over_restarts() -> None:
    log = _started()
    log.cut({"a-0": (2, 2, _rolling(2))}, full=True, since_lsn=77)
    log.cut({"a-0": (4, 4, _rolling(4))})

    assert restore(log.log, "shop").since_lsn == 77


def test_restored_state_is_settled_when_the_newest_cut_says_what_progress_says() -> None:
    log = Log()
    log.identity()
    log.cut({}, full=True, end_lsn=10)
    log.progress(20)

    assert not restore(log.log, "shop").settled  # the cut of 20 is not to be seen yet

    log.cut({}, end_lsn=20)

    assert restore(log.log, "shop").settled


def test_progress_without_any_cut_is_not_settled() -> None:
    log = Log()
    log.identity()
    log.progress(20)

    assert not restore(log.log, "shop").settled
