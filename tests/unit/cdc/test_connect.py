"""Connection strings: defaults are filled in, the user's own settings are kept, and errors contain no secrets."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.config.secret import Secret
from cdc.errors import ConfigError
from cdc.replication.connect import conninfo


@pytest.mark.parametrize(
    "dsn", ["postgresql://cdc:pw@db:5433/shop", "host=db port=5433 user=cdc password=pw dbname=shop"]
)
def test_both_forms_get_the_same_defaults(dsn: str) -> None:
    found = conninfo_to_dict(conninfo(Secret(dsn), application_name="cdc shop"))

    assert (found["host"], found["port"]) == ("db", "5433")
    assert found["password"] == "pw"
    assert found["application_name"] == "cdc shop"
    assert found["tcp_user_timeout"] == "20000"
    assert found["keepalives_idle"] == "10"
    assert found["client_encoding"] == "UTF8"
    assert "replication" not in found


def test_what_the_dsn_says_wins_but_for_the_encoding() -> None:
    dsn = Secret("host=db connect_timeout=3 keepalives_idle=60 application_name=mine client_encoding=LATIN1")

    found = conninfo_to_dict(conninfo(dsn))

    assert (found["connect_timeout"], found["keepalives_idle"], found["application_name"]) == ("3", "60", "mine")
    assert found["client_encoding"] == "UTF8"


def test_replication_is_ours_to_ask_for() -> None:
    dsn = Secret("host=db replication=true")

    assert conninfo_to_dict(conninfo(dsn, replication=True))["replication"] == "database"
    assert "replication" not in conninfo_to_dict(conninfo(dsn))


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        "s3cret",
        "password=a s3cret=b",
        "postgresql://u:s3c@ret@h/db",
        "postgresql://u:s3c/ret@h/db",
        "postgresql://u:12/s3cret@h/db",
        "postgresql://u:s3c%zzret@h/db",
        "postgresql://u:s3cret@h/db?s3cret=1",
        "host=db port=s3cret",
    ],
)
def test_malformed_dsn_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(ConfigError) as caught:
        conninfo(Secret(dsn))

    assert "s3c" not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_mistyped_option_is_suggested() -> None:
    with pytest.raises(ConfigError, match=r"did you mean sslmode\?"):
        conninfo(Secret("postgresql://u@h/db?sslmod=require"))
