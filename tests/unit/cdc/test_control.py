"""Requests of operators and their records: what is accepted, what is recorded, and what never is."""

from __future__ import annotations

import json
import logging
import os
import pwd
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import structlog
from msgspec import UNSET, Raw

from cdc.config.load import parse as parse_config
from cdc.control.action_record import ActionRecord, Actor, decode, document, encode
from cdc.control.perform import cli_actor, perform
from cdc.control.requests import (
    ACTIONS,
    ActionRequest,
    ConfigReload,
    DdlAccept,
    DeadLettersSkip,
    LogLevel,
    SinkPause,
    SnapshotStart,
    SnapshotStop,
    ViewSwap,
    action_of,
    parse,
    recorded_arguments,
)
from cdc.control.terminal import Declined, Terminal
from cdc.errors import BrokerUnreachable, ConfigError, SinkBehind, TailraceError, UsageError
from cdc.publish.topic_rules import actions_want

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.config.settings import Config

_OPERATOR = Actor("ann", "db7 pid 41", "cli")
_CONFIG = """
name = "shop"
[source]
dsn = "postgresql://db/shop"
[kafka]
bootstrap = "127.0.0.1:1"
[sinks.lake]
kind = "warehouse"
path = "lake"
[sinks.search]
kind = "search"
url = "http://localhost:9200"
"""


@pytest.fixture
def config() -> Config:
    return parse_config(_CONFIG, {})


@pytest.fixture
def restored_log() -> Iterator[None]:
    before = structlog.get_config()["wrapper_class"]
    yield
    structlog.configure(wrapper_class=before)


class Log:
    """Keeps the records instead of Kafka."""

    def __init__(self) -> None:
        self.records: list[ActionRecord] = []

    def write(self, _config: Config, record: ActionRecord) -> None:
        self.records.append(record)


def _body(action: str, **fields: object) -> bytes:
    return json.dumps({"action": action, **fields}).encode()


_EXAMPLES: dict[str, dict[str, object]] = {
    "sink.pause": {"sink": "search"},
    "sink.resume": {"sink": "search"},
    "snapshot.start": {"tables": ["public.t"], "where": "id > 1"},
    "snapshot.pause": {},
    "snapshot.resume": {"tables": ["public.*"]},
    "snapshot.stop": {"tables": ["public.t", "sales.t"]},
    "dead_letters.retry": {"sink": "search", "tables": ["public.t"], "error": "mapper_parsing_exception"},
    "dead_letters.skip": {"sink": "search", "key": {"id": 7}},
    "ddl.accept": {"tables": ["public.t"]},
    "view.swap": {"lake": "lake", "view": "revenue"},
    "view.rollback": {"lake": "lake", "view": "revenue"},
    "log.level": {"level": "debug"},
    "config.reload": {},
}


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_read_from_its_json(action: str) -> None:
    request = parse(_body(action, **_EXAMPLES[action]))

    assert action_of(request) == action
    assert json.loads(msgspec.json.encode(request)) == {"action": action, **_EXAMPLES[action]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"action": "dead_letters.skip", "sink": "s", "key": {"a": ' + b"[" * 60_000, "not JSON"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `action`"),
        (_body("sink.delete", sink="search"), "Invalid value 'sink.delete'"),
        (_body("sink.pause"), "missing required field `sink`"),
        (_body("sink.pause", sink=""), "length >= 1"),
        (_body("sink.pause", sink="search", force=True), "unknown field `force`"),
        (_body("snapshot.start"), "missing required field `tables`"),
        (_body("snapshot.start", tables=[]), "length >= 1"),
        (_body("snapshot.start", tables=["t"], where=""), "length >= 1"),
        (_body("snapshot.start", tables=["t"], keys=[]), "length >= 1"),
        (_body("snapshot.stop", tables=[]), "length >= 1"),
        (_body("dead_letters.skip", sink="search", key=None), "$.key"),
        (_body("log.level", level="error"), "Invalid enum value"),
    ],
)
def test_body_that_is_not_an_action_is_refused_with_what_is_wrong(body: bytes, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(body)

    assert said in caught.value.message
    assert caught.value.hint


def test_row_keys_and_conditions_are_recorded_only_as_true() -> None:
    tables = ("public.t",)
    requests: list[ActionRequest] = [
        SnapshotStart(tables=tables, where="name = 'Ann'"),
        SnapshotStart(tables=tables, keys=(Raw(b'{"name":"Ann"}'),)),
        DeadLettersSkip(sink="search", key={"name": "Ann"}),
        DeadLettersSkip(sink="search", key=""),
        SnapshotStop(),
    ]

    assert [recorded_arguments(request) for request in requests] == [
        {"tables": tables, "where": True},
        {"tables": tables, "keys": True},
        {"sink": "search", "key": True},
        {"sink": "search", "key": True},
        {},
    ]


@pytest.mark.parametrize(
    "request_",
    [
        SnapshotStart(tables=("public.t",), where="name = 'Ann' or"),
        SnapshotStart(tables=("public.t",), where="name = 'Ann'", keys=(Raw(b'{"name":"Ann"}'),)),
        SnapshotStart(tables=("public.t",), keys=(Raw(b'{"name":["Ann"]}'),)),
        SinkPause(sink="lake"),
        DeadLettersSkip(sink="lake", key="Ann"),
        ViewSwap(lake="search", view="revenue"),
    ],
)
def test_refused_action_is_recorded_without_values(config: Config, request_: Any) -> None:
    log = Log()

    outcome = perform(config, request_, _OPERATOR, write=log.write)

    (record,) = log.records
    assert (outcome.result, outcome.warning) == ("refused", "")
    assert isinstance(outcome.error, UsageError)
    assert (record.who, record.origin, record.via) == ("ann", "db7 pid 41", "cli")
    assert (record.action, record.result) == (action_of(request_), "refused")
    assert record.error is not None
    assert record.error.kind == "UsageError"
    assert b"Ann" not in encode(record)


def test_record_has_who_from_where_what_and_result(config: Config, restored_log: None) -> None:
    log = Log()

    outcome = perform(config, LogLevel(level="info"), Actor("token", "10.0.0.7:4711", "http"), write=log.write)

    (record,) = log.records
    found = document(record)
    assert outcome.error is None
    assert found.pop("at").endswith("+00:00")
    assert found == {
        "who": "token",
        "from": "10.0.0.7:4711",
        "via": "http",
        "action": "log.level",
        "arguments": {"level": "info"},
        "result": "done",
        "error": None,
    }
    assert decode(encode(record)) == record


def test_argument_that_is_not_unicode_is_recorded_too(config: Config) -> None:
    log = Log()
    perform(config, SinkPause(sink=os.fsdecode(b"a\xff")), _OPERATOR, write=log.write)

    found = decode(encode(log.records[0]))
    assert found is not None
    assert found.arguments == {"sink": "a?"}


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"{}", b"[1]", b'{"at": 1}'])
def test_record_of_another_program_is_left_out(value: bytes | None) -> None:
    assert decode(value) is None


def test_action_whose_record_cannot_be_written_counts_and_is_reported(config: Config, restored_log: None) -> None:
    def unreachable(_config: Config, _record: ActionRecord) -> None:
        raise BrokerUnreachable("no broker answers")

    done = perform(config, LogLevel(level="warning"), _OPERATOR, write=unreachable)
    refused = perform(config, SinkPause(sink="lake"), _OPERATOR, write=unreachable)

    assert (done.result, refused.result) == ("done", "refused")
    assert "no broker answers" in done.warning
    assert "no broker answers" in refused.warning


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (UsageError("no open DDL findings"), "refused"),
        (ConfigError("invalid topic"), "refused"),
        (SinkBehind("1 of 2 workers have not stopped"), "requested"),
        (BrokerUnreachable("no broker answers"), "failed"),
    ],
)
def test_result_follows_from_the_class_of_the_error(config: Config, error: TailraceError, result: str) -> None:
    def broken() -> Any:
        raise error

    log = Log()
    outcome = perform(config, DdlAccept(), _OPERATOR, terminal=Terminal(reading=broken), write=log.write)

    (record,) = log.records
    assert (outcome.result, outcome.error) == (result, error)
    assert record.error is not None
    assert (record.result, record.error.kind, record.error.message) == (result, type(error).__name__, error.message)


def test_action_that_ends_with_a_bug_is_recorded_without_its_text(config: Config) -> None:
    def interrupted() -> Any:
        raise RuntimeError("row 4711")

    log = Log()
    with pytest.raises(RuntimeError):
        perform(config, DdlAccept(), _OPERATOR, terminal=Terminal(reading=interrupted), write=log.write)

    assert [(one.result, one.error and (one.error.kind, one.error.message)) for one in log.records] == [
        ("failed", ("RuntimeError", ""))
    ]


def test_action_that_the_operator_declines_is_not_recorded(config: Config) -> None:
    def declined() -> Any:
        Terminal(agreed=lambda _: False).ask([])

    log = Log()
    with pytest.raises(Declined):
        perform(config, DdlAccept(), _OPERATOR, terminal=Terminal(reading=declined), write=log.write)

    assert log.records == []


def test_log_level_applies_to_the_running_process(config: Config, restored_log: None) -> None:
    enabled = []
    for level in ("debug", "warning", "info"):
        perform(config, parse(_body("log.level", level=level)), _OPERATOR, write=Log().write)
        logger = structlog.get_logger()
        enabled.append([logger.is_enabled_for(one) for one in (logging.DEBUG, logging.INFO, logging.WARNING)])

    assert enabled == [[True] * 3, [False, False, True], [False, True, True]]


def test_user_of_the_command_line_does_not_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "USERNAME"):
        monkeypatch.setenv(name, "mallory")

    found = cli_actor()

    assert found.who == pwd.getpwuid(os.getuid()).pw_name
    assert found.origin.endswith(f" pid {os.getpid()}")
    assert found.via == "cli"


def test_topic_of_actions_never_expires(config: Config) -> None:
    spec = actions_want("shop.__actions", config.kafka).spec

    assert spec.partition_count == 1
    assert (spec.configs["cleanup.policy"], spec.configs["retention.ms"]) == ("delete", "-1")
    assert spec.configs["retention.bytes"] == "-1"


def test_absent_filters_are_not_recorded() -> None:
    assert recorded_arguments(DeadLettersSkip(sink="search", tables=UNSET, error=UNSET)) == {"sink": "search"}


def test_process_of_a_sink_performs_only_actions_on_itself_and_its_records_name_it(config: Config) -> None:
    log = Log()
    client = Actor("token", "10.0.0.7:4711", "http")

    reloaded = perform(config, ConfigReload(), client, write=log.write, reload=lambda: {"applied": []}, sink="search")
    refused = perform(config, SinkPause(sink="lake"), client, write=log.write, sink="search")

    assert (reloaded.result, reloaded.facts) == ("done", {"applied": []})
    assert refused.result == "refused"
    assert refused.error is not None
    assert "sink 'search' does not perform sink.pause" in refused.error.message
    assert [(one.action, one.arguments, one.result) for one in log.records] == [
        ("config.reload", {"sink": "search"}, "done"),
        ("sink.pause", {"sink": "lake"}, "refused"),
    ]
