"""Spark's Kafka client logs in with tokens of a command, and with a password that changes, without a new session."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cdc.config.credential import FileSecret
from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.log.kafka_access import READ_AGAIN_S, kafka_access
from sinks.warehouse.log.small_spans import RECORDS_MAX
from tests.contract.kafka_clients import WAIT_S, create_topic, producing
from tests.fixtures.faults.oauth_command import LIFETIME_S, SECRET, oauth_command
from tests.fixtures.faults.secured import PASSWORD
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess
from tests.spark.conftest import SHORT_LIVED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.faults.secured import SecuredBroker
    from tests.fixtures.servers.daemon import CaptureSite

_NEW = "canary-77aa-rotated"


@pytest.mark.timeout(400)
def test_lake_logs_in_with_tokens_of_a_command_and_renews_them(
    capture: CaptureSite, secured: SecuredBroker, tmp_path: Path
) -> None:
    def is_in_the_lake(rows: int) -> bool:
        manifest = ManifestStore(location).current()
        state = None if manifest is None else manifest.tables.get("mirror/public.t")
        return state is not None and pinned(location, "mirror/public.t", state.version).count() == rows

    capture.sql("create table t (id int primary key)")
    secured.allow_all(capture.name)
    location = Location.of(str(tmp_path / "lake"))
    lake: dict[str, Any] = {"kind": "warehouse", "path": str(tmp_path / "lake"), "interval_s": 0.2}
    lake |= {"master": "local[1]", "memory": "1g", "spark": SHORT_LIVED}
    daemon = capture.running({"kafka": secured.oauth_options(oauth_command(capture.folder)), "sinks.lake": lake})
    with SinkProcess(capture.folder / "cdc-0.toml", "lake") as sink:
        for number in (1, 2):
            first, last = (number - 1) * (RECORDS_MAX + 1) + 1, number * (RECORDS_MAX + 1)
            capture.sql(f"insert into t select generate_series({first}, {last})")  # Spark itself reads that many
            until(partial(is_in_the_lake, last), f"load {number} is in the lake", within_s=180)
            time.sleep(LIFETIME_S * (number == 1))
        assert sink.stop() == 0
        texts = daemon.log_text() + sink.log_text()
    assert daemon.stop() == 0
    assert SECRET not in texts
    assert "eyJ" not in texts, "the beginning of a token"


def test_rotated_password_reaches_the_next_reads_of_a_session(
    spark: SparkSession, secured: SecuredBroker, topic_prefix: str, tmp_path: Path
) -> None:
    def count() -> int:
        options = {**access.options(), "subscribe": topic}
        return spark.read.format("kafka").options(**options).load().count()

    user, file, clock = f"u{topic_prefix}", tmp_path / "password", ManualClock()
    file.write_text(PASSWORD)
    secured.set_password(user)
    secured.grant(topic_prefix, user=user)  # no right to a group
    plain = Kafka(bootstrap=secured.plain)
    given = secured.scram_options(user)
    options = {name: Secret(value) for name, value in given["options"].items()}
    options["sasl.password"] = FileSecret(str(file), "kafka.options.sasl.password_file")
    topic = create_topic(plain, f"{topic_prefix}.t")
    with producing(plain, topic_prefix) as producer:
        producer.begin()
        producer.produce_all(topic, 0, [(b"k", b"v", None)], lambda _: None)
        producer.flush(WAIT_S)
        producer.commit(WAIT_S)
    with kafka_access(
        Kafka(bootstrap=given["bootstrap"], options=options), {}, clock, group=topic_prefix, master="local[2]"
    ) as access:
        assert count() == 1
        secured.set_password(user, _NEW)
        file.unlink()
        clock.now_s += READ_AGAIN_S
        assert access.options()["kafka.sasl.jaas.config"].endswith(f'password="{PASSWORD}";')
        file.write_text(_NEW)
        clock.now_s += READ_AGAIN_S

        assert count() == 1
