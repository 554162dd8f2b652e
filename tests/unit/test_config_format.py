"""What `encode.format` goes together with, and what is refused before anything starts."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize("form", ["flat"])
@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('[toast]\nmode = "omit"\n', 'takes complete rows, and toast.mode = "omit" leaves columns out'),
        ('[capture]\noversize = "omit"\n', 'takes complete rows, and capture.oversize = "omit" leaves columns out'),
        ('[sinks.lake]\nkind = "warehouse"\npath = "lake"\n', "sinks.lake needs Debezium's envelope in JSON"),
    ],
)
def test_what_a_format_cannot_say_is_refused_by_its_key(form: str, section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse(f'{_MINIMAL}[encode]\nformat = "{form}"\n{section}', {})

    assert f'encode.format = "{form}"' in caught.value.message
    assert "encode.format" in caught.value.hint
    parse(f"{_MINIMAL}{section}", {})
