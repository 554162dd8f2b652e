"""Event contracts in a real schema registry."""

from __future__ import annotations

import json
import socket
import ssl
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc.cli.main import run
from outbox.contract_registry import ContractRegistry, subject_of
from outbox.errors import ContractBroken, ContractInvalid, ContractsUnreachable
from outbox.event import Event
from outbox.event_contracts import ContractId, Contracts, file_name
from outbox.writer import Writer
from tests.fixtures.servers.registry_api import RegistryApi

if TYPE_CHECKING:
    from cdc.local.registry_server import Registry
    from tests.fixtures.faults.registrydoor import RegistryDoor

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "note": {"type": "string", "description": "größer"}},
}
OTHER = {**SCHEMA, "properties": {"id": {"type": "string"}}}


@pytest.fixture
def placed() -> ContractId:
    """Of an aggregate of its own: the registry serves all tests of the run."""
    return ContractId(f"order.{uuid.uuid4().hex}", "Placed/now", 1)


def into(folder: Path, of: ContractId, schema: object) -> None:
    path = folder / file_name(of)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema), encoding="utf-8")


def only(found: dict[ContractId, Any], like: ContractId) -> dict[ContractId, Any]:
    return {of: schema for of, schema in found.items() if of.aggregate_type == like.aggregate_type}


def test_contracts_are_read_as_they_were_released_last(registry: Registry, placed: ContractId) -> None:
    store, second = ContractRegistry(registry.url), placed._replace(version=2)
    RegistryApi(registry.url).level(subject_of(placed), "NONE")

    assert store.write({placed: SCHEMA, second: OTHER}) == [placed, second]
    assert store.write({placed: OTHER, second: OTHER}) == [placed]
    assert store.write({placed: OTHER, second: OTHER}) == []

    assert only(ContractRegistry(f"{registry.url}/").read(), placed) == {placed: OTHER, second: OTHER}
    assert RegistryApi(registry.url).versions(subject_of(placed)) == [1, 2]


def test_writer_is_held_to_contracts_of_a_registry(registry: Registry, placed: ContractId) -> None:
    store = ContractRegistry(registry.url)
    store.write({placed: SCHEMA})
    writer = Writer(contracts=Contracts(store.read()))
    event = Event(aggregate_type=placed.aggregate_type, aggregate_id="1", type=placed.type, payload='{"id": "secret"}')

    with pytest.raises(ContractBroken, match="/id") as caught:
        writer.write(_NoCursor(), event)

    assert "secret" not in str(caught.value)


class _NoCursor:
    def execute(self, operation: Any, parameters: Any, /) -> None:
        raise AssertionError


def test_subjects_of_others_are_no_contracts(registry: Registry, placed: ContractId, topic_prefix: str) -> None:
    api, avro = (
        RegistryApi(registry.url),
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}),
    )
    api.register(f"{topic_prefix}-value", avro)
    store = ContractRegistry(registry.url)
    store.write({placed: SCHEMA})

    assert only(store.read(), placed) == {placed: SCHEMA}

    foreign = subject_of(placed._replace(version=7))
    api.register(foreign, avro)
    try:
        with pytest.raises(ContractInvalid, match=r"v7 is of type AVRO"):
            store.read()
    finally:
        api.delete(foreign)


def test_change_that_the_registry_refuses_is_reported_with_its_reason(registry: Registry, placed: ContractId) -> None:
    store = ContractRegistry(registry.url)
    store.write({placed: SCHEMA})
    RegistryApi(registry.url).level(subject_of(placed), "BACKWARD")

    with pytest.raises(ContractInvalid, match="the schema registry refuses contract") as caught:
        store.write({placed: OTHER})

    assert "compatibility level" in caught.value.hint
    assert only(store.read(), placed) == {placed: SCHEMA}


def test_password_of_the_registry_works_and_is_never_shown(
    registry_door: RegistryDoor, placed: ContractId, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, password = registry_door.options()["basic.auth.user.info"].split(":")
    address = registry_door.url.removeprefix("https://")
    monkeypatch.setenv("SSL_CERT_FILE", str(registry_door.ca))
    store = ContractRegistry(f"https://{user}:{password}@{address}")

    assert store.write({placed: SCHEMA}) == [placed]
    with pytest.raises(ContractsUnreachable, match="access denied") as caught:
        ContractRegistry(f"https://{user}:wrong-{password}@{address}").read()
    assert password not in f"{caught.value} {caught.value.hint}"

    monkeypatch.setenv("SSL_CERT_FILE", str(registry_door.other_ca))
    with pytest.raises(ContractsUnreachable, match="CERTIFICATE_VERIFY_FAILED") as caught:
        store.read()
    assert password not in str(caught.value)
    assert ssl.get_default_verify_paths().cafile == str(registry_door.other_ca)


@pytest.mark.parametrize("place", ["ftp://registry", "registry:8081", "http://", "http://[half"])
def test_what_is_no_address_is_refused(place: str) -> None:
    with pytest.raises(ContractInvalid, match="HTTP"):
        ContractRegistry(place)


def test_unreachable_registry_and_wrong_address_have_clear_errors(registry: Registry) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        with pytest.raises(ContractsUnreachable, match="does not answer"):
            ContractRegistry(f"http://127.0.0.1:{held.getsockname()[1]}").read()
    with pytest.raises(ContractsUnreachable, match="HTTP status 404") as caught:
        ContractRegistry(f"{registry.url}/nowhere").read()
    assert "path" in caught.value.hint


def test_breaking_change_is_stopped_against_what_the_registry_has(
    registry: Registry, placed: ContractId, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "contracts"
    foreign, gone = placed._replace(aggregate_type=f"x{placed.aggregate_type}"), placed._replace(version=2)
    ContractRegistry(registry.url).write({foreign: SCHEMA})
    into(folder, placed, SCHEMA)
    where = ["--registry", registry.url]
    assert run(["contracts", "record", str(folder), *where]) == 0
    assert "wrote 1 of" in capsys.readouterr().out
    assert run(["contracts", "check", str(folder), *where]) == 0
    assert run(["contracts", "docs", str(folder), *where]) == 0
    assert "### Placed/now, version 1" in capsys.readouterr().out

    into(folder, placed, OTHER)

    assert run(["contracts", "check", str(folder), *where, "--json"]) == 1
    assert {one["path"] for one in json.loads(capsys.readouterr().out)["findings"]} == {"/id"}
    assert run(["contracts", "record", str(folder), *where]) == 1
    assert only(ContractRegistry(registry.url).read(), placed) == {placed: SCHEMA}

    into(folder, placed, SCHEMA)
    ContractRegistry(registry.url).write({gone: SCHEMA})
    assert run(["contracts", "check", str(folder), *where, "--json"]) == 1
    assert ".v2" in capsys.readouterr().out
