"""The token endpoint for Spark's Kafka client, over HTTP as that client uses it."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request

import pytest

from cdc.clock import SystemClock
from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.errors import BrokerUnreachable, CredentialUnavailable, SinkUnfit
from cdc.kafka.oauth_token import OauthToken
from sinks.warehouse.log.java_kafka_options import GROUP
from sinks.warehouse.log.kafka_access import READ_AGAIN_S, KafkaAccess, kafka_access
from sinks.warehouse.spark.token_endpoint import token_endpoint
from tests.fixtures.servers.manual_clock import ManualClock

_JWT = ".".join(base64.urlsafe_b64encode(text).rstrip(b"=").decode() for text in (b"{}", b'{"sub":"cdc"}', b"signed"))


class _Tokens:
    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def take(self, *, renewed: bool) -> OauthToken:
        if not self.texts:
            raise CredentialUnavailable("kafka.oauth_command: token failed with exit code 1")
        return OauthToken(self.texts.pop(0), 2e9, "cdc")


def _ask(options: dict[str, str], secret: str | None = None, body: bytes = b"grant_type=client_credentials") -> object:
    found = re.search(r'clientId="(.+)" clientSecret="(.+)";', options["sasl.jaas.config"])
    assert found is not None
    given = base64.b64encode(f"{found[1]}:{secret or found[2]}".encode()).decode()
    headers = {"Authorization": f"Basic {given}"}
    with urllib.request.urlopen(
        urllib.request.Request(options["sasl.oauthbearer.token.endpoint.url"], body, headers)
    ) as answer:
        return json.load(answer)


def test_each_request_gets_a_token_of_the_command() -> None:
    with token_endpoint(_Tokens(_JWT, "second", "third")) as options:
        assert _ask(dict(options)) == {"access_token": "second", "token_type": "Bearer"}
        assert _ask(dict(options)) == {"access_token": "third", "token_type": "Bearer"}


def test_request_without_the_secret_is_refused_and_gets_no_token() -> None:
    tokens = _Tokens(_JWT, _JWT)
    with token_endpoint(tokens) as options, pytest.raises(urllib.error.HTTPError, match="401"):
        _ask(dict(options), "guessed")

    assert tokens.texts == [_JWT]


@pytest.mark.parametrize(("body", "code"), [(b"x" * 2000, 400), (b"grant_type=client_credentials", 503)])
def test_long_request_and_failed_command_have_their_codes(body: bytes, code: int) -> None:
    with token_endpoint(_Tokens(_JWT)) as options, pytest.raises(urllib.error.HTTPError, match=str(code)) as caught:
        _ask(dict(options), body=body)

    caught.value.close()


def test_endpoint_ends_with_its_context() -> None:
    with token_endpoint(_Tokens(_JWT)) as options:
        pass

    with pytest.raises(urllib.error.URLError):
        _ask(dict(options))


def test_tokens_of_another_kind_are_refused_before_spark_starts() -> None:
    with pytest.raises(SinkUnfit, match="not a JSON Web Token"), token_endpoint(_Tokens("opaque")):
        pass
    with pytest.raises(BrokerUnreachable, match=r"kafka\.oauth_command: token failed"), token_endpoint(_Tokens()):
        pass


def test_options_that_change_are_made_again_after_a_minute_and_kept_if_they_cannot_be() -> None:
    found, clock = [{"n": "1"}, {"n": "2"}], ManualClock()

    def make() -> dict[str, str]:
        if not found:
            raise CredentialUnavailable("gone")
        return found.pop(0)

    access = KafkaAccess(make, clock, group="shop", changes=True)
    seen = [dict(access.options())]
    for seconds in (READ_AGAIN_S - 1, 1, READ_AGAIN_S):
        clock.now_s += seconds
        seen.append(dict(access.options()))

    old, new = {"n": "1", GROUP: "shop"}, {"n": "2", GROUP: "shop.1"}
    assert seen == [old, old, new, new]


def test_options_without_changing_credentials_are_made_once() -> None:
    found, clock = [{"n": "1"}], ManualClock()
    access = KafkaAccess(found.pop, clock, group="shop", changes=False)
    clock.now_s += 10 * READ_AGAIN_S

    assert access.options() == {"n": "1", GROUP: "shop"}


def test_lake_on_a_cluster_has_no_endpoint() -> None:
    kafka = Kafka(bootstrap="kafka:9092", oauth_command=("token",), options={"client.id": Secret("x")})
    with (
        pytest.raises(SinkUnfit, match=r"kafka\.oauth_command runs only on this machine"),
        kafka_access(kafka, {}, SystemClock(), group="shop", master="spark://host:7077"),
    ):
        pass
