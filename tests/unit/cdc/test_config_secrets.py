"""Secrets come from files and the environment, reach the drivers, and are never printed."""

from __future__ import annotations

from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.artifacts.machine import Machine
from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.config.section import Section, section_of
from cdc.config.settings import Config, Kafka, Registry, Sink
from cdc.config.sink_environment import sink_environment
from cdc.config.sink_kinds import applied_of, lake_of
from cdc.errors import ConfigError
from cdc.replication.connect import conninfo
from sinks.warehouse.lake.location import Location
from sinks.warehouse.start import _options

_MINIMAL = """
name = "shop"
[source]
dsn = "postgresql://cdc@localhost:5432/shop?sslmode=require"
{source}
[kafka]
bootstrap = "localhost:9092"
[kafka.options]
{options}
"""


def _text(*, source: str = "", options: str = "") -> str:
    return _MINIMAL.format(source=source, options=options)


def test_no_secret_is_in_any_repr_of_the_configuration() -> None:
    text = _text(options='sasl.password = "hunter2"').replace("cdc@", "cdc:hunter2@")

    config = parse(text, {"TAILRACE_SOURCE_PASSWORD": "hunter3"})

    for shown in (repr(config), str(config), f"{config.source.dsn}", f"{config.kafka.options}", f"{config.source!r}"):
        assert "hunter" not in shown
    with pytest.raises(TypeError):
        msgspec.json.encode(config)


def test_password_of_the_environment_goes_into_the_dsn_whatever_it_contains() -> None:
    for password in ("plain", "a b'c\\d", "p@ss:/?#%", "é𝄞"):
        config = parse(_text(), {"TAILRACE_SOURCE_PASSWORD": password})

        found = conninfo_to_dict(config.source.dsn.reveal())
        assert found["password"] == password
        assert (found["user"], found["host"], found["sslmode"]) == ("cdc", "localhost", "require")


def test_password_file_gives_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\nsecond line\n")
    text = _text(source=f'password_file = "{tmp_path}/password"')

    assert conninfo_to_dict(conninfo(parse(text, {}).source.dsn))["password"] == "hunter2"
    both = parse(text, {"TAILRACE_SOURCE_PASSWORD": "environment"})
    assert conninfo_to_dict(both.source.dsn.reveal())["password"] == "environment"


def test_empty_password_file_leaves_the_dsn_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("")

    config = parse(_text(source=f'password_file = "{tmp_path}/password"'), {})

    assert "password" not in conninfo_to_dict(config.source.dsn.reveal())


@pytest.mark.parametrize("content", [None, b"hunter2\xff"])
def test_secret_file_that_cannot_be_read_is_refused_by_its_key(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)

    for text, key in [
        (_text(source=f'password_file = "{path}"'), "source.password_file"),
        (_text(options=f'sasl.password_file = "{path}"'), "kafka.options.sasl.password_file"),
    ]:
        with pytest.raises(ConfigError, match=key) as caught:
            parse(text, {})
        assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


def test_dsn_that_libpq_does_not_understand_is_refused_without_showing_it() -> None:
    text = _text().replace("postgresql://cdc@localhost:5432/shop?sslmode=require", "hunter2 hunter3")

    with pytest.raises(ConfigError, match="libpq") as caught:
        parse(text, {"TAILRACE_SOURCE_PASSWORD": "hunter4"})

    assert "hunter" not in f"{caught.value} {caught.value.__cause__} {caught.value.facts}"


def test_options_may_be_dotted_quoted_or_nested() -> None:
    config = parse(_text(options='security.protocol = "SASL_SSL"\n"client.id" = "x"\nsasl.username = "u"'), {})

    found = {name: value.reveal() for name, value in config.kafka.options.items()}
    assert found == {"security.protocol": "SASL_SSL", "client.id": "x", "sasl.username": "u"}


def test_options_take_numbers_and_booleans_as_librdkafka_spells_them() -> None:
    config = parse(_text(options="linger.ms = 20\nsocket.keepalive.enable = true\nretry.backoff.ms = 1.5"), {})

    found = {name: value.reveal() for name, value in config.kafka.options.items()}
    assert found == {"linger.ms": "20", "socket.keepalive.enable": "true", "retry.backoff.ms": "1.5"}


def test_option_file_and_option_environment_give_the_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    environ = {"TAILRACE_KAFKA_OPTION_SECURITY_PROTOCOL": "SASL_SSL", "TAILRACE_KAFKA_OPTION_SASL_USERNAME": "u"}

    config = parse(_text(options=f'sasl.password_file = "{tmp_path}/password"\nsasl.username = "file"'), environ)

    found = {name: value.reveal() for name, value in config.kafka.options.items()}
    assert found == {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "hunter2"}


def test_options_of_a_sinks_store_come_from_files_and_the_environment_too(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    sink = '[sinks.c]\nkind = "cache"\nurl = "redis://localhost/0"\n'
    file = f'{sink}[sinks.c.options]\nusername = "u"\npassword_file = "{tmp_path}/password"\n'

    of_file = parse(_text() + file, {})
    of_environment = parse(_text() + sink, {"TAILRACE_SINK_C_OPTION_SENTINEL_PASSWORD": "hunter3"})

    found = [
        {name: secret.reveal() for name, secret in config.sinks["c"].options.items()}  # type: ignore[union-attr]
        for config in (of_file, of_environment)
    ]
    assert found == [{"username": "u", "password": "hunter2"}, {"sentinel_password": "hunter3"}]
    assert "hunter" not in f"{of_file!r} {of_environment!r}"


def test_secrets_of_a_lake_are_masked_and_come_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    text = _text() + (
        '[sinks.lake]\nkind = "warehouse"\npath = "s3://bucket/lake"\n'
        f'[sinks.lake.storage]\naws_access_key_id = "hunter1"\nAWS_SECRET_ACCESS_KEY_FILE = "{tmp_path}/secret"\n'
        'AWS_SESSION_TOKEN = "of the file"\n'
        'aws_web_identity_token_file = "/var/run/token"\n'
        f'[sinks.lake.spark]\n"kafka.ssl.truststore.password_file" = "{tmp_path}/secret"\nspark.ssl.enabled = true\n'
    )

    config = parse(text, {"TAILRACE_SINK_LAKE_STORAGE_AWS_SESSION_TOKEN": "hunter3"})

    lake = lake_of(config, "lake")
    assert {name: value.reveal() for name, value in lake.storage.items()} == {
        "aws_access_key_id": "hunter1",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "aws_session_token": "hunter3",
        "aws_web_identity_token_file": "/var/run/token",
    }
    assert {name: value.reveal() for name, value in lake.spark.items()} == {
        "kafka.ssl.truststore.password": "hunter2",
        "spark.ssl.enabled": "true",
    }
    shown = (config, lake, f"{lake.spark} {lake.storage}", _options(lake, Machine.here()), Location.configured(lake))
    assert "hunter" not in " ".join(map(repr, shown))
    with pytest.raises(TypeError):
        msgspec.json.encode(lake)


def test_address_of_a_store_comes_from_the_environment_where_the_file_has_none() -> None:
    environ = {"TAILRACE_SEARCH_URL": "http://found:9200", "TAILRACE_CACHE_URL": "redis://found:6379"}
    own = '[sinks.own]\nkind = "search"\nurl = "http://own:9200"\n'

    config = parse(f'{_text()}[sinks.s]\nkind = "search"\n[sinks.c]\nkind = "cache"\n{own}', environ)

    assert {name: applied_of(config, name).url for name in config.sinks} == {  # type: ignore[attr-defined]
        "s": "http://found:9200",
        "c": "redis://found:6379",
        "own": "http://own:9200",
    }
    with pytest.raises(ConfigError, match="url is missing"):
        parse(f'{_text()}[sinks.s]\nkind = "search"\n', {})


def test_missing_secret_file_of_a_lake_is_named_by_its_key(tmp_path: Path) -> None:
    for key in ("storage", "spark"):
        text = f'{_text()}[sinks.lake]\nkind = "warehouse"\npath = "s3://b/lake"\n[sinks.lake.{key}]\n'

        with pytest.raises(ConfigError, match=rf"sinks\.lake\.{key}\.password_file: No such file"):
            parse(f'{text}password_file = "{tmp_path}/none"\n', {})


def test_every_setting_that_may_hold_a_secret_is_one() -> None:
    """Free-form string tables that are passed to a client are Secrets; others name tables, columns and patterns."""
    plain = {"event_time", "fields", "index", "keys", "tables", "types"}
    sections: list[type[Section]] = [Kafka, Registry, *get_args(Sink)]

    for section in sections:
        for name, hint in get_type_hints(section).items():
            if get_origin(hint) is dict and name not in plain:
                assert get_args(hint)[1] is Secret, f"{section.__name__}.{name}"


@pytest.mark.parametrize("dsn", ["postgresql://cdc:hunter2@h:5432/shop", "host=h password='hunter2' dbname=shop"])
def test_process_of_a_sink_gets_its_own_secrets_and_no_other(dsn: str) -> None:
    environ = {
        "PATH": "/bin",
        "PGPASSWORD": "hunter2",
        "TAILRACE_NAME": "shop",
        "TAILRACE_CACHE": "/var/cache",
        "TAILRACE_CAPTURE_BATCH_ROWS_MAX": "100",
        "TAILRACE_SOURCE_DSN": dsn,
        "TAILRACE_SOURCE_PASSWORD": "hunter2",
        "TAILRACE_KAFKA_OPTION_SASL_PASSWORD": "of the broker",
        "TAILRACE_REGISTRY_OPTION_BASIC_AUTH_USER_INFO": "hunter2",
        "TAILRACE_MIGRATE_DSN": "hunter2",
        "TAILRACE_INBOX_DSN": "hunter2",
        "TAILRACE_SINK_LAKE_STORAGE_AWS_SECRET_ACCESS_KEY": "hunter2",
        "TAILRACE_SINK_FAST_OPTION_PASSWORD": "of the cache",
        "TAILRACE_SINK_FAST_TOO_OPTION_PASSWORD": "hunter2",
    }

    given = sink_environment("fast", environ)

    assert "hunter2" not in str(given)
    assert conninfo_to_dict(given["TAILRACE_SOURCE_DSN"])["host"] == "h"
    assert given["TAILRACE_KAFKA_OPTION_SASL_PASSWORD"] == "of the broker"
    assert given["TAILRACE_SINK_FAST_OPTION_PASSWORD"] == "of the cache"
    assert {"PATH", "TAILRACE_NAME", "TAILRACE_CACHE", "TAILRACE_CAPTURE_BATCH_ROWS_MAX"} <= given.keys()
    assert "hunter2" in str(sink_environment("lake", environ)["TAILRACE_SINK_LAKE_STORAGE_AWS_SECRET_ACCESS_KEY"])


def test_every_secret_of_the_environment_is_kept_from_sinks_or_needed_by_them() -> None:
    """A new section with a secret fails here until `sink_environment` handles it."""
    variables = set()
    for section, hint in get_type_hints(Config).items():
        for name, kind in get_type_hints(section_of(hint)).items() if section_of(hint) else ():
            if kind is Secret or kind == Secret | None:
                variables.add(f"TAILRACE_{section}_{name}".upper())
            elif Secret in get_args(kind):
                variables.add(f"TAILRACE_{section}_OPTION_X".upper())

    kept = sink_environment("lake", dict.fromkeys(variables, "password=hunter2"))

    assert variables > {"TAILRACE_SOURCE_DSN"}
    assert sorted(name for name, value in kept.items() if "hunter2" in value) == [
        "TAILRACE_HTTP_TOKEN",  # the sink's own HTTP surface checks it
        "TAILRACE_KAFKA_OPTION_X",
    ]


@pytest.mark.parametrize(
    "option", ["bootstrap.servers", "transactional.id", "enable.idempotence", "acks", "isolation.level"]
)
def test_option_that_exactly_once_depends_on_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        parse(_text(options=f'{option} = "x"'), {})
    with pytest.raises(ConfigError, match=option):
        parse(_text(), {f"TAILRACE_KAFKA_OPTION_{option.upper().replace('.', '_')}": "x"})


@pytest.mark.parametrize(
    ("dsn", "masked"),
    [
        ("postgresql://cdc:hunter2@h:5432/shop", "postgresql://cdc:***@h:5432/shop"),
        ("postgresql://cdc@h/shop", "postgresql://cdc@h/shop"),
        ("host=h password=hunter2 dbname=shop", "host=h password=*** dbname=shop"),
        (r"host=h password='hun \'ter2' dbname=shop", "host=h password=*** dbname=shop"),
        ("host=h PASSWORD = hunter2", "host=h PASSWORD = ***"),
        ("host=h sslpassword=hunter2", "host=h sslpassword=***"),
        ("host=h oauth_client_secret=hunter2", "host=h oauth_client_secret=***"),
        ("host=h scram_client_key=hunter2 user=u", "host=h scram_client_key=*** user=u"),
        ("host=h scram_server_key='hun ter2'", "host=h scram_server_key=***"),
        (r"host=h password=hun\ ter2 user=u", "host=h password=*** user=u"),
        ("postgresql://cdc:hun ter2@h/shop", "postgresql://cdc:***@h/shop"),
        ("postgresql://h/shop?user=u&password=hunter2", "postgresql://h/shop?user=u&password=***"),
        ("postgresql://cdc:hunt/er2@h/shop", "postgresql://cdc:***@h/shop"),
        ("postgresql://cdc:hun@ter2@h/shop", "postgresql://cdc:***@h/shop"),
    ],
)
def test_masked_dsn_names_the_server_and_no_password(dsn: str, masked: str) -> None:
    assert Secret(dsn).masked() == masked


def test_secret_is_masked_in_every_way_of_printing_it() -> None:
    secret = Secret("hunter2")

    for shown in (f"{secret} {secret!r} {[secret]} {(secret,)}", str(secret), f"{secret} {secret!r}"):
        assert "hunter2" not in shown
    assert (secret == Secret("hunter2"), secret == "hunter2", len({secret, Secret("hunter2")})) == (True, False, 1)
    assert secret.reveal() == "hunter2"
