"""Dead letters on a real broker: kept across owners and kills, retried by command, never skipped silently."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from cdc.cli.main import run
from cdc.config.load import load
from cdc.config.settings import Config
from cdc.errors import RowRefused, SinkUnfit
from cdc.model.topic_names import dead_letters_topic
from sinks.deadletters.dead_letter_record import BEHIND
from sinks.operate.dead_letter_view import DeadLetterView
from tests.contract.kafka_clients import WAIT_S, Broker
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.parking_site import SINK, opened, park_all, refused_log, write_config
from tests.fixtures.sinks.parking_worker import PLACE, ParkingWorker
from tests.fixtures.sinks.sink_logs import LogBook, live
from tests.unit.sinks.test_dead_letters import PickyTarget

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(kafka: Broker, topic_prefix: str, tmp_path: Path) -> Path:
    return write_config(tmp_path, topic_prefix, kafka.bootstrap)


@pytest.fixture
def config(path: Path) -> Config:
    return load(path, {})


def log() -> LogBook:
    book = LogBook()
    for key, v in ((1, "a"), (2, "b"), (1, "bad"), (2, "c"), (1, "d"), (3, "worse"), (2, "f")):
        book.put(key, {"id": key, "v": v})
    return book


@contextmanager
def working(worker: ParkingWorker) -> Iterator[None]:
    """Obeys what is wished, as a runner does between its batches."""

    def loop(over: threading.Event) -> None:
        while not over.wait(0.05):
            worker.retry()

    with beside(loop):
        yield


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """A command's exit code and its JSON."""
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_what_one_owner_parked_the_next_one_retries_by_command(
    config: Config, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, dlq = PickyTarget(["bad", "worse"]), ("-c", str(path), "dlq")
    first = ParkingWorker(letters := opened(config), target)
    first.read(log().records[:4])
    letters.close()
    second = ParkingWorker(letters := opened(config), target, first.committed)
    assert letters.blocks(PLACE, b'{"id":1}')
    second.read(log().records)

    _, counts = told(capsys, *dlq, "list")
    assert [(one["table"], one["keys"], one["records"]) for one in counts["blocked"]] == [("public.t", 2, 3)]
    _, shown = told(capsys, *dlq, "show", SINK, "--key", "1")
    assert [(one["first_offset"], one["records"], one["reason"]) for one in shown["keys"]] == [
        (2, 2, "field [v] is no date")
    ]
    assert run([*dlq, "export", SINK]) == 0
    exported = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["offset"], one["error"]) for one in exported] == [
        (2, "mapper_parsing_exception"),
        (4, BEHIND),
        (5, "mapper_parsing_exception"),
    ]
    assert exported[0]["value"].encode() == log().records[2][5]

    with working(second):
        code, done = told(capsys, *dlq, "retry", SINK)
        assert (code, done["done"], [one["key"] for one in done["refused"]]) == (1, 1, ['{"id":3}'])
        code, done = told(capsys, *dlq, "skip", SINK, "--yes")
        assert (code, done["done"]) == (0, 1)
    assert told(capsys, *dlq, "list") == (0, {"blocked": []})
    letters.close()
    assert {key: row["v"] for key, row in live(target.stored_keys(PLACE[0])).items() if row} == {
        b'{"id":1}': "d",
        b'{"id":2}': "f",
    }
    assert [offset for key, offset in target.applied if key == b'{"id":1}'] == [0, 4]


def test_a_wish_waits_for_a_sink_that_is_down(config: Config, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = PickyTarget(["bad"])
    worker = ParkingWorker(letters := opened(config), target)
    worker.read(log().records)
    letters.close()

    code, asked = told(capsys, "-c", str(path), "dlq", "retry", SINK, "--no-wait")
    assert (code, asked["waiting"]) == (0, 1)
    target.bad.clear()
    worker = ParkingWorker(letters := opened(config), target, worker.committed)
    until(worker.retry, "the retry")
    letters.close()

    assert told(capsys, "-c", str(path), "dlq", "list") == (0, {"blocked": []})


def test_a_worker_that_is_killed_while_it_parks_leaves_nothing_out(config: Config, path: Path) -> None:
    count = 300
    for parked in (40, 150):
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.fixtures.sinks.parking_site", str(path), str(count)], cwd=ROOT
        )
        with DeadLetterView(config, SINK) as view:
            until(lambda view=view, parked=parked: len(view.blocked()) >= parked, "some to be parked")  # type: ignore[misc]
        worker.kill()
        worker.wait()
    letters = opened(config)
    park_all(letters, refused_log(count))
    letters.close()

    with DeadLetterView(config, SINK) as view:
        rows = view.blocked()
        records = sorted(letter.record[2] for letter in view.letters(rows))
    assert len(rows) == count
    assert {row.block.record_count for row in rows} == {2}
    assert records == list(range(2 * count))


def alter(config: Config, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": config.kafka.bootstrap})
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, dead_letters_topic(config.name, SINK), incremental_configs=entries
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def test_unwritable_dead_letter_topic_stops_the_partition_and_nothing_is_committed_past_it(
    config: Config,
) -> None:
    worker = ParkingWorker(letters := opened(config), PickyTarget(["bad"]))
    alter(config, max_message_bytes="100")

    with pytest.raises(RowRefused):
        worker.read(log().records)
    assert worker.committed == 2
    assert not letters.blocks(PLACE, b'{"id":1}')

    alter(config, max_message_bytes="5000000")
    worker.read(log().records)
    assert worker.committed == 7
    letters.close()
    with DeadLetterView(config, SINK) as view:
        assert [letter.record[2] for letter in view.letters(view.blocked())] == [2, 4]


def test_a_state_that_cannot_be_read_is_a_stop_and_not_an_empty_one(config: Config) -> None:
    letters = opened(config)
    letters._state.put([(b'{"blocked":["t",0,"k"]}', b"torn")])

    with pytest.raises(SinkUnfit, match="not readable"):
        letters.assigned([("t", 0)])
    letters.close()
