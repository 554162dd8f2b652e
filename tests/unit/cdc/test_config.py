"""Reading cdc.toml and the environment: strict, and every error names the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc.config.load import load, parse
from cdc.config.settings import Config
from cdc.config.sink_kinds import lake_of
from cdc.errors import ConfigError

_MINIMAL = """
name = "shop"
[source]
dsn = "postgresql://cdc:hunter2@localhost:5432/shop"
[kafka]
bootstrap = "localhost:9092"
"""


def _config(more: str = "", environ: dict[str, str] | None = None, *, minimal: str = _MINIMAL) -> Config:
    return parse(minimal + more, environ or {})


def _replaced(old: str, new: str) -> str:
    assert old in _MINIMAL
    return _MINIMAL.replace(old, new)


_SINKS = """
[sinks.one]
kind = "cache"
url = "redis://one"
{one}
[sinks.two]
kind = "cache"
url = "redis://two"
mode = "value"
"""


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (
            '[outbox]\nprune = "delte"\n',
            "outbox.prune: unknown value 'delte'",
            "expected one of off, delete, drop; did you mean delete?",
        ),
        ('[encode]\nformat = "xml"\n', "encode.format: unknown value 'xml'", "expected one of json, flat, avro"),
        (_SINKS.format(one='mode = "hsh"'), "sinks.one.mode: unknown value 'hsh'", "did you mean hash?"),
        (_SINKS.format(one='modus = "hash"'), "unknown key sinks.one.modus", "did you mean mode?"),
        ('[notify.ops]\nkind = "slak"\n', "notify.ops.kind: unknown value 'slak'", "did you mean slack?"),
        (_SINKS.format(one='parallel = "4"'), "sinks.one.parallel: Expected `int`", ""),
    ],
)
def test_wrong_value_is_named_with_its_sink_and_what_is_accepted(more: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _config(more)

    assert message in refused.value.message
    assert hint in refused.value.hint


def test_everything_else_has_a_default() -> None:
    config = _config()

    assert (config.slot, config.publication, config.transactional_id) == ("cdc_shop", "cdc_shop", "shop.capture")
    assert config.source.tables == ("public.*",)
    assert config.source.on_truncate == "delete"
    assert (config.kafka.partitions, config.kafka.replication_factor) == (4, 3)
    assert config.http.listen == "127.0.0.1:8087"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_MINIMAL + "[captur]\nx = 1\n", "unknown key captur"),
        (_MINIMAL + "[capture]\nbatch_row_max = 1\n", "unknown key capture.batch_row_max"),
        ("typo = 1\n" + _MINIMAL, "unknown key typo"),
        (_MINIMAL.replace('name = "shop"', ""), "name is missing"),
        (_MINIMAL.replace('bootstrap = "localhost:9092"', ""), "kafka.bootstrap is missing"),
        (_replaced('"shop"\n[source]', '"Shop"\n[source]'), "name: "),
        (_replaced('"shop"\n[source]', '"1shop"\n[source]'), "name: "),
        (_replaced('"shop"\n[source]', f'"{"s" * 41}"\n[source]'), "name: "),
        (_replaced('"postgresql://cdc:hunter2@localhost:5432/shop"', "5"), "source.dsn: "),
        (_MINIMAL + "partitions = 0\n", "kafka.partitions: "),
        (_MINIMAL + 'partitions = "4"\n', "kafka.partitions: "),
        (_MINIMAL + "[capture]\ncatalog_check_s = 11\n", "capture.catalog_check_s: "),
        (_MINIMAL + "[capture]\nrow_bytes_max = 10\n", "capture.row_bytes_max: "),
        (_MINIMAL + '[encode]\nnumeric = "float"\n', "encode.numeric: "),
        (_MINIMAL + "[http]\nlisten = 8087\n", "http.listen: "),
        (_MINIMAL + '[http]\nlisten = "8087"\n', "http.listen is '8087'"),
        (_MINIMAL + '[http]\nlisten = "localhost:99999"\n', "http.listen is 'localhost:99999'"),
        (_MINIMAL + "[kafka.options]\nsasl = [1]\n", "kafka.options.sasl must be"),
        (_MINIMAL + 'options = "x"\n', "kafka.options: "),
        ('name = "shop"\nsource = "x"\n', "source: "),
    ],
)
def test_refusal_names_the_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse(text, {})

    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (_MINIMAL + "[captur]\nx = 1\n", "did you mean capture?"),
        (_MINIMAL + "[capture]\nbatch_row_max = 1\n", "did you mean batch_rows_max?"),
        (_MINIMAL + "[http]\nport = 8087\n", "http has listen, ready_needs_sinks, token, token_file, hosts, "),
        ("quux = 8087\n" + _MINIMAL, "the file has name, source, kafka, "),
    ],
)
def test_hint_names_the_keys_there_are(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, {})

    assert (caught.value.hint or "").startswith(hint)


def test_invalid_toml_is_refused_with_its_position() -> None:
    with pytest.raises(ConfigError, match=r"cdc\.toml is not valid TOML: .*line 1"):
        parse("name = = 1", {})


def test_file_that_is_not_there_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cdc\.toml not found") as caught:
        load(tmp_path / "cdc.toml", {})

    assert caught.value.command.startswith("cdc init")


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cdc.toml").write_bytes(b'name = "\xff"')

    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "cdc.toml", {})
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path, {})


@pytest.mark.parametrize("slot", ["Shop", "a-b", "s" * 64, "é"])
def test_slot_name_postgresql_would_refuse_is_refused(slot: str) -> None:
    with pytest.raises(ConfigError, match=r"source\.slot is"):
        parse(_replaced("[source]\n", f'[source]\nslot = "{slot}"\n'), {})


def test_publication_may_have_any_name_of_up_to_63_bytes() -> None:
    assert _config(minimal=_replaced("[source]\n", '[source]\npublication = "Shop Ö"\n')).publication == "Shop Ö"
    with pytest.raises(ConfigError, match=r"source\.publication is"):
        parse(_replaced("[source]\n", f'[source]\npublication = "{"é" * 32}"\n'), {})


@pytest.mark.parametrize(("pattern", "advice"), [("orders", "public.orders"), ("!audit_*", "!public.audit_*")])
def test_pattern_without_a_schema_is_refused_with_the_right_spelling(pattern: str, advice: str) -> None:
    for key in ("tables", "keyless"):
        with pytest.raises(ConfigError, match=re.escape(repr(pattern))) as caught:
            parse(_replaced("[source]\n", f'[source]\n{key} = ["{pattern}"]\n'), {})
        assert caught.value.hint == f"write {advice}"


def test_environment_overrides_the_file_value_by_value() -> None:
    environ = {
        "TAILRACE_NAME": "other",
        "TAILRACE_SOURCE_TABLES": "a.*, !a.b ,",
        "TAILRACE_SOURCE_CREATE": "False",
        "TAILRACE_KAFKA_PARTITIONS": "8",
        "TAILRACE_CAPTURE_BATCH_AGE_MAX_S": "2.5",
        "TAILRACE_SOURCE_DSN": "host=elsewhere",
        "TAILRACE_HTTP_LISTEN": "",
        "UNRELATED": "x",
    }

    config = _config("[capture]\nbatch_age_max_s = 0.5\n", environ)

    assert config.name == "other"
    assert config.source.tables == ("a.*", "!a.b")
    assert config.source.create is False
    assert config.source.dsn.reveal() == "host=elsewhere"
    assert (config.kafka.partitions, config.capture.batch_age_max_s, config.http.listen) == (8, 2.5, "")


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("TAILRACE_KAFKA_PARTITIONS", "many", "kafka.partitions"),
        ("TAILRACE_KAFKA_PARTITIONS", "0", "kafka.partitions"),
        ("TAILRACE_SOURCE_CREATE", "perhaps", "source.create"),
        ("TAILRACE_CAPTURE_OVERSIZE", "shrink", "capture.oversize"),
    ],
)
def test_environment_is_as_strict_as_the_file(variable: str, value: str, key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)):
        _config("", {variable: value})


@pytest.mark.parametrize("text", ['name = "shop"\nsource = "x"\n', 'name = "shop"\nkafka = 1\n'])
def test_section_that_is_no_table_is_refused_also_with_an_environment(text: str) -> None:
    environ = {"TAILRACE_SOURCE_SLOT": "a", "TAILRACE_KAFKA_OPTION_SASL_USERNAME": "a"}

    with pytest.raises(ConfigError, match=r"(source|kafka) must be a table"):
        parse(text, environ)


def test_sinks_are_tables_by_name() -> None:
    config = _config('[sinks.lake]\nkind = "warehouse"\npath = "lake/"\nhistory = ["public.orders"]\n')

    lake = lake_of(config, "lake")
    assert lake.path == "lake/"
    assert lake.tables == ("*.*",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[sinks.lake]\npath = "lake/"\n', "sinks"),
        ('[sinks.lake]\nkind = "warehouse"\n', "path"),
        ('[sinks.lake]\nkind = "warehouse"\npath = "x"\nroof = 1\n', "roof"),
        ('[sinks.lake]\nkind = "puddle"\npath = "x"\n', "puddle"),
        ('[sinks.My-Lake]\nkind = "warehouse"\npath = "x"\n', "My-Lake"),
        ('[sinks.lake]\nkind = "warehouse"\npath = "x"\nmemory = "much"\n', "memory"),
    ],
)
def test_refusal_of_a_sink_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _config(text)

    assert message in caught.value.message


@pytest.mark.parametrize("section", ["toast", "ddl"])
@pytest.mark.parametrize("pattern", ["docs", "!public.docs", ""])
def test_pattern_of_an_override_that_can_fit_nothing_is_refused_with_its_key(section: str, pattern: str) -> None:
    word = "omit" if section == "toast" else "stop"

    with pytest.raises(ConfigError) as caught:
        _config(f'[{section}]\ntables = {{"{pattern}" = "{word}"}}\n')

    assert f"{section}.tables" in caught.value.message
    assert repr(pattern) in caught.value.message


@pytest.mark.parametrize(("section", "word"), [("toast", "stop"), ("ddl", "omit"), ("ddl", "resnap")])
def test_word_an_override_does_not_know_is_refused_with_its_key(section: str, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"{section}\.tables.*{word}"):
        _config(f'[{section}]\ntables = {{"public.t" = "{word}"}}\n')


def test_slot_is_dropped_only_with_a_size_at_which() -> None:
    drop = _replaced("[kafka]", 'on_wal_pressure = "drop_slot"\n[kafka]')

    with pytest.raises(ConfigError, match=r"source\.wal_drop_bytes is not set"):
        _config(minimal=drop)
    with_size = drop.replace("[kafka]", "wal_drop_bytes = 1000000000\n[kafka]")
    assert _config(minimal=with_size).source.wal_drop_bytes == 1_000_000_000
