"""The store in memory fulfils the contract of all stores, and the contract suite detects violations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.contract import Change, Outcome, StoredKey, Topic, Verdict, Verifiable
from tests.fixtures.sinks import target_contract
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_logs import TABLE

CHECKS: Sequence[Callable[[Verifiable, Topic], None]] = (
    target_contract.older_record_never_wins,
    target_contract.delete_of_what_never_was_is_done,
    target_contract.what_was_looked_at_is_removed_and_nothing_newer,
)


@given(st.data())
def test_store_converges_whatever_order_whole_rows_come_in(data: st.DataObject) -> None:
    target_contract.converges(data, MemoryTarget(), TABLE, partial=False)


@given(st.data())
def test_store_keeps_the_values_that_updates_lack(data: st.DataObject) -> None:
    target_contract.converges(data, MemoryTarget(), TABLE, partial=True)


@pytest.mark.parametrize("check", CHECKS)
def test_store_is_guarded(check: Callable[[Verifiable, Topic], None]) -> None:
    check(MemoryTarget(), TABLE)


class Unguarded(MemoryTarget):
    """A mutant: the last to come wins."""

    def _apply(self, change: Change) -> Outcome:
        self._keys.pop((change.topic, change.key), None)
        return super()._apply(change)


class Forgetful(MemoryTarget):
    """A mutant: a delete leaves no version."""

    def _apply(self, change: Change) -> Outcome:
        outcome = super()._apply(change)
        if change.row is None and outcome.verdict is Verdict.DONE:
            del self._keys[(change.topic, change.key)]
        return outcome


class Replacing(MemoryTarget):
    """A mutant: what an update lacks is taken from the update."""

    def _apply(self, change: Change) -> Outcome:
        return super()._apply(change._replace(kept=()))


@pytest.mark.parametrize(("mutant", "partial"), [(Unguarded, False), (Forgetful, False), (Replacing, True)])
def test_store_that_does_not_converge_is_found(mutant: type[MemoryTarget], partial: bool) -> None:
    @given(st.data())
    def fails(data: st.DataObject) -> None:
        target_contract.converges(data, mutant(), TABLE, partial=partial)

    with pytest.raises(AssertionError, match=target_contract.NOT_CONVERGED):
        fails()


def test_wrong_keys_of_the_topic_are_repaired() -> None:
    target = MemoryTarget()

    def damage(one: StoredKey) -> None:
        at = (TABLE.topic, one.key or b"")
        target._keys[at] = target._keys[at]._replace(row=b'{"id":0}', offset=one.version * 2)

    target_contract.what_the_topic_proves_wrong_is_mended(target, TABLE, damage)
