"""When a partition counts as nobody's, and who joins anew for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdc.errors import BrokerUnreachable
from cdc.kafka.cluster_facts import AssignedMember, GroupAssignment, TopicFacts
from sinks.runner.orphaned_partitions import AGAIN_S, LOOK_EVERY_S, OrphanDetector, chosen
from tests.fixtures.servers.manual_clock import ManualClock


def owner(member: str, *partitions: int, instance: str = "i") -> AssignedMember:
    return AssignedMember(member, instance, frozenset(("t", one) for one in partitions))


def dealt(*owners: AssignedMember, stable: bool = True) -> GroupAssignment:
    return GroupAssignment(stable, frozenset(owners))


HALF = dealt(owner("a", 1), owner("b"))
WHOLE = dealt(owner("a", 1), owner("b", 0))


class Group:
    """A group of which the coordinator says one thing after the other, about a topic of two partitions."""

    def __init__(self, *answers: GroupAssignment | None) -> None:
        self.answers = list(answers)
        self.described = 0
        self.away = 0
        self.clock = ManualClock()

    def look(self) -> GroupAssignment | None:
        return self.answers.pop(0)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts | None]:
        self.described += 1
        if self.described <= self.away:
            raise BrokerUnreachable("away")
        known = TopicFacts(topic="t", topic_id="x", partition_count=2, replication_factor=1, configs={})
        return {name: known if name == "t" else None for name in topics}

    def seen_by(self, member: str, topics: Sequence[str] = ("t",)) -> list[list[tuple[str, int]]]:
        """What this worker is told, one answer after the other."""
        unowned = OrphanDetector(self, self.describe, self.clock)
        seen = []
        while self.answers:
            seen.append(unowned.look(member, topics))
            self.clock.now_s += LOOK_EVERY_S
        return seen


def test_partition_without_an_owner_in_two_answers_is_somebodys_to_fetch() -> None:
    assert Group(HALF, HALF).seen_by("b") == [[], [("t", 0)]]


def test_only_one_worker_rejoins() -> None:
    assert Group(HALF, HALF).seen_by("a") == [[], []]


def test_worker_with_the_fewest_partitions_is_chosen_and_has_an_instance_id() -> None:
    assert chosen(dealt(owner("a", 0, 1), owner("b", 2), owner("c", 3), owner("d", instance=""))) == "b"
    assert chosen(dealt(owner("d", instance=""))) == ""


def test_group_that_changes_or_is_being_dealt_is_left_alone() -> None:
    other = dealt(owner("a", 0), owner("b"))
    unstable = dealt(owner("a", 1), owner("b"), stable=False)
    assert Group(HALF, other, HALF, unstable, HALF, WHOLE, HALF).seen_by("b") == [[]] * 7


def test_no_answer_is_neither_one_nor_the_other() -> None:
    assert Group(HALF, None, HALF).seen_by("b") == [[], [], [("t", 0)]]


def test_no_second_worker_is_chosen_for_a_while() -> None:
    group = Group(HALF, HALF, HALF, HALF)
    unowned = OrphanDetector(group, group.describe, group.clock)
    for wanted in ([], [("t", 0)]):
        assert unowned.look("b", ["t"]) == wanted
        group.clock.now_s += LOOK_EVERY_S
    assert (unowned.look("b", ["t"]), len(group.answers)) == ([], 2)
    group.clock.now_s += AGAIN_S
    assert unowned.look("b", ["t"]) == []
    group.clock.now_s += LOOK_EVERY_S
    assert unowned.look("b", ["t"]) == [("t", 0)]


def test_coordinator_is_asked_at_most_every_few_seconds_and_topics_only_when_something_changed() -> None:
    group = Group(WHOLE, WHOLE, WHOLE)
    unowned = OrphanDetector(group, group.describe, group.clock)
    assert unowned.look("a", ["t"]) == unowned.look("a", ["t"]) == []
    assert len(group.answers) == 2
    assert group.seen_by("a") == [[], []]
    assert group.described == 2, "once for each of the two that looked"


def test_broker_that_does_not_describe_its_topics_is_asked_again() -> None:
    group = Group(HALF, HALF, HALF)
    group.away = 1
    assert group.seen_by("b") == [[], [], [("t", 0)]]


def test_topic_that_is_gone_has_no_partitions() -> None:
    assert Group(WHOLE, WHOLE).seen_by("b", ["gone", "t"]) == [[], []]
