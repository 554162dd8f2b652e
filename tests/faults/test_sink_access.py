"""The user of a sink on a broker with ACLs: `cdc doctor` names each missing right and the command that grants it."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from cdc.clock import SystemClock
from cdc.config.load import parse
from cdc.doctor.sink_checks import examine_sinks
from cdc.errors import BrokerRefused
from cdc.kafka.admin import TopicAdmin
from cdc.model.topic_names import dead_letters_topic, sink_group
from cdc.publish.topic_rules import dead_letters_want
from sinks.compose import start_applied
from sinks.runner.runner_observer import Unobserved
from sinks.state.state_topic import ensure_state_topic
from tests.fixtures.faults.secured import SecuredBroker
from tests.fixtures.servers.valkey import client_of
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_rig import HEAD, SinkRig

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.config.settings import Config
    from cdc.doctor.finding import Finding
    from cdc.local.valkey_server import Valkey

CONFIG = (
    HEAD
    + """[kafka.options]
{options}
[sinks.cache]
kind = "cache"
url = "{url}"
"""
)
_OPERATIONS = {"Read": "READ", "Write": "WRITE", "DescribeConfigs": "DESCRIBE_CONFIGS"}


LAKE = """
[sinks.lake]
kind = "warehouse"
path = "{folder}/lake"
views = "{folder}/views"
"""


def config_of(name: str, kafka: dict[str, Any], url: str, more: str = "") -> Config:
    options = "\n".join(f'"{key}" = "{value}"' for key, value in kafka.get("options", {}).items())
    return parse(CONFIG.format(name=name, bootstrap=kafka["bootstrap"], options=options, url=url) + more, {})


def refused(config: Config) -> list[Finding]:
    return [one for one in examine_sinks(config, 10.0) if one.level == "error"]


def give(broker: SecuredBroker, command: str) -> None:
    """Do what a command of `kafka-acls.sh` does."""
    words = command.split()
    kind = ResourceType.GROUP if "--group" in words else ResourceType.TOPIC
    principal = words[words.index("--allow-principal") + 1]
    operations = [words[at + 1] for at, word in enumerate(words) if word == "--operation"]
    bindings = [
        AclBinding(
            kind, words[-1], ResourcePatternType.LITERAL, principal, "*",
            AclOperation[_OPERATIONS[operation]], AclPermissionType.ALLOW,
        )
        for operation in operations
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": broker.plain, "log_level": 3})
    for future in admin.create_acls(bindings).values():
        future.result()


def test_doctor_names_each_right_a_sink_lacks_and_with_its_commands_alone_the_sink_runs(
    secured: SecuredBroker, topic_prefix: str, valkey: Valkey
) -> None:
    rig = SinkRig(secured.plain, f"{topic_prefix}.public.t", group=sink_group(topic_prefix, "cache"))
    rig.write_schema(topic_prefix)
    rig.fill(20)
    by_hand = config_of(topic_prefix, {"bootstrap": secured.plain}, valkey.url)
    ensure_state_topic(by_hand, "cache")
    letters = dead_letters_want(
        dead_letters_topic(topic_prefix, "cache"), by_hand.kafka, row_bytes_max=by_hand.capture.row_bytes_max
    )
    TopicAdmin(by_hand.kafka).create([letters.spec])
    user = f"u{topic_prefix}"
    secured.set_password(user)
    config = config_of(topic_prefix, secured.scram_options(user), valkey.url)

    with pytest.raises(BrokerRefused), closing(start_applied(
        config, "cache", SystemClock(), observer=Unobserved()
    )) as runner:  # fmt: skip
        runner.run(threading.Event())
    told: list[str] = []
    while findings := refused(config):
        for finding in findings:
            assert finding.command.startswith(f"kafka-acls.sh --bootstrap-server {secured.sasl} --add "), finding
            assert finding.command not in told, "what was given is not asked for again"
            told.append(finding.command)
            give(secured, finding.command)

    assert {command.split()[-1] for command in told} >= {
        sink_group(topic_prefix, "cache"),
        rig.topic,
        f"{topic_prefix}.__schema",
        f"{topic_prefix}.__blocked.cache",
        f"{topic_prefix}.__dlq.cache",
    }
    stop = threading.Event()
    with closing(start_applied(config, "cache", SystemClock(), observer=Unobserved())) as runner:
        worker = threading.Thread(target=runner.run, args=(stop,))
        worker.start()
        try:
            rig.until_level()
        finally:
            stop.set()
            worker.join()
    with client_of(valkey) as client:
        until(lambda: len(client.keys(f"{topic_prefix}:cache:public.t:*")) >= len(rig.rows), "every row is there")


def test_doctor_names_each_right_a_lake_lacks_and_what_it_finds_of_it(
    secured: SecuredBroker, topic_prefix: str, valkey: Valkey, tmp_path: Path
) -> None:
    rig = SinkRig(secured.plain, f"{topic_prefix}.public.t", group=sink_group(topic_prefix, "lake"))
    rig.write_schema(topic_prefix)
    rig.fill(1)
    own = [f"{topic_prefix}.{one}" for one in ("__cuts.lake", "__schema.lake", "views.v")]
    admin = AdminClient({"bootstrap.servers": secured.plain, "log_level": 3})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in own]).values():
        future.result()
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("-- key: id\n-- publish: topic\nselect id from t")
    (tmp_path / "views" / "w.sql").write_text("select id from t")
    ensure_state_topic(config_of(topic_prefix, {"bootstrap": secured.plain}, valkey.url), "lake")
    user = f"l{topic_prefix}"
    secured.set_password(user)
    config = config_of(topic_prefix, secured.scram_options(user), valkey.url, LAKE.format(folder=tmp_path))

    def of_lake() -> list[Finding]:
        return [one for one in examine_sinks(config, 10.0) if one.message.startswith("lake: ")]

    told: list[str] = []
    while refusals := [one for one in of_lake() if one.command.startswith("kafka-acls.sh")]:
        for finding in refusals:
            assert finding.command not in told, "what was given is not asked for again"
            assert (finding.level == "warning") is ("__blocked.lake" in finding.command)
            told.append(finding.command)
            give(secured, finding.command)

    state = f"{topic_prefix}.__blocked.lake"
    assert {command.split()[-1] for command in told} >= {*own, rig.topic, f"{topic_prefix}.__schema", state}
    said = {one.check: one.message for one in of_lake()}
    assert "no cut yet" in said["lake"]
    assert "2 views" in said["views"]
    assert "1 published" in said["views"]

    (tmp_path / "views" / "w.sql").write_text("selec")
    assert any(one.level == "error" and "w.sql" in one.message for one in of_lake())
    (tmp_path / "lake").write_text("a file")
    assert any(one.level == "error" and "is not a directory" in one.message for one in of_lake())
