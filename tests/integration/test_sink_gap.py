"""A sink that was down longer than its topic's retention stops in GAP, is repaired from the source and continues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from cdc.client import Waiter
from cdc.config.load import load
from cdc.kafka.group_offsets import GroupAdmin
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.search_targets import documents
from tests.fixtures.sinks.sink_process import SinkProcess
from tests.integration.test_both_sinks import command, sections

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.opensearch import OpenSearchServer


def lose_everything(config_path: Path, topic: str) -> None:
    """As retention does, while somebody has allowed it."""
    config = load(config_path, {})
    with LogReader(config.kafka, client_id="test") as reader:
        ends = reader.end_offsets([topic])
    admin = AdminClient({"bootstrap.servers": config.kafka.bootstrap})
    set_policy(admin, topic, "compact,delete")
    until(lambda: deleted_up_to(admin, ends), "the leaders to know the policy")
    set_policy(admin, topic, "compact")


def deleted_up_to(admin: AdminClient, ends: dict[tuple[str, int], tuple[int, int]]) -> bool:
    """Delete what stands before the high watermarks; False while a leader has not heard that it may."""
    places = [TopicPartition(*place, high) for place, (_, high) in ends.items()]
    try:
        for future in admin.delete_records(places).values():
            future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.POLICY_VIOLATION:
            return False
        raise
    return True


def set_policy(admin: AdminClient, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


@pytest.mark.parametrize("sink", ["find", "cache"])
def test_sink_in_gap_is_repaired_against_the_source_and_goes_on(
    capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey, sink: str
) -> None:
    """Rows were changed, moved, deleted and inserted, and no topic has a record of it any more."""
    capture.sql(
        "create table t (id int primary key, v text)", "insert into t select n, 'first' from generate_series(1, 40) n"
    )
    more: Sections = {"snapshot": {"mode": "initial"}}
    daemon = capture.running({**sections(opensearch, valkey), **more})
    config, topic = capture.folder / "cdc-0.toml", capture.topic("t")
    groups, group = GroupAdmin(load(config, {}).kafka), sink_group(capture.name, sink)
    with SinkProcess(config, sink) as stopping, Waiter(config) as waiter:
        daemon.until_position(capture.sql("update t set v = 'second' where id <= 20"))
        waiter.wait(sink, str(capture.wal()), timeout_s=120)
        assert stopping.stop() == 0, "it leaves its group, which forgets one that is killed after 45 s only"
    daemon.until_position(
        capture.sql(
            "update t set v = 'third' where id between 11 and 15",
            "delete from t where id between 21 and 25",
            "update t set id = id + 100 where id between 31 and 33",
            "insert into t select n, 'new' from generate_series(201, 205) n",
        )
    )
    lose_everything(config, topic)
    until(lambda: not groups.members(group), "it has left its group", within_s=90)

    stopped = cdc("sink", "run", sink, "-c", config, timeout_s=120)
    assert (stopped.code, "GAP" in stopped.err, f"cdc verify {sink} --repair" in stopped.err) == (3, True, True), (
        stopped.err
    )
    daemon.until_position(capture.sql("update t set v = 'fourth' where id in (1, 11)"))
    code, found = command("verify", sink, config=config)
    assert (code, found["ok"]) == (1, False), found
    code, found = command("verify", sink, "--repair", config=config)
    assert (code, found["ok"]) == (0, True), found

    with SinkProcess(config, sink) as worker, Waiter(config) as waiter:
        daemon.until_position(capture.sql("insert into t values (300, 'last')"))
        waiter.wait(sink, str(capture.wal()), timeout_s=120)
        rows = {row["id"]: row for row in held(sink, capture, opensearch, valkey)}
        code, found = command("verify", sink, config=config)
        assert worker.alive
    assert rows == {key: {"id": key, "v": value} for key, value in capture.query("select id, v from t")}
    assert (code, found["ok"]) == (0, True), found


def held(sink: str, capture: CaptureSite, opensearch: OpenSearchServer, valkey: Valkey) -> list[dict[str, Any]]:
    """Every row that the store has."""
    if sink == "find":
        found = documents(opensearch.url, f"{capture.name}.find.public.t")
        return [dict(row) for row in found.values()]
    with client_of(valkey) as client:
        return [json.loads(client.get(name) or b"") for name in client.scan_iter(f"{capture.name}:cache:public.t:*")]
