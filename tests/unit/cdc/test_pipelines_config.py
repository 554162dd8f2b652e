"""`[pipelines.*]`: how tables and variables are merged, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.cli import main
from cdc.command_text import command_of, document_of
from cdc.config.config_file import ConfigFile
from cdc.config.load import load, load_all
from cdc.config.settings import Config
from cdc.errors import ConfigError, TailraceError, UsageError

_SHARED = """
[kafka]
bootstrap = "shared:9092"
partitions = 6
options."client.rack" = "a"
[capture]
batch_age_max_s = 2.0
"""
_SHOP = '[pipelines.shop.source]\ndsn = "postgresql://db/shop"\n'
_CRM = '[pipelines.crm.source]\ndsn = "postgresql://db/crm"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cdc.toml"


def _all(file: Path, text: str, environ: dict[str, str] | None = None) -> dict[str, Config]:
    file.write_text(text)
    return load_all(file, environ or {})


def test_pipeline_overrides_the_shared_tables_key_by_key_and_is_named_by_its_table(file: Path) -> None:
    own = '[pipelines.crm.kafka]\npartitions = 2\noptions."client.id" = "mine"\n'
    found = _all(file, _SHARED + _SHOP + _CRM + own)

    assert list(found) == ["crm", "shop"]
    shop, crm = found["shop"], found["crm"]
    assert [(one.name, one.slot, one.kafka.bootstrap) for one in (shop, crm)] == [
        ("shop", "cdc_shop", "shared:9092"),
        ("crm", "cdc_crm", "shared:9092"),
    ]
    assert (shop.kafka.partitions, crm.kafka.partitions) == (6, 2)
    assert {key: one.reveal() for key, one in crm.kafka.options.items()} == {"client.rack": "a", "client.id": "mine"}
    assert set(shop.kafka.options) == {"client.rack"}
    assert crm.capture.batch_age_max_s == shop.capture.batch_age_max_s == 2.0


def test_file_without_pipelines_is_read_as_before(file: Path) -> None:
    assert _all(file, 'name = "a"\n[source]\ndsn = "postgresql://db/a"\n[kafka]\nbootstrap = "b:9092"\n') == {}
    assert load(file, {}).name == "a"
    with pytest.raises(UsageError, match="no pipeline 'a'") as caught:
        load(file, {}, "a")
    assert "omit --pipeline" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\n' + _SHARED + _SHOP, "name cannot be set at the top"),
        (_SHARED + '[source]\ndsn = "postgresql://db/x"\n' + _SHOP, r"source\.dsn cannot be set at the top"),
        (_SHARED + '[source]\nslot = "s"\n' + _SHOP, r"source\.slot cannot be set at the top"),
        (_SHARED + '[source]\npublication = "s"\n' + _SHOP, r"source\.publication cannot be set at the top"),
        (_SHARED + '[sinks.lake]\nkind = "warehouse"\npath = "/l"\n' + _SHOP, "sinks cannot be set at the top"),
        (_SHARED + _SHOP + '[pipelines.shop.http]\nlisten = ""\n', r"pipelines\.shop\.http cannot be set"),
        (_SHARED + '[pipelines.shop]\nname = "x"\n' + _SHOP, r"pipelines\.shop\.name cannot be set"),
        (_SHARED + _SHOP.replace("shop", "Shop"), "invalid pipeline name 'Shop'"),
        (_SHARED + "[pipelines]\n", r"\[pipelines\] is empty"),
        ("pipelines = 1\n" + _SHARED, "one table per pipeline"),
        (_SHARED + "[pipelines]\nshop = 1\n", "one table per pipeline"),
        (_SHARED + _SHOP + "[pipelines.shop.capture]\nbatch_rows = 1\n", r"unknown key capture\.batch_rows"),
        ("[kafak]\n" + _SHARED + _SHOP, "unknown key kafak"),
        (_SHARED + _SHOP.replace("dsn", "slot"), r"source\.dsn is missing"),
        (_SHARED + _SHOP + _CRM + "[pipelines.shop.pipelines.x]\n", "unknown key pipelines"),
        (_SHARED + _SHOP + _SHOP.replace("pipelines.shop", "pipelines.shop_source"), "not distinct in variables"),
    ],
)
def test_ambiguous_or_unknown_settings_are_refused_by_name(file: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _all(file, text)


_LAKE = '[pipelines.{}.sinks.lake]\nkind = "warehouse"\npath = "{}"\n'
_CACHE = '[pipelines.{}.sinks.fast]\nkind = "cache"\nurl = "redis://r/0"\n{}\n'


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (_SHOP + 'slot = "s"\n' + _CRM + 'slot = "s"\n', "same replication slot 's'"),
        (_SHOP + _SHOP.replace(".shop.", ".crm.") + 'slot = "cdc_shop"\n', "same replication slot 'cdc_shop'"),
        (
            _SHOP + 'publication = "p"\n' + _SHOP.replace(".shop.", ".crm.") + 'publication = "p"\n',
            "same publication 'p'",
        ),
        (_SHOP + _CRM + _LAKE.format("shop", "/l/a") + _LAKE.format("crm", "/l/b/../a/"), "same lake '/l/a'"),
        (_SHOP + _CRM + _LAKE.format("shop", "s3://b/a") + _LAKE.format("crm", "s3://b/a/"), "same lake 's3://b/a'"),
        (
            _SHOP
            + _CRM
            + _CACHE.format("shop", 'keys = {"public.t" = "t:{id}"}')
            + _CACHE.format("crm", 'keys = {"public.t" = "t:{id}"}'),
            "same key template 't:{id}'",
        ),
        (
            _SHOP
            + _CRM
            + _CACHE.format("shop", 'listen = "0.0.0.0:9000"')
            + _CACHE.format("crm", 'listen = "0.0.0.0:9000"'),
            "same address '0.0.0.0:9000'",
        ),
    ],
)
def test_two_pipelines_that_would_share_what_only_one_may_have_are_refused(file: Path, own: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _all(file, _SHARED + own)

    assert "pipelines.crm." in caught.value.hint
    assert "pipelines.shop." in caught.value.hint


@pytest.mark.parametrize(
    "own",
    [
        _SHOP + 'slot = "s"\n' + _CRM.replace("//db/", "//other/") + 'slot = "s"\n',
        _SHOP + 'slot = "s"\n' + _CRM.replace("//db/", "//db:6432/") + 'slot = "s"\n',
        _SHOP + 'publication = "p"\n' + _CRM + 'publication = "p"\n',
        _SHOP + 'publication = "p"\ncreate = false\n' + _SHOP.replace(".shop.", ".crm.") + 'publication = "p"\n',
        _SHOP + _CRM + _CACHE.format("shop", "") + _CACHE.format("crm", ""),
        _SHOP + _CRM + _LAKE.format("shop", "/l/shop") + _LAKE.format("crm", "/l/crm"),
    ],
)
def test_pipelines_that_only_look_alike_are_accepted(file: Path, own: str) -> None:
    assert list(_all(file, _SHARED + own)) == ["crm", "shop"]


def test_variable_of_a_pipeline_applies_to_it_alone_and_wins_over_one_for_all(file: Path) -> None:
    environ = {
        "TAILRACE_KAFKA_PARTITIONS": "3",
        "TAILRACE_PIPELINE_CRM_KAFKA_PARTITIONS": "5",
        "TAILRACE_SOURCE_PASSWORD": "all",
        "TAILRACE_PIPELINE_SHOP_SOURCE_PASSWORD": "mine",
        "TAILRACE_PIPELINE_SHOP_EU_SOURCE_PASSWORD": "european",
    }
    european = '[pipelines.shop_eu.source]\ndsn = "postgresql://db/eu"\n'
    found = _all(file, _SHARED + _SHOP + _CRM + european, environ)

    assert {name: one.kafka.partitions for name, one in found.items()} == {"crm": 5, "shop": 3, "shop_eu": 3}
    passwords = {name: one.source.dsn.reveal().rpartition("password=")[2] for name, one in found.items()}
    assert {name: text.split("'")[-1].split()[0] for name, text in passwords.items()} == {
        "crm": "all",
        "shop": "mine",
        "shop_eu": "european",
    }


def test_process_of_a_pipeline_does_not_get_the_variables_of_another_one(file: Path) -> None:
    file.write_text(_SHARED + _SHOP + _CRM)
    environ = {
        "PATH": "/bin",
        "TAILRACE_PIPELINE_SHOP_SOURCE_PASSWORD": "mine",
        "TAILRACE_PIPELINE_CRM_SOURCE_PASSWORD": "other",
    }

    chosen = ConfigFile(file, environ, "shop")

    assert chosen.environ == {"PATH": "/bin", "TAILRACE_SOURCE_PASSWORD": "mine"}
    assert ConfigFile(file, chosen.environ, "shop").environ == chosen.environ
    assert "mine" not in repr(chosen)


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("TAILRACE_SOURCE_DSN", "TAILRACE_PIPELINE_CRM_SOURCE_DSN"),
        ("TAILRACE_SOURCE_SLOT", "TAILRACE_PIPELINE_CRM_SOURCE_SLOT"),
        ("TAILRACE_NAME", "unset it"),
        ("TAILRACE_PIPELINE_CRM_NAME", "unset it"),
        ("TAILRACE_PIPELINE_CRM_HTTP_LISTEN", "set TAILRACE_HTTP_LISTEN"),
    ],
)
def test_variable_that_would_lead_several_pipelines_to_one_place_is_refused(
    file: Path, variable: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=variable) as caught:
        _all(file, _SHARED + _SHOP + _CRM, {variable: "postgresql://db/x"})

    assert hint in caught.value.hint


@pytest.mark.parametrize("command", ["why", "tail", "slot list", "snapshot list", "sink list", "config show", "reload"])
def test_no_command_acts_on_the_first_of_several_pipelines(
    file: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(_SHARED + _SHOP + _CRM)

    assert main.run([*command.split(), "-c", str(file)]) == 2

    err = capsys.readouterr().err
    assert "has several pipelines: crm, shop" in err
    assert f"try: cdc {command} --pipeline crm" in err


def test_only_pipeline_of_a_file_needs_no_choice(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(_SHARED + _SHOP)

    assert main.run(["config", "show", "name", "-c", str(file)]) == 0
    assert '"shop"' in capsys.readouterr().out


def test_mistyped_pipeline_is_named_with_the_nearest_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(_SHARED + _SHOP + _CRM)

    assert main.run(["why", "-c", str(file), "--pipeline", "shpo"]) == 2

    err = capsys.readouterr().err
    assert "no pipeline 'shpo'" in err
    assert "did you mean shop?" in err


def test_check_covers_every_pipeline_and_names_a_mistyped_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(_SHARED + _SHOP + _CRM)
    monkeypatch.setenv("TAILRACE_PIPELINE_CRN_SOURCE_PASSWORD", "x")

    assert main.run(["config", "check", "-c", str(file)]) == 0

    ran = capsys.readouterr()
    assert "pipeline crm of" in ran.out
    assert "pipeline shop of" in ran.out
    assert "TAILRACE_PIPELINE_CRN_SOURCE_PASSWORD matches no setting" in ran.err
    file.write_text(_SHARED + _SHOP + _CRM + 'slot = "S"\n')
    assert main.run(["config", "check", "-c", str(file)]) == 2
    assert "[pipelines.crm]: source.slot is 'S'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("cdc slot recreate --resnapshot", "cdc slot recreate --resnapshot --pipeline crm"),
        ("cdc tail | head", "cdc tail --pipeline crm | head"),
        ("cdc why && cdc doctor", "cdc why --pipeline crm && cdc doctor --pipeline crm"),
        ("cdc why --pipeline shop", "cdc why --pipeline shop"),
        ("cdc dev", "cdc dev"),
        ("cdc --version", "cdc --version"),
        ("cdc run --help", "cdc run --help"),
        ("select pg_drop_replication_slot('cdc ')", "select pg_drop_replication_slot('cdc ')"),
        ("", ""),
    ],
)
def test_suggested_command_names_the_pipeline(command: str, wanted: str) -> None:
    assert command_of("crm", command) == wanted
    assert command_of("", command) == command
    assert document_of("crm", {"a": [{"command": command, "hint": command}]}) == {
        "a": [{"command": wanted, "hint": command}]
    }


def test_error_suggests_a_command_for_the_chosen_pipeline(file: Path) -> None:
    file.write_text(_SHARED + _SHOP + _CRM)

    main.run(["config", "show", "-c", str(file), "--pipeline", "crm"])
    chosen = TailraceError("x", command="cdc why").command
    main.run(["config", "check", "-c", str(file)])

    assert (chosen, TailraceError("x", command="cdc why").command) == ("cdc why --pipeline crm", "cdc why")
