from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cdc.local.kafka_config import render_meta, render_properties
from cdc.local.kafka_fence import is_fenced, render_fencing_properties
from cdc.local.kafka_probe import alive_brokers, metadata_request
from cdc.local.postgres_server import render_conf

# As Kafka 4.3.1 writes them.
ACTIVE = "[x] WARN [QuorumController id=1] Performing controller activation. (o.a.k.controller.QuorumController)"
REGISTERED = (
    "[x] INFO [QuorumController id=1] Replayed initial RegisterBrokerRecord for broker 1: RegisterBrokerRecord("
    "brokerId=1, isMigratingZkBroker=false, incarnationId=JiyK, brokerEpoch=18, rack=null, fenced=true, logDirs=[])"
)
CHANGED = (
    "[x] INFO [QuorumController id=1] Replayed BrokerRegistrationChangeRecord modifying the registration for broker 1: "
    "BrokerRegistrationChangeRecord(brokerId=1, brokerEpoch=18, fenced=%s, inControlledShutdown=0, logDirs=[])"
)


def properties(**settings: str) -> dict[str, str]:
    text = render_properties(data="/d", port=9092, controller_port=9093, settings=settings)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_broker_listens_on_loopback_only() -> None:
    made = properties()

    assert made["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert made["controller.quorum.voters"] == "1@127.0.0.1:9093"


def test_the_broker_makes_no_topic_by_accident_and_takes_large_rows() -> None:
    made = properties()

    assert made["auto.create.topics.enable"] == "false"
    assert int(made["message.max.bytes"]) >= 16 << 20
    assert made["transaction.state.log.replication.factor"] == "1"


def test_settings_go_over_ours() -> None:
    text = render_properties(data="/d", port=1, controller_port=2, settings={"num.io.threads": "8", "x": r"a\b"})

    assert "num.io.threads=8\n" in text
    assert "num.io.threads=2\n" not in text
    assert "x=a\\\\b\n" in text


def test_the_identity_of_a_data_folder_is_what_the_storage_tool_writes() -> None:
    assert render_meta("cid", "did") == "version=1\nnode.id=1\ncluster.id=cid\ndirectory.id=did\n"


def test_the_request_is_as_long_as_it_says() -> None:
    request = metadata_request("abc")

    assert struct.unpack_from(">i", request)[0] == len(request) - 4
    assert request[4:] == bytes.fromhex("0003 0001 00000001 0003 616263 00000000")


def test_a_fenced_broker_is_not_counted() -> None:
    assert alive_brokers(struct.pack(">iii", 100, 1, 0)) == 0
    assert alive_brokers(struct.pack(">iii", 100, 1, 1)) == 1


def test_values_of_postgresql_are_quoted() -> None:
    conf = render_conf({"a": "it's", "b": "c:\\d", "e": "x\ny"}, include=Path("/data/postgresql.conf"))

    assert conf == "include = '/data/postgresql.conf'\na = 'it''s'\nb = 'c:\\\\d'\ne = 'x\\ny'\n"


@pytest.mark.parametrize(
    ("lines", "fenced"),
    [
        ([], False),
        ([ACTIVE], True),
        ([REGISTERED, CHANGED % 0], False),
        ([REGISTERED, CHANGED % 0, CHANGED % -1, ACTIVE], False),
        ([REGISTERED, CHANGED % 0, CHANGED % -1, ACTIVE, CHANGED % 1], True),
        ([REGISTERED, ACTIVE], True),
        ([REGISTERED, CHANGED % -1, CHANGED % 1, CHANGED % 0, ACTIVE], True),
    ],
)
def test_a_broker_is_fenced_when_its_last_change_says_so(lines: list[str], fenced: bool) -> None:
    assert is_fenced(lines) is fenced


def test_the_controller_that_fences_is_the_same_node_and_no_broker() -> None:
    text = render_fencing_properties(node_id=1, data="/d", controller_port=9093)

    assert "process.roles=controller\n" in text
    assert "log.dirs=/d\n" in text
    assert "PLAINTEXT://" not in text
