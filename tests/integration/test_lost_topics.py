"""A deleted topic: the error names it, and the printed command makes the log equal to the tables again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.fixtures.capture.repair_scenes import assert_repaired, captured, recreate, repaired
from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.faults.patience_mutants import HASTY
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections

_TABLES: Final = (
    "create table t (id int primary key, n int, v text)",
    "create table k (v int)",
    "insert into t select n, n, 'first' from generate_series(1, 200) n",
    "insert into k select generate_series(1, 50)",
)
_BOTH: Final[Sections] = {**INITIAL, "source": {"keyless": ["public.k"]}}
_MEANWHILE: Final = ("delete from t where id % 3 = 0", "update t set v = 'later' where id % 5 = 1")


@pytest.mark.parametrize("lost", ["public.t", "public.k", "__cuts", "__schema"])
def test_deleted_topic_is_named_and_its_one_command_repairs_the_log(capture: CaptureSite, lost: str) -> None:
    captured(capture, *_TABLES, sections=_BOTH)
    topic = f"{capture.name}.{lost}"
    delete(capture, topic)
    capture.sql(*_MEANWHILE)

    stop = capture.daemon(_BOTH, mutant=HASTY).stopped_with()
    assert f"topic {topic!r} was deleted" in stop["message"]
    done = repaired(capture, stop["command"], sections=_BOTH)
    daemon = capture.running(_BOTH)
    complete(capture, daemon, "public.t")
    capture.sql("insert into t values (1000, 1, 'new')", "insert into k values (1000)")
    log = capture.settled(daemon)

    assert done["lost_topics"] == [topic]
    assert_repaired(capture, log)
    rows = [record.after["v"] for record in log.events_of(capture.topic("k")) if record.after]
    assert sorted(rows) == [*range(1, 51), 1000], "the copy of a table without a key is whole, and there once"
    assert daemon.stop() == 0
    assert cdc("audit", "-c", capture.write_config(_BOTH)).code == 0


def test_topic_made_again_by_another_program_is_repaired_by_the_command_too(capture: CaptureSite) -> None:
    captured(capture, *_TABLES, sections=_BOTH)
    topic = capture.topic("t")
    admin = delete(capture, topic)
    config = {"cleanup.policy": "compact", "max.message.bytes": str(32 << 20)}
    admin.create_topics([NewTopic(topic, 3, 1, config=config)])[topic].result()
    until(lambda: topic in admin.list_topics(timeout=60).topics, f"{topic} is there again")

    stop = capture.daemon(_BOTH, mutant=HASTY).stopped_with()
    assert f"topic {topic!r} was deleted and created again" in stop["message"]
    repaired(capture, stop["command"], sections=_BOTH)
    daemon = capture.running(_BOTH)

    assert_repaired(capture, complete(capture, daemon, "public.t"))


def test_repair_without_a_progress_topic_names_it_and_leads_elsewhere(capture: CaptureSite) -> None:
    captured(capture, *_TABLES, sections=_BOTH)
    topic = f"{capture.name}.__progress"
    delete(capture, topic)

    stop = capture.daemon(_BOTH, mutant=HASTY).stopped_with()
    ran = recreate(capture, "--resnapshot", "--yes", sections=_BOTH)

    assert topic in stop["message"]
    assert stop["command"].startswith("name = ")
    assert ran.code == 3
    assert f"topic {topic!r} holds no position" in ran.err
    assert "cdc run" not in ran.err


def delete(capture: CaptureSite, topic: str) -> AdminClient:
    """Delete a topic, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in admin.list_topics(timeout=60).topics, f"{topic} is gone")
    return admin
