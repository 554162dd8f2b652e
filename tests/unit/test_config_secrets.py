"""Secrets come from files and the environment, reach the drivers, and are never printed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.errors import ConfigError

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

    assert conninfo_to_dict(parse(text, {}).source.dsn.reveal())["password"] == "hunter2"
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
