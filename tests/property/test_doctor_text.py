"""The DBA script and the cdc.toml of `cdc init` quote every name correctly."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.doctor.new_config import NewConfig, render
from cdc.doctor.script import script
from cdc.doctor.table_checks import check_tables
from cdc.doctor.toml_text import table_pattern, toml_string
from cdc.patterns import matches
from tests.fixtures.capture.source_builders import HOSTILE, config, facts, keyless_table, table

names = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))


@given(st.text(st.characters(codec="utf-8")))
def test_toml_string_reads_back(text: str) -> None:
    assert tomllib.loads(f"x = {toml_string(text)}") == {"x": text}


@given(names, names)
def test_pattern_of_a_table_selects_it_and_excludes_it(namespace: str, name: str) -> None:
    subject = table(name, namespace=namespace)
    wanted = tomllib.loads(f"x = [{table_pattern(subject)}]")["x"]
    excluded = tomllib.loads(f"x = [{table_pattern(subject, exclude=True)}]")["x"]

    assert matches(subject.table, wanted)
    assert not matches(subject.table, ["*.*", *excluded])


@given(names, names)
def test_written_config_reads_back_and_captures_exactly_the_tables_with_a_key(namespace: str, name: str) -> None:
    good, bad = table(name, namespace=namespace), keyless_table(name + "2", namespace=namespace)
    found = facts(good, bad)

    text = render(NewConfig("shop", Secret("postgresql://cdc@db/shop"), "k:9092", False, found))

    settings = parse(text, {})
    if namespace not in {"events", "views"}:
        assert matches(good.table, settings.source.tables)
        assert not matches(bad.table, settings.source.tables)
    assert settings.kafka.replication_factor == 3


@given(names, names)
def test_every_line_of_a_comment_is_a_comment(database: str, name: str) -> None:
    bad = keyless_table(name)
    found = facts(bad, database=database)
    text = script(config('create = false\npublication = "p"'), found, check_tables(found, config()))

    comment = text.split("-- Tables that need a decision", 1)[1].split("\n\n", 1)[0]

    # psql and the server end a comment at \n and \r.
    assert all(line.startswith("--") for line in comment.replace("\r", "\n").split("\n")[1:])
