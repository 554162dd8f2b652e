"""Which clients of Kafka get a new password, and how long a rejected one is read again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from cdc.config.credential import FileSecret
from cdc.config.secret import Secret
from cdc.errors import BrokerRefused, BrokerUnreachable
from cdc.kafka.client_errors import translate
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.sasl_rotation import SEARCH_S, WAIT_MAX_S, Held, SaslRotation
from tests.fixtures.servers.manual_clock import ManualClock

KEY = "kafka.options.sasl.password_file"


class Client:
    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.given.append((username, password))


def held(path: Path, events: ClientEvents | None = None) -> Held:
    return Held((Secret("cdc"), FileSecret(str(path), KEY)), events or ClientEvents(), ("cdc", "old"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "password"
    found.write_text("old\n")
    return found


def test_each_running_client_gets_the_new_password_once(path: Path) -> None:
    rotation, clients = SaslRotation(), [Client(), Client()]
    for client in clients:
        rotation.hold(client, held(path))

    assert rotation.renew() == 0
    path.write_text("new\n")
    assert rotation.renew() == 2
    assert rotation.renew() == 0
    assert [client.given for client in clients] == [[("cdc", "new")]] * 2


def test_released_client_is_never_called_again(path: Path) -> None:
    rotation, client = SaslRotation(), Client()
    rotation.hold(client, held(path))
    rotation.release(client)
    path.write_text("new")

    assert rotation.renew() == 0
    assert client.given == []


def test_rotation_keeps_no_client_alive(path: Path) -> None:
    rotation = SaslRotation()
    rotation.hold(Client(), held(path))
    path.write_text("new")

    assert rotation.renew() == 0


def test_missing_file_is_named_in_errors_until_it_is_back(path: Path) -> None:
    rotation, client, events = SaslRotation(), Client(), ClientEvents()
    rotation.hold(client, held(path, events))
    path.unlink()

    assert rotation.renew() == 0
    assert events.credential_failure is not None
    assert events.credential_failure.message.startswith(f"{KEY}: ")
    path.write_text("old")
    rotation.renew()
    assert events.credential_failure is None


def test_rejected_password_is_read_again_until_it_differs_or_five_minutes_have_passed() -> None:
    clock = ManualClock()
    rotation = SaslRotation(clock)

    assert rotation.next_wait_s(changed=False) is None, "nothing was rejected"
    rotation.rejected()
    waits = [rotation.next_wait_s(changed=False) for _ in range(5)]
    assert waits == [1, 2, 4, WAIT_MAX_S, WAIT_MAX_S]
    assert rotation.next_wait_s(changed=True) is None
    rotation.rejected()
    clock.wait(threading.Event(), SEARCH_S + 1)
    assert rotation.next_wait_s(changed=False) is None


@pytest.mark.parametrize("changing", ["", KEY])
def test_rejected_password_of_a_file_is_worth_another_attempt(changing: str) -> None:
    events, reported = ClientEvents(), []
    if changing:
        events.follow(changing, lambda: reported.append(1))
    rejected = KafkaError(KafkaError._AUTHENTICATION)
    events.on_error(rejected)

    for error in (rejected, KafkaError(KafkaError._TIMED_OUT)):
        found = translate(error, doing="read records", events=events)
        assert type(found) is (BrokerUnreachable if changing else BrokerRefused)
        assert changing in found.hint
    assert bool(reported) == bool(changing)


def test_new_password_makes_earlier_rejections_obsolete() -> None:
    events = ClientEvents()
    events.follow(KEY, lambda: None)
    events.on_error(KafkaError(KafkaError._AUTHENTICATION))
    events.on_error(KafkaError(KafkaError._TRANSPORT))
    events.renewed()

    assert events.refusal() is None
