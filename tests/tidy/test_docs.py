"""Checks the documents against the code: links, named tests, commands, configuration, and the formats they show."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import pytest

from cdc.cli.main import cli
from cdc.config.load import parse
from cdc.encode.envelope import stamp
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import table_schema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.values import EncodeOptions
from cdc.lsn import Lsn
from cdc.model.audit_record import AuditRecord
from cdc.model.change_records import BatchStats, StreamPosition, TopicBuffer
from cdc.model.progress_record import Cut, Identity, Progress, SchemaRecord
from cdc.model.relation import Column, Relation, ReplicaIdentity
from cdc.model.stop_record import StopRecord
from cdc.model.table_facts import AcceptedFindings, CatalogScope, TableRecord
from cdc.model.topic_names import data_topic
from cdc.telemetry.capture_status import SlotReading, Status
from cdc.telemetry.metrics import Metrics
from cdc.wire.pgoutput import Begin
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.sinks.plugin_package import install
from tests.tidy.tree import ROOT, files, shown, text_of

DOCUMENTS: Final = sorted(path for path in files() if path.suffix == ".md")
FORMATS: Final = ROOT / "docs" / "reference" / "formats.md"
_HELP: Final = ["-h", "--help"]  # click keeps the help option of the first context it sees
_RECORDS: Final[dict[str, type[Any]]] = {
    "progress": Progress,
    "identity": Identity,
    "cut": Cut,
    "schema": SchemaRecord,
    "catalog": CatalogScope,
    "table": TableRecord,
    "accepted": AcceptedFindings,
    "audit": AuditRecord,
    "stop": StopRecord,
}


def blocks(path: Path, language: str) -> list[str]:
    """Fenced blocks of a language; those inside lists are indented."""
    pattern = re.compile(rf"^( *)```{re.escape(language)}\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    return [
        "\n".join(line[len(indent) :] for line in body.splitlines()) for indent, body in pattern.findall(text_of(path))
    ]


@cache
def generated() -> dict[str, str]:
    """The pages as a fresh interpreter writes them: click remembers in a command how its first caller named --help."""
    folder = ROOT / "docs" / "reference"
    program = "import json, generate_cli; print(json.dumps(generate_cli.pages()))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", program], env=environ, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["cli.md", "types.md", "view-sql.md"])
def test_page_is_what_the_code_gives(name: str) -> None:
    """Run ``make docs`` when this fails."""
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == generated()[name]


def test_links_lead_to_files_that_are_there() -> None:
    broken = [
        f"{shown(path)}: {target}"
        for path in DOCUMENTS
        for target in re.findall(r"\]\(([^)#\s]+)", text_of(path))
        if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists()
    ]

    assert broken == []


def test_every_document_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".md" or not path.exists():
            continue
        seen.add(path)
        waiting += [(path.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s:]+)", text_of(path))]

    assert [shown(path) for path in DOCUMENTS if path.parts[len(ROOT.parts)] == "docs" and path not in seen] == []


def test_tests_that_are_named_exist() -> None:
    named = {
        (path, file, test)
        for path in DOCUMENTS
        for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text_of(path))
    }
    missing = [
        f"{shown(path)}: {file}::{test}"
        for path, file, test in sorted(named)
        if not (ROOT / file).exists() or (test and f"def {test}(" not in text_of(ROOT / file))
    ]

    assert len(named) > 5
    assert missing == []


def test_every_guarantee_names_a_test() -> None:
    rows = re.findall(r"^\| (G\d) .*$", text_of(ROOT / "docs" / "guarantees.md"), re.MULTILINE)
    lines = [line for line in text_of(ROOT / "docs" / "guarantees.md").splitlines() if line.startswith("| G")]

    assert len(rows) == len(lines) >= 7
    assert [line[:20] for line in lines if "::test_" not in line] == []


def _shell_lines() -> list[tuple[str, str]]:
    return [
        (shown(path), line.strip())
        for path in DOCUMENTS
        for block in blocks(path, "sh")
        for line in block.splitlines()
        if re.match(r"\s*cdc\b", line)
    ]


@pytest.mark.parametrize(("where", "line"), _shell_lines())
def test_commands_that_are_shown_are_taken(where: str, line: str) -> None:
    command: click.Command = cli
    context = click.Context(cli, info_name="cdc", help_option_names=_HELP)
    arguments = shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        found = command.get_command(context, arguments[0])
        assert found is not None, f"{where}: there is no command {line!r}"
        command, arguments = found, arguments[1:]
        context = click.Context(command, info_name=line, help_option_names=_HELP)

    command.make_parser(context).parse_args(arguments)


@pytest.mark.parametrize(
    ("where", "text"), [(shown(path), block) for path in DOCUMENTS for block in blocks(path, "toml")]
)
def test_configuration_that_is_shown_is_taken(
    where: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "tailrace-sqlite", {}, {"sqlite": "tailrace_sqlite:target"})  # of the guide for sinks
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    secret = tmp_path / "secret"
    secret.write_text("s", encoding="utf-8")
    text = re.sub(r'"/run/secrets/\w+"', json.dumps(str(secret)), text)
    given = tomllib.loads(text)
    if "pipelines" in given:
        for name in given["pipelines"]:
            parse(text, {}, where=where, pipeline=name)
        return
    environ = {"TAILRACE_NAME": "shop"} if "name" not in given else {}
    if "dsn" not in given.get("source", {}):
        environ["TAILRACE_SOURCE_DSN"] = "dbname=shop"
    if "bootstrap" not in given.get("kafka", {}):
        environ["TAILRACE_KAFKA_BOOTSTRAP"] = "localhost:9092"

    parse(text, environ, where=where)


@pytest.mark.parametrize("name", sorted(_RECORDS))
def test_record_that_is_shown_is_what_the_code_writes(name: str) -> None:
    (text,) = blocks(FORMATS, f"json {name}")

    record = msgspec.json.decode(text, type=_RECORDS[name], strict=True)

    assert msgspec.json.encode(record).decode() == text


def test_envelope_that_is_shown_is_what_the_code_writes() -> None:
    (text,) = blocks(FORMATS, "json envelope")
    shown_fields = json.loads(text)
    relation = Relation(
        1, "public", "customers", ReplicaIdentity.DEFAULT, (Column("id", 23, -1, True), Column("name", 25, -1, False))
    )
    buffer = TopicBuffer("shop.public.customers", 1)
    transcoder = Transcoder(
        table_schema(relation, ["id"], {}, EncodeOptions()), buffer, TranscodeOptions("shop", "shop", 1 << 20)
    )
    row = b"I" + (1).to_bytes(4, "big") + b"N" + (2).to_bytes(2, "big")
    row += b"".join(b"t" + len(value).to_bytes(4, "big") + value for value in (b"1", b"Ann"))
    source = shown_fields["source"]
    begin = Begin(Lsn(source["commit_lsn"]), source["ts_us"], source["txId"])

    transcoder.insert(b"w" + source["lsn"].to_bytes(8, "big") + bytes(16) + row, stamp(begin, 1), 1)

    key, value, _ = buffer.partitions[0][0]
    assert key == b'{"id":1}'
    assert value is not None
    assert re.sub(rb'"schema_id":"\w+"', b'"schema_id":"ae920cb4"', value).decode() == text


def test_every_field_of_a_record_is_explained() -> None:
    text = text_of(FORMATS)
    fields = {field for kind in (Progress, Cut) for field in kind.__struct_fields__} - {"version", "epoch"}

    assert sorted(field for field in fields if f"`{field}`" not in text) == []


def test_topic_names_are_made_as_shown() -> None:
    assert data_topic("shop", "public", "Order lines") == "shop.public.Order-20lines"
    assert "`public.Order-20lines`" in text_of(FORMATS)


def test_every_key_of_the_status_document_is_explained() -> None:
    status = Status("shop", ManualClock(), Metrics())
    status.slot_seen(SlotReading(0.0, Lsn(3), Lsn(2), Lsn(1), "reserved", 100, 2))
    status.published(BatchStats(0, 0, 0, 0), StreamPosition(Lsn(2)), 0.1)
    document = status.snapshot()
    keys = [*document, *(f"slot.{key}" for key in document["slot"])]
    text = text_of(ROOT / "docs" / "reference" / "http.md")

    assert [key for key in keys if f"`{key}`" not in text] == []
