"""A start that stalls while another daemon takes over and publishes: the error it ends with."""

from __future__ import annotations

import random

import pytest

from cdc.errors import SourceDiverged
from cdc.lsn import Lsn
from cdc.model.progress_record import Progress
from cdc.progress.restore import Restored
from cdc.replication.slot import SlotFacts
from cdc.startup.slot_setup import SourceServer
from cdc.startup.source_identity import check_identity
from tests.fixtures.servers.identities import identity
from tests.simulation.exhaustive import Short, points
from tests.simulation.history import quiet
from tests.simulation.source import Postgres, ServerDoor
from tests.simulation.world import World

# Each act runs at every passing of these, in the first start and in a later one.
_PLACES = (
    "Opens.open/before",  # the log is then ahead of what the stream was told to begin with
    "Opens.open/after",  # and ahead of the WAL that was there when the stream was opened
    "Producer.init/before",
    "Producer.init/after",  # somebody fences who has fenced
    "TopicReader.last_records/before",
    "TopicReader.end_offsets/before",  # records of the other one are no orphans
)


@pytest.mark.parametrize("label", _PLACES)
@pytest.mark.parametrize("other", ["lives on", "dies"])
def test_overtaken_start_stops_as_fenced_or_continues_without_an_operator(label: str, other: str) -> None:
    with quiet():
        for number in _passings(label):
            history = Short()
            history.world.script[number] = history.take_over if other == "lives on" else history.overtake
            result = history.run()

            assert str(result.violation or "") == "", f"{label}, point {number}"


def test_sentinel_overwritten_by_another_start_is_fencing_and_no_damage() -> None:
    fenced = _passings("Producer.init/after")[-1]
    planted = next(number for number in _passings("Producer.commit/after") if number > fenced)
    history = Short()
    history.world.script[planted] = history.take_over

    with quiet():
        result = history.run()

    assert result.violation is None
    assert result.faults["zombie stopped as FENCED"] == 1
    assert "ends with ProgressDamaged" not in result.faults


@pytest.mark.parametrize("wal_end", [1000, 1029])
def test_copy_that_has_not_the_transaction_of_which_the_log_has_a_part_is_refused(wal_end: int) -> None:
    progress = Progress(epoch=1, end_lsn=1000, commit_lsn=1029, next_ordinal=3)
    restored = Restored(progress, identity(), {}, Lsn(0), None)
    position = restored.position
    assert position is not None
    slot = SlotFacts(name="s", confirmed_flush_lsn=Lsn(1000))

    with pytest.raises(SourceDiverged):
        check_identity(_server(wal_end), restored, identity(), slot, position)
    check_identity(_server(1030), restored, identity(), slot, position)


def _server(wal_end: int) -> SourceServer:
    postgres = Postgres(World(random.Random(0)))
    postgres.wal_end = wal_end
    return ServerDoor(postgres)


def _passings(label: str) -> list[int]:
    with quiet():
        return [number for number, passed in enumerate(points(), 1) if passed == label]
