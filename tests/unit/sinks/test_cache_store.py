"""Options of a cache's client, and what its errors are to us."""

from __future__ import annotations

import pytest
import redis.exceptions as theirs

from cdc.config.secret import Secret
from cdc.errors import ConfigError, SinkError, SinkUnfit, SinkUnreachable
from sinks.cache.cache_errors import translate
from sinks.cache.server_connection import Store

SECRET = "row-value-or-secret"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (theirs.ConnectionError(SECRET), SinkUnreachable),
        (theirs.TimeoutError(SECRET), SinkUnreachable),
        (theirs.BusyLoadingError(SECRET), SinkUnreachable),
        (theirs.ReadOnlyError(SECRET), SinkUnreachable),
        (theirs.MasterDownError(SECRET), SinkUnreachable),
        (theirs.OutOfMemoryError(SECRET), SinkUnreachable),
        (theirs.ResponseError(f"MISCONF {SECRET}"), SinkUnreachable),
        (theirs.ResponseError(f"NOREPLICAS {SECRET}"), SinkUnreachable),
        (theirs.ResponseError(f"BUSY {SECRET}"), SinkUnreachable),
        (theirs.AuthenticationError(SECRET), SinkUnfit),
        (theirs.NoPermissionError(SECRET), SinkUnfit),
        (theirs.MovedError("1 127.0.0.1:1"), SinkUnfit),
        (theirs.ResponseError(f"ERR unknown command '{SECRET}'"), SinkUnfit),
        (theirs.ResponseError(f"WRONGTYPE {SECRET}"), SinkUnfit),
        (theirs.InvalidResponse(SECRET), SinkUnfit),
    ],
)
def test_error_of_the_store_is_one_of_ours_and_quotes_nothing(error: Exception, kind: type[SinkError]) -> None:
    found = translate(error, where="cache:6379", doing="write rows")

    assert type(found) is kind
    assert "cache:6379" in found.message
    assert SECRET not in f"{found.message} {found.hint} {found.facts}"


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("redis://h/0", {"pasword": "x"}, "unknown option 'pasword'"),
        ("redis://a:1,b:2/0", {}, "several hosts, but options.sentinel is missing"),
        ("redis://h/0", {"ssl_ca_certs": "ca.pem"}, "option ssl_ca_certs needs TLS"),
        ("redis://h:port/0", {}, "invalid address .h:port."),
    ],
)
def test_option_or_address_that_cannot_be_meant_is_refused(url: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        Store(url, {name: Secret(value) for name, value in options.items()})

    assert refused.value.hint


def test_secrets_of_a_store_are_in_no_repr() -> None:
    store = Store("redis://localhost:1/0", {"password": Secret(SECRET)})

    assert SECRET not in f"{store!r} {vars(store)!r}"
    store.close()
