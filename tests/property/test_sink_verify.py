"""A sink and its topic compared under writes: no correct key is reported, all planted damage is found and repaired."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cdc.verify import key_verdict as judging
from cdc.verify import sink_check
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import KeyStates, Sample
from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.sink_check import check_topic
from sinks.contract import Change, StoredKey
from tests.fixtures.sinks.sink_logs import TABLE, LogBook, live, logs
from tests.fixtures.sinks.verify_world import World

Line = tuple[int, int, bool]
SCRIPTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=40)


def world_of(book: LogBook, script: Sequence[Line], *, begun: int = 0) -> World:
    world = World(book.records, iter(script))
    for line in script[:begun]:
        world.move(*line)
    return world


@settings(max_examples=80)
@given(book=logs(partial=True), script=SCRIPTS, begun=st.integers(0, 10), repair=st.booleans())
def test_correct_sink_is_never_reported_or_changed_under_writes(
    book: LogBook, script: Sequence[Line], begun: int, repair: bool
) -> None:
    world = world_of(book, script, begun=begun)

    found = check_topic(world.sides(repair=repair), TABLE)

    assert found.ok, found
    assert world.target.touched == set()


KINDS = ["edited", "deleted", "stale", "extra", "ahead", "mark"]


def plant(world: World, kind: str, number: int, *, but: Collection[bytes] = ()) -> bytes | None:
    """Damage one key as `kind` says, none of `but`; the key, or None when there is none to damage."""
    target = world.target
    rows = sorted(key for key, row in live(target.stored_keys(TABLE.topic)).items() if row and key and key not in but)
    if kind == "extra":
        key = b'{"id":"planted %d"}' % number
        target.plant(Change(TABLE.topic, 0, number, key, b'{"id":"planted"}', (), "", 1, 1, 1), key)
        return key
    if not rows:
        return None
    key = rows[number % len(rows)]
    change = target.stored(key)
    assert change is not None
    match kind:
        case "edited":
            target.plant(change._replace(row=b'{"id":0,"v":"edited"}', kept=()), key)
        case "deleted":
            target.plant(None, key)
        case "stale":
            target.plant(change._replace(offset=change.offset - 1, row=b'{"id":0,"v":"old"}', kept=()), key)
        case "ahead":
            target.plant(change._replace(offset=world.offset(len(world.records)) + 7), key)
        case "mark":
            target.plant(change._replace(offset=world.offset(len(world.records)) + 7, row=None), key)
    return key


@settings(max_examples=80)
@given(
    book=logs(partial=True),
    script=SCRIPTS,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
)
def test_every_planted_difference_is_found_and_repaired_and_nothing_else_is_touched(
    book: LogBook, script: Sequence[Line], kinds: Sequence[str]
) -> None:
    world = world_of(book, script)
    world.finish()
    whole = live(world.target.stored_keys(TABLE.topic))
    planted: set[bytes] = set()
    for number, kind in enumerate(kinds):
        key = plant(world, kind, number, but=planted)
        planted |= {key} if key is not None else set()

    found = check_topic(world.sides(), TABLE)
    assert found.differing == len(planted), found
    assert world.target.touched == set()
    assert found.ok == (not planted)

    found = check_topic(world.sides(repair=True), TABLE)
    assert (found.repaired, found.unrepaired, found.undecided) == (len(planted), 0, 0)
    assert found.ok
    assert world.target.touched == planted
    assert live(world.target.stored_keys(TABLE.topic)) == whole
    assert check_topic(world.sides(), TABLE).differing == 0


@settings(max_examples=60)
@given(book=logs(partial=False), script=SCRIPTS, begun=st.integers(1, 10), kind=st.sampled_from(KINDS))
def test_repair_under_writes_ends_in_what_the_topic_says(
    book: LogBook, script: Sequence[Line], begun: int, kind: str
) -> None:
    world = world_of(book, script, begun=begun)
    planted = plant(world, kind, 1) if kind != "ahead" else None

    found = check_topic(world.sides(repair=True), TABLE)
    world.finish()
    again = check_topic(world.sides(repair=True), TABLE)

    assert found.undecided == again.undecided == 0
    assert live(world.target.stored_keys(TABLE.topic)) == book.rows
    assert world.target.touched <= ({planted} if planted else set())


def test_kinds_are_distinguished() -> None:
    book = LogBook()
    for key in range(8):
        book.put(key, {"id": key, "v": 1})
        book.put(key, {"id": key, "v": 2})
    expected = {
        "edited": DifferenceKind.DIFFERENT,
        "deleted": DifferenceKind.MISSING,
        "stale": DifferenceKind.STALE,
        "extra": DifferenceKind.EXTRA,
        "ahead": DifferenceKind.DIFFERENT,
        "mark": DifferenceKind.DIFFERENT,
    }
    for kind, wanted in expected.items():
        world = world_of(book, [])
        world.finish()
        planted = plant(world, kind, 1)
        found = check_topic(world.sides(), TABLE)
        assert {one: count for one, count in found.counts.items() if count} == {wanted: 1}
        assert found.examples == {str(wanted): [(planted or b"").decode()]}


def test_a_key_that_never_rests_is_undecided_and_not_clean() -> None:
    book = LogBook()
    book.put(1, {"id": 1, "v": 0})
    world = World(book.records, iter(()))
    world.finish()
    first = world.target.stored(b'{"id":1}')
    assert first is not None
    turn = iter(range(1, 10_000))

    def unrest(keys: Sequence[bytes]) -> list[StoredKey | None]:
        """It is wrong each time, in another way."""
        world.target.plant(first._replace(offset=0, row=b'{"id":1,"v":%d}' % next(turn)), b'{"id":1}')
        return [StoredKey(key, "", 0, {"id": 1, "v": next(turn)}) for key in keys]

    sides = world.sides()
    world.target.read_keys = lambda _, keys: unrest(keys)  # type: ignore[method-assign, assignment]
    world.target.plant(None, b'{"id":1}')

    found = check_topic(sides, TABLE)

    assert (found.undecided, found.differing, found.ok) == (1, 0, False)
    assert found.examples == {"undecided": ['{"id":1}']}


def test_blocked_keys_are_reported_and_not_changed() -> None:
    book = LogBook()
    for key in (1, 2):
        book.put(key, {"id": key, "v": 1})
    world = World(book.records, iter(()))
    world.finish()
    plant(world, "deleted", 0)

    found = check_topic(world.sides(repair=True, blocked=frozenset([b'{"id":1}'])), TABLE)

    assert (found.blocked, found.differing, found.ok) == (1, 0, False)
    assert world.target.touched == set()


def test_a_sample_is_the_same_keys_each_time_and_about_its_share() -> None:
    keys = [b'{"id":%d}' % number for number in range(4000)]
    chosen = [key for key in keys if Sample(0.25, 7).has(key)]

    assert [key for key in keys if Sample(0.25, 7).has(key)] == chosen
    assert 800 < len(chosen) < 1200
    assert chosen != [key for key in keys if Sample(0.25, 8).has(key)]
    assert all(Sample().has(key) for key in keys)


def test_a_sample_of_a_sink_that_is_right_is_right() -> None:
    book = LogBook()
    for key in range(400):
        book.put(key, {"id": key})
    world = World(book.records, iter(()))
    world.finish()

    found = check_topic(world.sides(sample=Sample(0.5, 1)), TABLE)

    assert found.ok
    assert 100 < found.compared < 300


Mutate = Callable[[pytest.MonkeyPatch], None]


def _content_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "_equal", lambda *_: True)


def _without(kind: DifferenceKind) -> Mutate:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        real = judging.judge

        def judge(
            accepted: Sequence[Change | None], held: StoredKey | None, end: int, content: Any
        ) -> DifferenceKind | None:
            found = real(accepted, held, end, content)
            return None if found is kind else found

        patch.setattr(sink_check, "judge", judge)

    mutate.__name__ = f"no_{kind}"
    return mutate


def _unseen_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyStates, "unseen", lambda _, **__: iter(()))


def _later_unread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink_check._Check, "_later", lambda *_: {})


def _believed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink_check, "_same", lambda *_: True)


def _one_look(patch: pytest.MonkeyPatch) -> None:
    """The first look through the store is believed."""

    def decide(self: sink_check._Check, suspects: list[bytes]) -> tuple[Mapping[bytes, Any], list[bytes]]:
        known = self._states.get(suspects)
        held = dict(zip(suspects, self._sides.target.read_keys(self._topic.topic, suspects), strict=True))
        newest = {key: one.change for key, one in known.items()}
        return {
            key: sink_check._Suspect(DifferenceKind.DIFFERENT, (), held[key], newest.get(key)) for key in suspects
        }, []

    patch.setattr(sink_check._Check, "_decide", decide)


def _undecided_clean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TableFindings, "ok", property(lambda self: not self.differing))


def quickly(test: Any, **strategies: st.SearchStrategy[Any]) -> Callable[[], None]:
    """The same property, without making its counterexample small."""
    wanted = settings(max_examples=400, phases=[Phase.generate])
    found: Callable[[], None] = wanted(given(**strategies)(test.hypothesis.inner_test))
    return found


RIGHT = quickly(
    test_correct_sink_is_never_reported_or_changed_under_writes,
    book=logs(partial=True),
    script=SCRIPTS,
    begun=st.integers(0, 10),
    repair=st.just(value=False),
)
PLANTED = quickly(
    test_every_planted_difference_is_found_and_repaired_and_nothing_else_is_touched,
    book=logs(partial=False),
    script=SCRIPTS,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
)


@pytest.mark.parametrize(
    ("mutate", "test"),
    [
        (_content_unchecked, PLANTED),
        (_without(DifferenceKind.MISSING), PLANTED),
        (_without(DifferenceKind.EXTRA), PLANTED),
        (_without(DifferenceKind.STALE), PLANTED),
        (_without(DifferenceKind.DIFFERENT), PLANTED),
        (_unseen_forgotten, PLANTED),
        (_later_unread, RIGHT),
        (_believed_at_once, test_a_key_that_never_rests_is_undecided_and_not_clean),
        (_one_look, RIGHT),
        (_undecided_clean, test_a_key_that_never_rests_is_undecided_and_not_clean),
    ],
    ids=lambda one: getattr(one, "__name__", "").strip("_")[:30],
)
def test_a_comparison_with_one_check_off_is_found_wrong(
    monkeypatch: pytest.MonkeyPatch, mutate: Mutate, test: Callable[[], None]
) -> None:
    mutate(monkeypatch)

    with pytest.raises((AssertionError, ExceptionGroup, KeyError)):
        test()
