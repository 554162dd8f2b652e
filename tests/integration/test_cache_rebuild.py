"""`cdc sink rebuild` of a cache deletes its rows and positions; the next run fills it again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from cdc.clock import SystemClock
from cdc.config.load import load
from cdc.errors import SinkStale
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from cdc.model.topic_names import sink_group
from sinks.cache.row_names import mark
from sinks.compose import start_applied
from sinks.runner.runner_observer import Unobserved
from sinks.state.offset_metadata import metadata
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_rig import HEAD, SinkRig

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.config.settings import Config
    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.running_servers import KafkaServer

CONFIG = (
    HEAD
    + """[sinks.cache]
kind = "cache"
url = "{url}"
"""
)


@contextmanager
def worker(config: Config) -> Iterator[None]:
    with closing(start_applied(config, "cache", SystemClock(), observer=Unobserved())) as runner, beside(runner.run):
        yield


def test_stale_cache_is_emptied_and_filled_again(
    kafka: KafkaServer, topic_prefix: str, valkey: Valkey, tmp_path: Path
) -> None:
    rig = SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t", partitions=2)
    rig.write_schema(topic_prefix)
    path, group = tmp_path / "cdc.toml", sink_group(topic_prefix, "cache")
    path.write_text(CONFIG.format(name=topic_prefix, bootstrap=kafka.bootstrap, url=valkey.url))
    config, admin, head = load(path, {}), GroupAdmin(rig.kafka), f"{topic_prefix}:cache:public.t:"

    def level() -> bool:
        committed = {place: one.offset for place, one in admin.committed(group, rig.ends()).items()}
        return all(committed.get(place, 0) >= end for place, end in rig.ends().items())

    rig.fill(50)
    with worker(config):
        until(level, "the sink is level", within_s=60)
        busy = cdc("sink", "rebuild", "cache", "-c", path)
    admin.alter(group, {place: CommittedOffset(0, metadata("of-another-topic", 0.0)) for place in rig.ends()})
    with client_of(valkey) as client:
        client.set(f"{head}planted", "{}")
        client.set(mark(f"{head}planted"), "9" * 19 + "rabcdef" + '{"id":"planted"}')
        client.set("somebody else's", "stays")
        with pytest.raises(SinkStale) as stale, closing(start_applied(
            config, "cache", SystemClock(), observer=Unobserved()
        )) as runner:  # fmt: skip
            runner.run(threading.Event())
        assert stale.value.command == "cdc sink rebuild cache"

        done = cdc("sink", "rebuild", "cache", "--json", "-c", path)
        assert (done.code, json.loads(done.out)["emptied"]) == (0, ["public.t"]), done.err
        assert client.keys("*") == [b"somebody else's"]
        with worker(config):
            until(level, "the sink is level again", within_s=60)
        rows = {name: json.loads(client.get(name) or b"") for name in client.scan_iter(f"{head}*")}
    assert (busy.code, "1 in its group" in busy.err) == (3, True), busy.err
    assert rows == {f"{head}{row['id']}".encode(): row for row in rig.rows.values()}
