"""Settings that conflict with `encode.format` are rejected before anything starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.config.load import parse
from cdc.errors import ConfigError

_MINIMAL = """name = "shop"
[source]
dsn = "dbname=shop"
[kafka]
bootstrap = "h:9092"
"""


def test_format_is_debeziums_envelope_by_default() -> None:
    assert parse(_MINIMAL, {}).encode.format == "json"


@pytest.mark.parametrize("form", ["flat", "avro"])
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('[toast]\nmode = "omit"\n', 'needs complete rows, but toast.mode = "omit" leaves columns out'),
        (
            '[toast]\ntables = {"public.a" = "reselect", "public.docs_*" = "omit"}\n',
            'needs complete rows, but toast.tables."public.docs_*" = "omit" leaves columns out',
        ),
        ('[capture]\noversize = "omit"\n', 'needs complete rows, but capture.oversize = "omit" leaves columns out'),
        ('[sinks.lake]\nkind = "warehouse"\npath = "lake"\n', "sinks.lake needs Debezium's envelope in JSON"),
    ],
)
def test_what_a_format_cannot_say_is_refused_by_its_key(form: str, section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse(f'{_MINIMAL}[encode]\nformat = "{form}"\n[registry]\nurl = "http://h:8081"\n{section}', {})

    assert f'encode.format = "{form}"' in caught.value.message
    assert "encode.format" in caught.value.hint
    parse(f"{_MINIMAL}{section}", {})


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "needs a schema registry, but registry.url is not an http://"),
        ("h:8081", "registry.url is not an http:// or https:// address"),
        ("http://a:8081,ftp://b", "registry.url is not an http:// or https:// address"),
        ("http://ann:hunter2@h:8081", "registry.url contains a password"),
    ],
)
def test_avro_without_a_registry_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse(f'{_MINIMAL}[encode]\nformat = "avro"\n[registry]\nurl = "{url}"\n', {})

    assert "hunter2" not in str(vars(caught.value))


def test_options_of_the_registry_are_secrets_of_file_and_environment(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("ann:hunter2\n", encoding="utf-8")
    text = f"""{_MINIMAL}[encode]
format = "avro"
[registry]
url = "http://a:8081, https://b/apis/ccompat/v7"
[registry.options]
basic.auth.user.info_file = "{tmp_path / "user"}"
"""

    registry = parse(text, {"TAILRACE_REGISTRY_OPTION_SSL_CA_LOCATION": "/ca.pem"}).registry

    assert {name: value.reveal() for name, value in registry.options.items()} == {
        "basic.auth.user.info": "ann:hunter2",
        "ssl.ca.location": "/ca.pem",
    }
    assert "hunter2" not in repr(registry)


def test_address_of_the_registry_among_its_options_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"registry\.options\.url"):
        parse(f'{_MINIMAL}[registry.options]\nurl = "http://h"\n', {})
