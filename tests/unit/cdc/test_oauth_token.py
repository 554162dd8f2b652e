"""OAuth tokens for Kafka: read from what a command prints, shared by clients, renewed, and never shown."""

from __future__ import annotations

import ast
import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

import cdc.kafka
from cdc.config.load import parse
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, ConfigError, CredentialUnavailable, SinkUnfit
from cdc.kafka.callbacks import Tokens, callbacks
from cdc.kafka.client_errors import translate
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.client_options import admin_options
from cdc.kafka.oauth_token import parse_token
from sinks.warehouse.log.java_kafka_options import spark_options

_NOW_S: Final = 1_800_000_000.0
_KEY: Final = "kafka.oauth_command"


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _jwt(**claims: object) -> str:
    return f"{_part({'alg': 'none'})}.{_part(claims)}.c2ln"


@pytest.mark.parametrize(
    ("text", "expires_s", "principal"),
    [
        ('{"token": "s3cret", "lifetime_s": 900, "principal": "cdc"}\n', _NOW_S + 900, "cdc"),
        ('{"access_token": "s3cret", "expires_in": "900", "token_type": "Bearer"}', _NOW_S + 900, "tailrace"),
        ('{"token": "s3cret", "expires_at": 1800000900}', _NOW_S + 900, "tailrace"),
        ('{"token": "s3cret", "expires_at": "2027-01-15T08:15:00Z"}', _NOW_S + 900, "tailrace"),
        (f"{_jwt(exp=_NOW_S + 60, sub='cdc')}\n", _NOW_S + 60, "cdc"),
        (json.dumps({"token": _jwt(exp=_NOW_S + 60, sub="cdc")}), _NOW_S + 60, "cdc"),
    ],
)
def test_token_is_read_in_each_form_with_its_expiry(text: str, expires_s: float, principal: str) -> None:
    found = parse_token(text, _NOW_S, _KEY)

    assert found.token in text
    assert (found.expires_s, found.principal) == (expires_s, principal)
    assert found.token not in repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3cret", "without its expiry"),
        ("two s3cret", "no token"),
        ("{s3cret", "not JSON"),
        ('{"tocken": "s3cret", "lifetime_s": 9}', "no token"),
        ('{"token": "s3cret", "lifetime_s": "s3cret"}', "lifetime_s that is not a number"),
        ('{"token": "s3cret", "lifetime_s": true}', "lifetime_s that is not a number"),
        ('{"token": "s3cret", "expires_at": "s3cret"}', "expires_at that is neither"),
        ('{"token": "s3cret", "expires_at": 1799999990}', "expired 10 s ago"),
        (_jwt(exp=_NOW_S - 5, canary="s3cret"), "expired 5 s ago"),
    ],
)
def test_text_without_a_usable_token_is_an_error_that_does_not_show_it(text: str, said: str) -> None:
    with pytest.raises(CredentialUnavailable) as caught:
        parse_token(text, _NOW_S, _KEY)

    assert said in caught.value.message
    assert "s3cret" not in f"{caught.value}{caught.value.hint}{caught.value.__cause__}"


_FIELDS: Final = st.dictionaries(st.sampled_from(["token", "lifetime_s", "expires_at"]), st.text())


@given(st.one_of(st.text(), _FIELDS.map(json.dumps)))
def test_any_text_is_a_token_with_a_future_or_a_named_error(text: str) -> None:
    with suppress(CredentialUnavailable):
        assert parse_token(text, _NOW_S, _KEY).expires_s > _NOW_S


class _Command:
    def __init__(self, lifetime_s: float = 900) -> None:
        self.now_s = _NOW_S
        self.runs = 0
        self.lifetime_s = lifetime_s
        self.tokens = Tokens(self.run, wall_s=lambda: self.now_s)

    def run(self) -> str:
        self.runs += 1
        return json.dumps({"token": f"t{self.runs}", "lifetime_s": self.lifetime_s})


def test_clients_of_a_start_share_a_token_and_a_renewal_is_a_new_one() -> None:
    command = _Command()

    shared = [command.tokens.take(renewed=False).token for _ in range(12)]
    command.now_s += 720
    renewed = command.tokens.take(renewed=True).token

    assert (set(shared), renewed, command.runs) == ({"t1"}, "t2", 2)


def test_token_that_is_old_or_half_used_is_not_shared() -> None:
    lasting, brief = _Command(), _Command(lifetime_s=10)
    for command in (lasting, brief):
        command.tokens.take(renewed=False)

    lasting.now_s += 61
    brief.now_s += 6

    assert [command.tokens.take(renewed=False).token for command in (lasting, brief)] == ["t2", "t2"]


def test_failed_command_makes_kafka_unreachable_and_names_the_setting(tmp_path: Path) -> None:
    kafka = Kafka(bootstrap="kafka:9092", oauth_command=("cat", str(tmp_path / "token")))
    events = ClientEvents()
    with pytest.raises(BrokerUnreachable, match=r"kafka\.oauth_command: cat failed with exit code 1"):
        callbacks(kafka, events)
    good = json.dumps({"token": "t", "lifetime_s": 900})
    (tmp_path / "token").write_text(good)
    ask = callbacks(kafka, events)["oauth_cb"]
    assert callable(ask)

    assert ask("")[0] == "t"
    (tmp_path / "token").unlink()
    with pytest.raises(CredentialUnavailable):
        ask("")
    failed = translate(KafkaError(KafkaError._AUTHENTICATION), doing="read", events=events, servers="kafka:9092")
    (tmp_path / "token").write_text(good)
    ask("")

    assert isinstance(failed, BrokerUnreachable)
    assert "kafka.oauth_command: cat failed with exit code 1" in failed.message
    assert events.credential_failure is None


def test_every_client_of_kafka_has_the_callbacks() -> None:
    made, given_to = 0, 0
    for file in Path(cdc.kafka.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                made += node.func.id == "create"
                given_to += node.func.id == "callbacks"

    assert made == given_to >= 10


_FILE: Final = """
name = "shop"
[source]
dsn = "postgresql://cdc@db/shop"
[kafka]
bootstrap = "kafka:9092"
oauth_command = ["token"]
{options}
"""


def test_oauth_sets_mechanism_and_tls_unless_the_options_do() -> None:
    found = [
        admin_options(parse(_FILE.format(options=options), {}).kafka, client_id="x")
        for options in ("", 'options."security.protocol" = "SASL_PLAINTEXT"')
    ]

    assert [(one["sasl.mechanism"], one["security.protocol"]) for one in found] == [
        ("OAUTHBEARER", "SASL_SSL"),
        ("OAUTHBEARER", "SASL_PLAINTEXT"),
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ('options."sasl.mechanism" = "PLAIN"', "sasl.mechanism"),
        ('options."security.protocol" = "SSL"', "security.protocol"),
        ('options."sasl.oauthbearer.method" = "oidc"', "sasl.oauthbearer.method"),
    ],
)
def test_options_that_contradict_the_command_are_refused(options: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(_FILE.format(options=options), {})

    assert f"kafka.options.{named}" in caught.value.message


def test_lake_on_a_cluster_names_that_the_command_runs_elsewhere() -> None:
    kafka = parse(_FILE.format(options=""), {}).kafka

    with pytest.raises(SinkUnfit, match=r"kafka\.oauth_command runs only on this machine"):
        spark_options(kafka)
    own = {"kafka.sasl.jaas.config": "x"}
    assert spark_options(kafka, own)["kafka.sasl.jaas.config"] == "x"
