"""The error table: the error class for each Kafka error code."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ConfigError,
    InvariantError,
    OutcomeUnknown,
    ProducerFenced,
    RowRefused,
    TailraceError,
    TopicMismatch,
    TopicMissing,
)
from cdc.kafka import client_errors
from cdc.kafka.client_errors import attempt, construct, guarded, kafka_error_in, translate
from cdc.kafka.client_events import ClientEvents
from cdc.run.retry_policy import RetryPolicy
from tests.fixtures.servers.manual_clock import ManualClock


def _error(name: str, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), "said", fatal, retriable, abort)


NAMES = sorted(
    name
    for name in vars(KafkaError)
    if name.isupper() and isinstance(getattr(KafkaError, name), int) and name != "NO_ERROR"
)
TABLE: list[tuple[str, type[TailraceError], type[TailraceError]]] = [
    # code, outside of a transaction, within one
    ("_FENCED", ProducerFenced, ProducerFenced),
    ("PRODUCER_FENCED", ProducerFenced, ProducerFenced),
    ("INVALID_PRODUCER_EPOCH", ProducerFenced, ProducerFenced),
    ("_AUTHENTICATION", BrokerRefused, BrokerRefused),
    ("_SSL", BrokerRefused, BrokerRefused),
    ("SASL_AUTHENTICATION_FAILED", BrokerRefused, BrokerRefused),
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", BrokerRefused, BrokerRefused),
    ("TOPIC_AUTHORIZATION_FAILED", BrokerRefused, BrokerRefused),
    ("CLUSTER_AUTHORIZATION_FAILED", BrokerRefused, BrokerRefused),
    ("INVALID_TRANSACTION_TIMEOUT", BrokerRefused, BrokerRefused),
    ("INVALID_TIMESTAMP", BrokerRefused, BrokerRefused),
    ("INVALID_REPLICATION_FACTOR", BrokerRefused, BrokerRefused),
    ("MSG_SIZE_TOO_LARGE", BrokerRefused, BrokerRefused),
    ("UNKNOWN_TOPIC_OR_PART", TopicMissing, TopicMissing),
    ("UNKNOWN_TOPIC_ID", TopicMissing, TopicMissing),
    ("_UNKNOWN_TOPIC", TopicMissing, TopicMissing),
    ("_UNKNOWN_PARTITION", TopicMissing, TopicMissing),
    ("TOPIC_EXCEPTION", TopicMismatch, TopicMismatch),
    ("OFFSET_OUT_OF_RANGE", TopicMismatch, TopicMismatch),
    ("_AUTO_OFFSET_RESET", TopicMismatch, TopicMismatch),
    ("_ALL_BROKERS_DOWN", BrokerUnreachable, OutcomeUnknown),
    ("_TRANSPORT", BrokerUnreachable, OutcomeUnknown),
    ("_TIMED_OUT", BrokerUnreachable, OutcomeUnknown),
    ("_MSG_TIMED_OUT", BrokerUnreachable, OutcomeUnknown),
    ("NOT_ENOUGH_REPLICAS", BrokerUnreachable, OutcomeUnknown),
    ("COORDINATOR_NOT_AVAILABLE", BrokerUnreachable, OutcomeUnknown),
    ("UNSTABLE_OFFSET_COMMIT", BrokerUnreachable, OutcomeUnknown),
    ("REBALANCE_IN_PROGRESS", BrokerUnreachable, OutcomeUnknown),
    ("UNKNOWN_MEMBER_ID", BrokerUnreachable, OutcomeUnknown),
    ("INCONSISTENT_TOPIC_ID", BrokerUnreachable, OutcomeUnknown),
    ("STALE_BROKER_EPOCH", BrokerUnreachable, OutcomeUnknown),
    ("_MAX_POLL_EXCEEDED", BrokerUnreachable, OutcomeUnknown),
    ("_NO_OFFSET", BrokerUnreachable, OutcomeUnknown),
    ("_INCONSISTENT", OutcomeUnknown, OutcomeUnknown),
    ("INVALID_TXN_STATE", OutcomeUnknown, OutcomeUnknown),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", OutcomeUnknown, OutcomeUnknown),
    ("_STATE", InvariantError, OutcomeUnknown),
    ("_CONFLICT", InvariantError, OutcomeUnknown),
]


@pytest.mark.parametrize(("name", "plain", "uncertain"), TABLE)
def test_codes_become_classes(name: str, plain: type[TailraceError], uncertain: type[TailraceError]) -> None:
    assert type(translate(_error(name), doing="try")) is plain
    assert type(translate(KafkaException(_error(name)), doing="try", uncertain=True)) is uncertain


@pytest.mark.parametrize("name", NAMES)
def test_no_code_is_taken_for_harmless_within_a_transaction(name: str) -> None:
    error = translate(_error(name), doing="commit", uncertain=True)

    assert isinstance(error, (OutcomeUnknown, ProducerFenced, BrokerRefused, TopicMismatch))


@pytest.mark.parametrize("flags", [{"fatal": True}, {"abort": True}])
def test_a_fatal_or_abortable_error_leaves_the_outcome_unknown(flags: dict[str, bool]) -> None:
    assert type(translate(_error("UNKNOWN_PRODUCER_ID", **flags), doing="try")) is OutcomeUnknown


def test_an_error_that_may_be_retried_is_a_matter_of_time() -> None:
    assert type(translate(_error("FENCED_LEADER_EPOCH", retriable=True), doing="try")) is BrokerUnreachable


# Kafka retries these itself (`RetriableException` of its Java client, and the KIPs that add codes), so none may end us.
_RETRIABLE = """
    INVALID_MSG UNKNOWN_TOPIC_OR_PART LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT
    BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS
    COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
    NOT_CONTROLLER CONCURRENT_TRANSACTIONS KAFKA_STORAGE_ERROR FETCH_SESSION_ID_NOT_FOUND
    INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH
    OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE UNSTABLE_OFFSET_COMMIT
    THROTTLING_QUOTA_EXCEEDED UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID UNKNOWN_CONTROLLER_ID
    REBOOTSTRAP_REQUIRED
"""


@pytest.mark.parametrize("name", _RETRIABLE.split())
def test_what_kafka_calls_retriable_never_needs_an_operator_at_once(name: str) -> None:
    error = translate(_error(name), doing="read")

    assert error.retry == "timed" or RetryPolicy(ManualClock()).allows(error)


def test_every_name_in_the_tables_is_one_of_the_client() -> None:
    tables = (
        *(
            client_errors.FENCED,
            client_errors.MISSING,
            client_errors.MISNAMED,
            client_errors.TOO_LARGE,
            client_errors.TRUNCATED,
            client_errors.UNREACHABLE,
        ),
        *(client_errors.UNCLEAR, client_errors.MISUSED, client_errors.REFUSED.keys()),
    )

    assert {name for table in tables for name in table} <= set(NAMES)


def test_names_in_the_tables_are_those_an_error_says() -> None:
    assert [_error(name).name() for name in NAMES] == NAMES


def test_a_row_that_is_too_large_names_topic_size_and_command() -> None:
    error = translate(_error("MSG_SIZE_TOO_LARGE"), doing="publish", topic="shop.public.t", size=17)

    assert type(error) is RowRefused
    assert "shop.public.t" in error.message
    assert error.facts["size"] == 17
    assert "--entity-name shop.public.t" in error.command


def test_a_missing_acl_is_named() -> None:
    error = translate(
        _error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"), doing="get the id", transactional_id="shop.capture"
    )

    assert "transactional_id 'shop.capture'" in error.message
    assert error.hint.startswith(
        "allow Write and Describe on the transactional id; capture has several with one prefix"
    )


def test_a_timeout_is_explained_by_the_latest_authentication_failure() -> None:
    events = ClientEvents()
    events.on_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password for user x"))
    events.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    error = translate(_error("_TIMED_OUT"), doing="connect", events=events)

    assert type(error) is BrokerRefused
    assert "wrong password for user x" in error.message
    assert "sasl.password" in error.hint


def test_a_timeout_is_explained_by_the_latest_connection_failure() -> None:
    events = ClientEvents()
    events.log(40, "%s [%s] %s", "FAIL", "x#producer-1", "[thrd:b/1]: b/1: Connection refused")

    error = translate(_error("_TIMED_OUT"), doing="connect", events=events, servers="broker:9092")

    assert type(error) is BrokerUnreachable
    assert error.message == "cannot connect: Kafka on broker:9092 does not answer: b/1: Connection refused"


def test_errors_of_ours_pass_unchanged() -> None:
    mine = OutcomeUnknown("mine")

    assert translate(mine, doing="try") is mine


def test_what_is_not_from_kafka_is_our_bug_unless_a_transaction_is_open() -> None:
    assert type(translate(TypeError("no"), doing="try")) is InvariantError
    assert type(translate(SystemError("no"), doing="try", uncertain=True)) is OutcomeUnknown


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_request_to_stop_passes_through(stop: type[BaseException]) -> None:
    def interrupted() -> None:
        raise stop

    with pytest.raises(stop):
        attempt(interrupted)


def test_a_guarded_call_keeps_the_cause_and_drops_its_frames() -> None:
    cause = KafkaException(_error("_TIMED_OUT"))

    def fails() -> None:
        raise cause

    with pytest.raises(BrokerUnreachable) as caught:
        guarded(fails, lambda error: translate(error, doing="try"))

    assert caught.value.__cause__ is cause
    assert cause.__traceback__ is None


def test_a_guarded_call_returns_what_the_call_does() -> None:
    assert guarded(lambda: None, lambda error: InvariantError(str(error))) is None


def test_a_client_that_cannot_be_made_is_a_config_error() -> None:
    def refused() -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, 'No such configuration property: "x"'))

    with pytest.raises(ConfigError):
        construct(refused, {})


def test_only_kafka_errors_have_a_kafka_error() -> None:
    inner = _error("_FENCED")

    assert kafka_error_in(inner) is inner
    assert kafka_error_in(KafkaException(inner)) is inner
    assert kafka_error_in(KafkaException()) is None
    assert kafka_error_in(ValueError()) is None
