"""Which schema and tables commands use: those of the configuration, unless an option names others."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import Command, Context

from cdc.cli.command_options import outbox_names
from cdc.errors import ConfigError
from outbox.table_names import Names

MINIMAL = (
    'name = "shop"\n[source]\ndsn = "postgresql://db/shop"\ntables = ["public.t"]\n[kafka]\nbootstrap = "localhost:1"\n'
)


@pytest.mark.parametrize(
    ("section", "schema", "wanted"),
    [
        ("", None, Names()),
        ("[outbox]\n", None, Names()),
        ('[outbox]\ntable = "app.events"\n', None, Names(schema="app", outbox="events")),
        ('[outbox]\ntable = "app.events"\n', "app", Names(schema="app", outbox="events")),
        ('[outbox]\ntable = "app.events"\n', "other", Names(schema="other")),
        ("", "other", Names(schema="other")),
    ],
)
def test_tables_are_where_the_outbox_is_unless_a_schema_is_given(
    tmp_path: Path, section: str, schema: str | None, wanted: Names
) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text(MINIMAL + section)

    assert outbox_names(schema, path) == wanted


def test_without_a_configuration_the_tables_have_the_names_they_are_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Context(Command("cdc")):
        assert outbox_names(None, None) == Names()


def test_table_whose_name_is_that_of_another_table_of_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text(MINIMAL + '[outbox]\ntable = "app.inbox"\n')

    with pytest.raises(ConfigError, match="same name"):
        outbox_names(None, path)
