"""The doctor warns about unencrypted connections and unverified servers, except on loopback."""

from __future__ import annotations

import pytest

from cdc.config.load import parse
from cdc.doctor.finding import Finding, Level
from cdc.doctor.transport_checks import check_transport, is_local

_LOCAL = "postgresql://cdc@localhost/shop"
_TLS = '[kafka.options]\n"security.protocol" = "SASL_SSL"\n'


def found(
    dsn: str = _LOCAL, bootstrap: str = "localhost:9092", more: str = "", environ: dict[str, str] | None = None
) -> list[Finding]:
    text = f'name = "shop"\n[source]\ndsn = "{dsn}"\n[kafka]\nbootstrap = "{bootstrap}"\n{more}\n'
    return check_transport(parse(text, {}), environ or {})


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        "127.8.9.1",
        "::1",
        "[::1]",
        "/run/postgresql",
        "@socket",
        "db.localhost",
    ],
)
def test_loopback_and_sockets_are_local(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["db", "db.shop.example", "10.0.0.1", "localhost.example", "0.0.0.0", "::2", "127x"])
def test_every_other_host_is_not(host: str) -> None:
    assert not is_local(host)


def test_everything_on_this_machine_is_silent() -> None:
    more = '[sinks.find]\nkind = "search"\nurl = "http://localhost:9200"\noptions = {username = "u", password = "p"}\n'
    more += '[sinks.kv]\nkind = "cache"\nurl = "redis://127.0.0.1:6379/0"\noptions = {password = "p"}\n'
    more += (
        '[sinks.lake]\nkind = "warehouse"\npath = "s3://b/l"\nstorage = {AWS_ENDPOINT_URL = "http://127.0.0.1:9000"}\n'
    )

    assert found(more=more) == []


@pytest.mark.parametrize(
    ("dsn", "environ", "words"),
    [
        ("postgresql://cdc@db/shop", {}, "sslmode is prefer for db"),
        ("postgresql://cdc@db/shop?sslmode=disable", {}, "unencrypted"),
        ("postgresql://cdc@db/shop?sslmode=require", {}, "not verified"),
        ("postgresql://cdc@db/shop?sslmode=verify-ca", {}, "another host"),
        ("host=localhost,db dbname=shop", {}, "for db"),
        ("dbname=shop", {"PGHOST": "db"}, "for db"),
        ("postgresql://cdc@db/shop", {"PGSSLMODE": "require"}, "sslmode is require"),
    ],
)
def test_sslmode_below_verify_full_off_loopback_is_a_warning(dsn: str, environ: dict[str, str], words: str) -> None:
    (finding,) = found(dsn, environ=environ)

    assert (finding.check, finding.level) == ("source_tls", Level.WARNING)
    assert words in finding.message
    assert "verify-full" in finding.command


@pytest.mark.parametrize(
    ("dsn", "environ"),
    [
        ("postgresql://cdc@db/shop?sslmode=verify-full", {}),
        ("postgresql://cdc@db/shop?sslrootcert=system", {}),
        ("postgresql://cdc@db/shop", {"PGSSLMODE": "verify-full"}),
        ("host=db hostaddr=127.0.0.1", {}),
        ("host=/run/postgresql dbname=shop", {}),
    ],
)
def test_verified_server_or_this_machine_is_silent(dsn: str, environ: dict[str, str]) -> None:
    assert found(dsn, environ=environ) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "PLAINTEXT"),
        ('"security.protocol" = "SASL_PLAINTEXT"', "credentials and rows travel unencrypted"),
        ('"security.protocol" = "sasl_plaintext"', "credentials and rows travel unencrypted"),
        ('"security.protocol" = "SSL"\n"enable.ssl.certificate.verification" = "false"', "not verified"),
        ('"security.protocol" = "SSL"\n"ssl.endpoint.identification.algorithm" = "none"', "not verified"),
    ],
)
def test_kafka_without_tls_off_loopback_is_a_warning(options: str, words: str) -> None:
    (finding,) = found(bootstrap="localhost:9092,kafka-1:9092", more=f"[kafka.options]\n{options}")

    assert (finding.check, finding.level) == ("kafka_tls", Level.WARNING)
    assert words in finding.message
    assert "kafka-1" in finding.message


def test_kafka_with_tls_is_silent() -> None:
    assert found(bootstrap="kafka-1:9093", more=_TLS) == []


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ('kind = "search"\nurl = "http://find:9200"\noptions = {username = "u", password = "p"}', "credentials and"),
        ('kind = "search"\nurl = "http://find:9200"', "rows travel"),
        ('kind = "search"\nurl = "https://find:9200"\noptions = {verify_certs = "false"}', "not verified"),
        ('kind = "cache"\nurl = "redis://kv:6379/0"\noptions = {password = "p"}', "credentials and"),
        ('kind = "warehouse"\npath = "s3://b/l"\nstorage = {aws_endpoint_url = "http://minio:9000"}', "store minio"),
    ],
)  # fmt: skip
def test_store_without_tls_off_loopback_is_a_warning_without_its_secrets(sink: str, words: str) -> None:
    (finding,) = found(more=f"[sinks.one]\n{sink}")

    assert (finding.check, finding.level) == ("sink_tls", Level.WARNING)
    assert words in finding.message


def test_object_store_of_the_environment_counts_where_the_lake_has_no_options() -> None:
    lake = '[sinks.lake]\nkind = "warehouse"\npath = "{}"\n'
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000"}

    assert [one.check for one in found(more=lake.format("s3://b/l"), environ=environ)] == ["sink_tls"]
    assert found(more=lake.format("/var/lib/lake"), environ=environ) == []


def test_registry_credentials_over_http_are_a_warning() -> None:
    avro = '[encode]\nformat = "avro"\n[registry]\nurl = "{}"\noptions = {{"basic.auth.user.info" = "u:p"}}'

    assert [one.check for one in found(more=avro.format("http://registry:8081"))] == ["registry_tls"]
    assert found(more=avro.format("https://registry:8081")) == []
    assert found(more=avro.format("http://localhost:8081")) == []
