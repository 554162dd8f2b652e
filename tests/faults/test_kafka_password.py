"""A SASL password in a file changes while capture and a sink run: both go on, nothing is lost or doubled.

The broker asks a connection for its password again every few seconds (`REAUTH_S`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.config.load import parse
from cdc.kafka.admin import TopicAdmin
from tests.fixtures.capture.topic_log import read_log
from tests.fixtures.faults.secured import PASSWORD
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from cdc.local.valkey_server import Valkey
    from tests.fixtures.faults.secured import SecuredBroker
    from tests.fixtures.servers.daemon import CaptureSite

_NEW = "canary-4c2f-rotated"
_SINK = '\n[sinks.cache]\nkind = "cache"\nurl = "{url}"\n'


def test_rotated_password_reaches_running_clients_without_a_restart(
    capture: CaptureSite, secured: SecuredBroker, valkey: Valkey
) -> None:
    user, file = f"u{capture.name}", capture.folder / "kafka_password"
    file.write_text(PASSWORD)
    secured.set_password(user)
    secured.allow_all(capture.name, user)
    kafka = secured.scram_options(user)
    del kafka["options"]["sasl.password"]
    kafka["options"]["sasl.password_file"] = str(file)
    # After this time a producer is given up and its connection's errors are read; by default most of a minute.
    kafka["options"]["transaction.timeout.ms"] = "6000"
    capture.sql("create table t (id int primary key)")
    daemon = capture.running({"kafka": kafka})
    daemon.until_position(capture.sql("insert into t values (1)"))
    path = capture.folder / "sink.toml"
    path.write_text((capture.folder / "cdc-0.toml").read_text() + _SINK.format(url=valkey.url))
    config = parse(path.read_text(), {})
    idle = TopicAdmin(config.kafka)
    topic, keys = capture.topic("t"), f"{capture.name}:cache:public.t:*"

    with SinkProcess(path, "cache") as sink, client_of(valkey) as client:
        until(lambda: len(client.keys(keys)) == 1, "the sink runs", within_s=60)
        assert idle.describe([topic])[topic] is not None
        secured.set_password(user, _NEW)
        until(
            lambda: capture.sql("insert into t select max(id) + 1 from t") and "uthentication" in daemon.log_text(),
            "capture is rejected",
            within_s=90,
            every_s=0.5,
        )
        file.write_text(_NEW)
        daemon.until_position(capture.sql("insert into t select max(id) + 1 from t"))
        rows = [row[0] for row in capture.query("select id from t order by id")]
        until(lambda: len(client.keys(keys)) == len(rows), "the sink goes on", within_s=90)
        assert idle.describe([topic])[topic] is not None
        assert sink.stop() == 0
        log = daemon.log_text() + sink.log_text()
    assert daemon.stop() == 0
    assert PASSWORD not in log
    assert _NEW not in log
    assert [event.after["id"] for event in read_log(secured.plain, capture.name).events] == rows
