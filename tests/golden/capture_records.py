"""Lets the previous release work on real servers and keeps the records that it wrote in tests/golden/<release>.

Not part of a tier: ``make golden-records`` runs it once for a release. The host's name is replaced by ``host``.
"""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from cdc.model.topic_names import cuts_topic, progress_topic, schema_topic, sink_state_topic, view_cuts_topic
from tests.fixtures.capture.topic_log import read_raw
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.releases import PREVIOUS, environment, run_python
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess
from tests.golden.records import NAME
from tests.tidy.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.running_servers import Database, KafkaServer

GOLDEN: Final = ROOT / "tests" / "golden"
_SQL: Final = "-- key: k\n-- publish: topic\nselect id % 2 as k, count(*) as n from orders group by id % 2\n"
_WITHIN_S: Final = 400.0


def test_capture_records_of_the_previous_release(
    database: Database, kafka: KafkaServer, valkey: Valkey, previous_release: Path, tmp_path: Path
) -> None:
    views = tmp_path / "views"
    views.mkdir()
    (views / "sums.sql").write_text(_SQL)
    sections: dict[str, dict[str, Any]] = {
        "snapshot": {"mode": "initial"},
        "sinks.cache": {"kind": "cache", "url": valkey.url},
        "sinks.lake": {"kind": "warehouse", "path": str(tmp_path / "lake"), "views": str(views)},
    }
    with capture_site(NAME, database.dsn, kafka.bootstrap, tmp_path) as site, ExitStack() as closing:
        site.sql("create table orders (id int primary key, state text)", "insert into orders values (1, 'new')")
        daemon = site.daemon(sections, code=previous_release).until_running()
        config = tmp_path / "cdc-0.toml"
        cache = closing.enter_context(SinkProcess(config, "cache", code=previous_release))
        lake = Sink(config, tmp_path / "lake.log", code=previous_release)
        closing.callback(lake.kill)
        pending = until(lambda: _pending(tmp_path), "a cut is open", within_s=_WITHIN_S, every_s=0.001)
        site.sql("insert into orders values (2, 'new'), (3, 'new')", "delete from orders where id = 2")
        site.sql("alter table orders add column total int default 5")
        _run(previous_release, "snapshot", "start", "public.orders", "-c", config)
        until(lambda: _named(site, "signals"), "the signal is handled")
        _run(previous_release, "sink", "pause", "cache", "-c", config)
        until(lambda: _named(site, "paused"), "the sink is paused")
        until(lambda: _named(site, "catalog-table"), "the facts of the table are recorded")
        _run(previous_release, "audit", "-c", config)
        until(lambda: _named(site, "view-cut"), "the view is published", within_s=_WITHIN_S)
        lines = [*_records(site), _line("pending", b"pending.json", pending), _mark(site)]
        manifest = (tmp_path / "lake" / "_cuts" / "current.json").read_bytes()
        lines.append(_line("manifest", b"current.json", manifest))
        cache.kill()
        assert daemon.stop() == 0

    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).replace(socket.gethostname(), "host")
    script = (GOLDEN / "records.py").read_text()
    answers = run_python(previous_release, script, "read", data=text)
    read = {(one["name"], one["key"]): one for one in map(json.loads, answers.splitlines())}
    kept = [{**one, "read": read[(one["name"], one["key"])]["read"]} for one in map(json.loads, text.splitlines())]
    target = GOLDEN / PREVIOUS / "captured.jsonl"
    target.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept))


def _run(code: Path, *arguments: object) -> None:
    ran = cdc(*arguments, cwd=code, environ=environment(code), timeout_s=120)
    assert ran.code == 0, ran.out + ran.err


def _pending(folder: Path) -> bytes:
    """Return the file of the first open cut, complete; empty while there is none."""
    found = b""
    with suppress(FileNotFoundError):
        found = (folder / "lake" / "_cuts" / "pending.json").read_bytes()
    return found if found.endswith(b"}\n") and b'"cut":1,' in found else b""


def _named(site: CaptureSite, name: str) -> bool:
    return any(line["name"] == name for line in _records(site))


def _records(site: CaptureSite) -> Iterator[dict[str, Any]]:
    """Yield the newest record of each kind; of the cut index the newest full map too."""
    newest: dict[str, dict[str, Any]] = {}
    for key, value in read_raw(site.bootstrap, progress_topic(NAME)):
        name = _progress_name(key)
        if name and value is not None:
            newest[name] = _line(name, key, value)
    for topic, name in (
        (cuts_topic(NAME), "cut"),
        (schema_topic(NAME), "schema"),
        (view_cuts_topic(NAME, "lake"), "view-cut"),
    ):
        with suppress(KeyError, TimeoutError):
            for key, value in read_raw(site.bootstrap, topic):
                if value is None:
                    continue  # the empty record before a cut
                full = name == "cut" and b'"full":true' in value
                newest[f"{name} full" if full else name] = _line(name, key or b"", value)
    for key, value in read_raw(site.bootstrap, sink_state_topic(NAME, "cache")):
        control = json.loads(key).get("control")
        if value is not None and control is not None:
            name = "report" if control == "heartbeat" else control
            newest[name] = _line(name, key, value)
    yield from newest.values()


def _progress_name(key: bytes) -> str:
    parts = key.decode().split("/")
    if len(parts) == 1:
        return "progress"
    if parts[1] == "catalog":
        return "catalog-table" if len(parts) > 2 else "catalog"
    return "" if parts[1] == "sentinel" else parts[1]


def _mark(site: CaptureSite) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    group = f"{NAME}.sink.cache"
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    texts = [one.metadata for one in future.result().topic_partitions if one.metadata]
    return _line("mark", b"", texts[0].encode())


def _line(name: str, key: bytes, value: bytes) -> dict[str, Any]:
    return {"name": name, "key": key.decode(), "value": value.decode()}
