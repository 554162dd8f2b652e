"""Actions of operators on real servers: over HTTP and by the command line, and their records in the topic."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import socket
from typing import TYPE_CHECKING, Any

from cdc.config.load import load
from cdc.kafka.admin import TopicAdmin
from tests.fixtures.capture.topic_log import read_raw
from tests.fixtures.servers.commands import cdc
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite, Sections

_TOKEN = "s3cret-token"


def _post(port: int, action: str, **arguments: object) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/actions", json.dumps({"action": action, **arguments}), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_every_action_over_http_and_by_command_is_recorded_with_who_from_where_and_result(
    capture: CaptureSite, valkey: Valkey
) -> None:
    token_file = capture.folder / "token"
    token_file.write_text(f"{_TOKEN}\n")
    sections: Sections = {
        "http": {"token_file": str(token_file)},
        "sinks.fast": {"kind": "cache", "url": valkey.url, "tables": ["public.t"]},
    }
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    daemon = capture.running(sections)
    capture.settled(daemon)
    config, port = capture.folder / "cdc-0.toml", daemon.events("http_listening")[0]["port"]
    before = cdc("actions", "-c", config)

    with SinkProcess(config, "fast"):
        assert cdc("wait", "--sink", "fast", "--lsn", capture.wal(), "-c", config).code == 0
        by_http = [_post(port, action, sink="fast") for action in ("sink.pause", "sink.resume")]
        by_command = [cdc("sink", action, "fast", "--json", "-c", config) for action in ("pause", "resume")]
    refused = [
        _post(port, "sink.pause", sink="none"),
        _post(port, "snapshot.start", tables=["public.t"], where="id = 4711 or"),
    ]
    failed = cdc("dlq", "skip", "none", "--key", "4711", "--yes", "-c", config)
    started, leveled = _post(port, "snapshot.start", tables=["public.t"]), _post(port, "log.level", level="warning")
    assert daemon.stop() == 0
    shown = cdc("actions", "-c", config)
    listed = json.loads(cdc("actions", "--json", "--limit", "2", "-c", config).out)["actions"]

    assert (before.code, before.out, "no action is recorded" in before.err) == (0, "", True)
    assert [(code, answer["facts"]) for code, answer in by_http] == [(200, {"workers": 1}), (200, {"was_paused": True})]
    assert [json.loads(ran.out)["sink"] for ran in by_command] == ["fast"] * 2
    assert [code for code, _ in refused] == [409, 409]
    assert (failed.code, started[0], leveled[0]) == (2, 200, 200)

    values = [value for _, value in read_raw(capture.bootstrap, f"{capture.name}.__actions")]
    records = [json.loads(value or b"") for value in values]
    user = pwd.getpwuid(os.getuid()).pw_name
    assert [(one["who"], one["via"], one["action"], one["result"]) for one in records] == [
        ("token", "http", "sink.pause", "done"),
        ("token", "http", "sink.resume", "done"),
        (user, "cli", "sink.pause", "done"),
        (user, "cli", "sink.resume", "done"),
        ("token", "http", "sink.pause", "refused"),
        ("token", "http", "snapshot.start", "refused"),
        (user, "cli", "dead_letters.skip", "refused"),
        ("token", "http", "snapshot.start", "requested"),
        ("token", "http", "log.level", "done"),
    ]
    assert all(one["from"].startswith("127.0.0.1:") for one in records if one["via"] == "http")
    assert all(one["from"].startswith(f"{socket.gethostname()} pid ") for one in records if one["via"] == "cli")
    assert records[0]["arguments"] == {"sink": "fast"}
    assert records[5]["arguments"] == {"tables": ["public.t"], "where": True}
    assert [one["error"] and one["error"]["class"] for one in records] == [None] * 4 + ["UsageError"] * 3 + [None] * 2
    assert not any(b"4711" in (value or b"") for value in values)
    topic = f"{capture.name}.__actions"
    facts = TopicAdmin(load(config, {}).kafka).describe([topic])[topic]
    assert facts is not None
    configs = facts.configs
    assert (facts.partition_count, configs["cleanup.policy"], configs["retention.ms"]) == (1, "delete", "-1")

    assert shown.code == 0
    assert len(shown.out.splitlines()) == 1 + len(records)
    assert [one["action"] for one in listed] == ["snapshot.start", "log.level"]


def test_action_counts_and_warns_when_its_record_cannot_be_written(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    capture.running({"snapshot": {"mode": "initial"}})
    config = capture.write_config({"kafka": {"create_topics": False}})

    ran = cdc("snapshot", "start", "public.t", "--no-wait", "-c", config)

    assert ran.code == 0
    assert "submitted signal" in ran.out
    assert "warning: this action is not in the topic of actions" in ran.err
    assert "kafka.create_topics" in ran.err
