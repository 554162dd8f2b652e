"""A broker that refuses access: a named stop if an operator must act, waiting if time may help (C7, F4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.capture.topic_log import read_log
from tests.fixtures.faults.secured import PASSWORD, WRONG_PASSWORD, SecuredBroker, free_ports
from tests.fixtures.faults.tally import LONG_ONLY
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from cdc.lsn import Lsn
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

# librdkafka tries several times before it gives a connection up.
_NAMED_S = 90.0


@pytest.fixture(autouse=True)
def table(capture: CaptureSite) -> None:
    """A table to capture."""
    capture.sql("create table t (id int primary key)")


def test_absent_broker_is_waited_for_and_named(capture: CaptureSite) -> None:
    addresses = [f"127.0.0.1:{free_ports(1)[0]}", "no-such-host.invalid:9092"]
    daemons = [capture.daemon({"kafka": {"bootstrap": address}}) for address in addresses]

    for daemon, address in zip(daemons, addresses, strict=True):
        waiting = daemon.until_state("WAITING", within_s=_NAMED_S)
        assert waiting["reason"] == "broker"
        assert address in waiting["error"]["message"]
        assert waiting["error"]["hint"]
        assert daemon.stop() == 0


def test_right_credentials_and_rights_capture(capture: CaptureSite, secured: SecuredBroker) -> None:
    secured.grant(capture.name)
    daemon = capture.running({"kafka": secured.sasl_options()})
    daemon.until_position(capture.sql("insert into t values (1)"))

    assert daemon.stop() == 0
    assert PASSWORD not in daemon.log_text()


def test_wrong_sasl_password_is_a_named_stop(capture: CaptureSite, secured: SecuredBroker) -> None:
    daemon = capture.daemon({"kafka": secured.sasl_options(WRONG_PASSWORD)})

    assert_refused(daemon, "sasl.password")
    assert WRONG_PASSWORD not in daemon.log_text()


def test_sasl_mechanism_the_broker_has_not_is_a_named_stop(capture: CaptureSite, secured: SecuredBroker) -> None:
    assert_refused(capture.daemon({"kafka": secured.sasl_options(mechanism="SCRAM-SHA-256")}), "sasl.mechanism")


def test_trusted_certificate_captures(capture: CaptureSite, secured: SecuredBroker) -> None:
    daemon = capture.running({"kafka": secured.tls_options(secured.ca)})

    daemon.until_position(capture.sql("insert into t values (1)"))

    assert daemon.stop() == 0


def test_certificate_of_another_authority_is_a_named_stop(capture: CaptureSite, secured: SecuredBroker) -> None:
    assert_refused(capture.daemon({"kafka": secured.tls_options(secured.other_ca)}), "ssl.ca.location")


def test_client_at_the_wrong_listener_gets_a_clear_error(capture: CaptureSite, secured: SecuredBroker) -> None:
    doors: list[dict[str, Any]] = [
        {"bootstrap": secured.tls},
        {"bootstrap": secured.sasl},
        secured.tls_options(secured.ca) | {"bootstrap": secured.plain},
    ]
    daemons = [capture.daemon({"kafka": door}) for door in doors]

    for daemon in daemons:
        assert_told(daemon, "security.protocol")


def test_missing_right_on_the_transactional_id_is_named(capture: CaptureSite, secured: SecuredBroker) -> None:
    secured.grant(capture.name, transactional_id=False)

    stop = assert_refused(capture.daemon({"kafka": secured.sasl_options()}), "transactional id")

    assert f"{capture.name}.capture" in str(stop)


def test_missing_right_on_topics_is_named(capture: CaptureSite, secured: SecuredBroker) -> None:
    secured.grant(capture.name, topics=False)

    assert_refused(capture.daemon({"kafka": secured.sasl_options()}), "opic")


@pytest.mark.parametrize("transactional_id", [False, True], ids=["topics", "transactional id"])
def test_right_taken_away_while_running_is_a_named_stop_and_given_back_it_goes_on(
    capture: CaptureSite, secured: SecuredBroker, transactional_id: bool
) -> None:
    secured.grant(capture.name)
    daemon = capture.running({"kafka": secured.sasl_options()})
    daemon.until_position(capture.sql("insert into t values (1)"))

    secured.revoke(capture.name, transactional_id=transactional_id)
    end = capture.sql("insert into t values (2)")

    assert_refused(daemon, "allow")
    assert len(daemon.events("capture_waiting")) <= 1, "no storm of attempts before it stops"
    assert_goes_on(capture, secured, secured.sasl_options(), end)


@LONG_ONLY
def test_credentials_taken_away_while_running_are_a_named_stop_and_given_back_it_goes_on(
    capture: CaptureSite, secured: SecuredBroker
) -> None:
    """The broker asks for them again every few seconds, as with tokens that expire."""
    user = f"u{capture.name}"
    secured.set_password(user)
    secured.grant(capture.name, user=user)
    kafka = secured.scram_options(user)
    # So long is a producer given before what its connections say is looked at; by default most of a minute.
    kafka["options"]["transaction.timeout.ms"] = "6000"
    daemon = capture.running({"kafka": kafka})
    daemon.until_position(capture.sql("insert into t values (1)"))

    secured.set_password(user, None)
    # Until it is asked for the password again its rows are captured.
    until(
        lambda: capture.sql("insert into t select max(id) + 1 from t") and not daemon.alive,
        "it ends",
        within_s=_NAMED_S,
        every_s=0.5,
    )
    assert_refused(daemon, "sasl.password")
    assert len(daemon.events("capture_waiting")) <= 1, "no storm of attempts before it stops"
    secured.set_password(user)

    assert_goes_on(capture, secured, kafka, capture.wal())
    assert PASSWORD not in daemon.log_text()


def test_replication_factor_above_the_number_of_brokers_is_a_named_stop(capture: CaptureSite) -> None:
    assert_refused(capture.daemon({"kafka": {"replication_factor": 3}}), "replication_factor")


def test_unreplicated_topics_need_consent(capture: CaptureSite) -> None:
    stop = capture.daemon({"kafka": {"allow_unreplicated": False}}).stopped_with()

    assert stop["exit_code"] in {2, 3}
    assert "allow_unreplicated" in stop["message"] + stop["hint"]


def assert_goes_on(capture: CaptureSite, secured: SecuredBroker, kafka: dict[str, Any], end: Lsn) -> None:
    """With the same settings, once the broker allows it, and nothing is missing or there twice."""
    user = kafka["options"]["sasl.username"]
    secured.grant(capture.name, user=user)
    capture.running({"kafka": kafka}).until_position(end)
    ids = [event.after["id"] for event in read_log(secured.plain, capture.name).events]
    assert ids == [row[0] for row in capture.query("select id from t order by id")]


def assert_refused(daemon: Daemon, named: str) -> dict[str, Any]:
    """It stops for an operator and says what to look at."""
    stop = daemon.stopped_with(_NAMED_S)
    assert stop["state"] == "MISCONFIGURED"
    assert stop["exit_code"] == 3
    assert named in stop["message"] + stop.get("hint", "")
    return stop


def assert_told(daemon: Daemon, named: str) -> None:
    """It waits, since a broker that is starting looks the same, or stops; either way it says what may be wrong."""
    until(lambda: not daemon.alive or _waits_for(daemon, named), f"{named} is named", within_s=_NAMED_S)
    if daemon.alive:
        assert daemon.stop() == 0
    else:
        assert_refused(daemon, named)


def _waits_for(daemon: Daemon, named: str) -> bool:
    status = daemon.status()
    return status.get("state") == "WAITING" and named in str(status["error"])
