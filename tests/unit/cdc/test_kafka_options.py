"""The librdkafka options: what is fixed, what an operator may set, and what is refused."""

from __future__ import annotations

import pytest

from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.errors import ConfigError
from cdc.kafka import client_options


def _kafka(**user: str) -> Kafka:
    named = {name.replace("__", "."): Secret(value) for name, value in user.items()}
    return Kafka(bootstrap="broker:9092", options=named)


def _producer(**user: str) -> client_options.ClientOptions:
    return client_options.producer_options(_kafka(**user), "shop.capture", message_bytes_max=16 << 20)


def test_exactly_once_rests_on_fixed_options_of_the_producer() -> None:
    found = _producer(acks="1", request__required__acks="0", metadata__broker__list="elsewhere:1")

    assert found["enable.idempotence"] == "true"
    assert found["acks"] == "all"
    assert found["transactional.id"] == "shop.capture"
    assert found["bootstrap.servers"] == "broker:9092"
    assert "metadata.broker.list" not in found
    assert "request.required.acks" not in found


def test_operators_can_tune_the_producer_under_either_name_of_an_option() -> None:
    found = _producer(compression__codec="zstd", queue__buffering__max__ms="20", batch__size="65536")

    assert found["compression.type"] == "zstd"
    assert found["linger.ms"] == "20"
    assert found["batch.size"] == "65536"
    assert "compression.codec" not in found


def test_connection_options_reach_every_client_and_tuning_only_its_own() -> None:
    kafka = _kafka(security__protocol="SASL_SSL", sasl__password="x", linger__ms="1", fetch__min__bytes="10")

    producer = client_options.producer_options(kafka, "shop.capture", message_bytes_max=1 << 20)
    consumer = client_options.consumer_options(kafka, client_id="reader")
    admin = client_options.admin_options(kafka, client_id="admin")

    assert all(found["security.protocol"] == "SASL_SSL" for found in (producer, consumer, admin))
    assert all(found["sasl.password"] == "x" for found in (producer, consumer, admin))
    assert [("linger.ms" in found) for found in (producer, consumer, admin)] == [True, False, False]
    assert [("fetch.min.bytes" in found) for found in (producer, consumer, admin)] == [False, True, False]


def test_readers_see_committed_records_only_and_never_jump() -> None:
    kafka = _kafka(isolation__level="read_uncommitted", auto__offset__reset="latest", enable__auto__commit="true")

    found = client_options.consumer_options(kafka, client_id="reader")

    assert found["isolation.level"] == "read_committed"
    assert found["auto.offset.reset"] == "error"
    assert found["enable.auto.commit"] == "false"


def test_only_readers_that_follow_a_log_let_the_broker_delay_answers() -> None:
    given = _kafka(fetch__wait__max__ms="250")

    waits = [client_options.consumer_options(_kafka(), client_id="r", follows=follows) for follows in (False, True)]
    member = client_options.group_options(_kafka(), group="g", instance="", ahead_bytes=1 << 20)

    assert [found["fetch.wait.max.ms"] for found in (*waits, member)] == ["10", "100", "100"]
    assert client_options.consumer_options(given, client_id="r", follows=False)["fetch.wait.max.ms"] == "250"


def test_readers_fetch_again_as_soon_as_their_queue_has_room() -> None:
    reader = client_options.consumer_options(_kafka(), client_id="r")
    member = client_options.group_options(_kafka(), group="g", instance="", ahead_bytes=1 << 20)
    tuned = client_options.consumer_options(_kafka(fetch__queue__backoff__ms="50"), client_id="r")

    assert [found["fetch.queue.backoff.ms"] for found in (reader, member, tuned)] == ["10", "10", "50"]


def test_log_lines_that_tell_of_lost_requests_cannot_be_turned_off() -> None:
    assert not {"log_level", "log.connection.close"} & set(_producer(log_level="0", log__connection__close="false"))


@pytest.mark.parametrize("option", ["message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms"])
@pytest.mark.parametrize("value", ["60001", "0", "-1"])
def test_timeouts_beyond_the_transaction_are_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms is 60000"):
        _producer(**{option: value})


def test_our_timeouts_follow_a_shorter_transaction_timeout() -> None:
    found = _producer(transaction__timeout__ms="10000")

    assert found["message.timeout.ms"] == "10000"
    assert found["socket.timeout.ms"] == "10000"


@pytest.mark.parametrize(("given_ms", "wanted_ms"), [("70000", "90000"), ("120000", "120000")])
def test_transactions_that_must_last_longer_may_and_the_other_timeouts_stay(given_ms: str, wanted_ms: str) -> None:
    kafka = _kafka(transaction__timeout__ms=given_ms)

    found = client_options.producer_options(kafka, "shop.capture", message_bytes_max=16 << 20, transaction_s=90)

    assert (found["transaction.timeout.ms"], found["message.timeout.ms"]) == (wanted_ms, "60000")


@pytest.mark.parametrize(("given", "wanted_s"), [({}, 50.0), ({"transaction.timeout.ms": "12000"}, 10.0)])
def test_we_give_up_before_the_broker_ends_the_transaction(given: dict[str, str], wanted_s: float) -> None:
    kafka = Kafka(bootstrap="b:1", options={name: Secret(value) for name, value in given.items()})

    assert client_options.patience_s(kafka) == wanted_s


def test_a_timeout_that_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.options\.transaction\.timeout\.ms must be a whole number"):
        _producer(transaction__timeout__ms="1m")


@pytest.mark.parametrize(
    ("message_bytes_max", "wanted"), [(16 << 20, (16 << 20) - 128), (1, 1000), (2_000_000_000, 1_000_000_000)]
)
def test_records_leave_room_for_the_batch_around_them(message_bytes_max: int, wanted: int) -> None:
    assert client_options.record_bytes_max(message_bytes_max) == wanted


def test_the_queue_holds_at_least_two_of_the_largest_records() -> None:
    found = client_options.producer_options(_kafka(), "shop.capture", message_bytes_max=100 << 20)

    assert int(found["queue.buffering.max.kbytes"]) == 200 << 10


def test_a_refused_option_is_named_as_the_operator_wrote_it_and_its_value_is_not_shown() -> None:
    user = {"compression.codec": Secret("hunter2"), "linger.ms": Secret("5")}

    error = client_options.option_error('Invalid value "hunter2" for configuration property "compression.type"', user)

    assert error.message == "kafka.options.compression.codec has a value that librdkafka does not accept"
    assert "hunter2" not in f"{error} {error.hint} {error.facts}"


def test_an_option_librdkafka_does_not_know_is_said_to_be_unknown() -> None:
    error = client_options.option_error('No such configuration property: "lingr.ms"', {"lingr.ms": Secret("5")})

    assert error.message == "kafka.options.lingr.ms is not an option of librdkafka"


def test_a_refusal_that_names_no_option_lists_those_that_were_set() -> None:
    error = client_options.option_error("", {"b": Secret("1"), "a": Secret("2")})

    assert error.message == "one of kafka.options (a, b) has a value that librdkafka does not accept"
