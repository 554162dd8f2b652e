"""Event contracts: what the writer checks, what `cdc contracts` refuses, and the generated page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.cli.main import run
from outbox.contract_check import check
from outbox.contract_page import page
from outbox.errors import ContractBroken, ContractInvalid, ContractUnknown, EventMissing
from outbox.event import Event
from outbox.event_contracts import ContractId, Contracts, file_name, lock_text, read_folder, read_lock
from outbox.json_schema import strict
from outbox.upcast import Upcasters
from outbox.writer import Writer

PLACED = ContractId("order", "Placed", 1)
SCHEMA: dict[str, Any] = {
    "description": "An order was placed.",
    "type": "object",
    "required": ["id", "total"],
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": "string", "pattern": "^[0-9]+$", "description": "in cents"},
        "buyer": {"type": "object", "properties": {"mail": {"type": "string", "format": "email"}}},
    },
    "examples": [{"id": 1, "total": "250"}],
}


def contracts(**versions: Any) -> Contracts:
    return Contracts({PLACED._replace(version=int(name[1:])): schema for name, schema in versions.items()})


def placed(payload: Any, **fields: Any) -> Event:
    return Event(aggregate_type="order", aggregate_id="1", type="Placed", payload=json.dumps(payload), **fields)


class Cursor:
    def __init__(self) -> None:
        self.count = 0

    def execute(self, operation: Any, parameters: Any, /) -> None:
        self.count += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "contracts"
    write(made, PLACED, SCHEMA)
    return made


def write(folder: Path, of: ContractId, schema: object) -> None:
    path = folder / file_name(of)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema), encoding="utf-8")


@pytest.mark.parametrize(
    ("payload", "path", "rule"),
    [
        ({"id": 1}, "", "required"),
        ({"id": "secret", "total": "1"}, "/id", "type"),
        ({"id": 1, "total": "secret"}, "/total", "pattern"),
        ({"id": 1, "total": "1", "buyer": {"mail": "secret"}}, "/buyer/mail", "format"),
        ({"id": 1, "total": "1", "more": "secret"}, "", "additionalProperties"),
        ({"id": 1, "total": "1", "buyer": {"name": "secret"}}, "/buyer", "additionalProperties"),
        (["secret"], "", "type"),
    ],
)
def test_writer_refuses_a_payload_that_breaks_its_contract_by_its_path_and_without_values(
    payload: object, path: str, rule: str
) -> None:
    cursor = Cursor()

    with pytest.raises(ContractBroken) as caught:
        Writer(contracts=contracts(v1=SCHEMA)).write(cursor, placed(payload))

    assert (caught.value.path, caught.value.rule, cursor.count) == (path, rule, 0)
    assert "secret" not in f"{caught.value} {caught.value.hint} {caught.value.facts}"


def test_writer_takes_what_keeps_to_its_contract() -> None:
    cursor = Cursor()

    Writer(contracts=contracts(v1=SCHEMA)).write(cursor, placed({"id": 1, "total": "250", "buyer": {"mail": "a@b.c"}}))

    assert cursor.count == 1


def test_event_without_a_contract_is_refused_unless_that_is_wanted() -> None:
    strictly = contracts(v1=SCHEMA)
    leniently = Contracts(strictly.schemas, unknown_allowed=True)
    other = Event(aggregate_type="order", aggregate_id="1", type="Lost", payload="{}")

    with pytest.raises(ContractUnknown, match="its type has none"):
        strictly.check(other)
    with pytest.raises(ContractUnknown, match="versions 1"):
        leniently.check(placed({}, version=2))
    leniently.check(other)


def test_bytes_are_refused_where_the_contract_is_of_json_and_not_looked_into_elsewhere() -> None:
    with pytest.raises(ContractBroken, match="bytes"):
        contracts(v1=SCHEMA).check(Event(aggregate_type="order", aggregate_id="1", type="Placed", payload_bytes=b"x"))

    contracts(v1=SCHEMA).check(Event(aggregate_type="order", aggregate_id="1", type="Raw", payload_bytes=b"x"))


def test_every_name_has_a_file_of_its_own_in_the_folder(tmp_path: Path) -> None:
    ids = [ContractId(a, t, 1) for a in ("o/p", "..", "a b", "ä") for t in ("x", "../x", "x.v1", ".y")]
    for of in ids:
        write(tmp_path, of, {"title": str(of)})

    assert read_folder(tmp_path) == {of: {"title": str(of)} for of in ids}
    assert read_lock_of(tmp_path, lock_text(read_folder(tmp_path))) == read_folder(tmp_path)


def read_lock_of(folder: Path, text: str) -> object:
    (folder / "contracts.lock.json").write_text(text, encoding="utf-8")
    return read_lock(folder / "contracts.lock.json")


@pytest.mark.parametrize(
    ("place", "text", "told"),
    [
        ("order/Placed.json", "{}", "invalid contract file name"),
        ("Placed.v1.json", "{}", "invalid contract file name"),
        ("order/Placed.v01.json", "{}", "invalid contract file name"),
        ("order/Placed.v1.json", "{", "not JSON at line 1"),
        ("order/Placed.v1.json", "[]", "is not a valid JSON Schema"),
        ("order/Placed.v1.json", '{"type": "strin"}', "/type breaks"),
        ("order/Placed.v1.json", '{"$schema": "http://json-schema.org/draft-07/schema#"}', "another draft"),
        ("order/Placed.v1.json", '{"$ref": "https://example.com/x.json"}', "is not a valid JSON Schema"),
        ("order/Pl%61ced.v1.json", "{}", "expected order.Placed.v1.json"),
    ],
)
def test_file_that_is_no_contract_is_named(tmp_path: Path, place: str, text: str, told: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(text, encoding="utf-8")

    with pytest.raises(ContractInvalid, match=told):
        Contracts.load(tmp_path)


def test_objects_are_closed_for_writers_unless_they_are_composed_or_say_otherwise() -> None:
    schema = {
        "properties": {"a": {"properties": {}}, "b": {"properties": {}, "additionalProperties": True}},
        "allOf": [{"properties": {"c": True}}, {"$ref": "#/$defs/d"}],
        "$defs": {"d": {"properties": {"d": True}}, "e": {"properties": {"e": True}}},
    }

    made = strict(schema)

    assert isinstance(made, dict)
    assert "additionalProperties" not in made
    assert made["properties"]["a"]["additionalProperties"] is False
    assert made["properties"]["b"]["additionalProperties"] is True
    assert "additionalProperties" not in made["$defs"]["d"]
    assert made["$defs"]["e"]["additionalProperties"] is False
    assert schema["properties"]["a"] == {"properties": {}}  # type: ignore[index]


def test_what_is_recorded_may_neither_go_nor_break() -> None:
    narrower = {**SCHEMA, "required": ["id", "total", "buyer"], "examples": []}

    assert check(contracts(v1=SCHEMA), {PLACED: SCHEMA}) == []
    assert [one.what.split(":")[0] for one in check(contracts(), {PLACED: SCHEMA})] == ["is recorded but missing"]
    (found,) = check(contracts(v1=narrower), {PLACED: SCHEMA})
    assert (found.event, found.path) == ("order/Placed.v1", "/buyer")


def test_version_that_breaks_the_one_before_needs_an_upcaster() -> None:
    second = {**SCHEMA, "required": ["id", "cents"], "properties": {"id": {}, "cents": {"type": "integer"}}}
    second["examples"] = [{"id": 1, "cents": 250}]
    upcasters = Upcasters()

    assert check(contracts(v1=SCHEMA, v2=second), {}) != []

    @upcasters.step("order", "Placed", 1)
    def _(payload: Any) -> Any:
        return {"id": payload["id"], "cents": int(payload["total"])}

    assert check(contracts(v1=SCHEMA, v2=second), {}, upcasters=upcasters) == []
    assert upcasters.cast("order", "Placed", 1, {"id": 7, "total": "9"}) == {"id": 7, "cents": 9}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda payload: {"id": payload["id"]}, "is invalid in version 2: required"),
        (lambda payload: payload["secret"], "fails: KeyError"),
    ],
)
def test_upcaster_is_tried_on_the_examples(function: Callable[[Any], Any], told: str) -> None:
    second = {"type": "object", "required": ["cents"], "properties": {"cents": {"type": "integer"}, "id": {}}}
    upcasters = Upcasters()
    upcasters.step("order", "Placed", 1)(function)

    (found,) = check(contracts(v1=SCHEMA, v2=second), {}, upcasters=upcasters)

    assert told in found.what
    assert "secret" not in found.what


def test_example_and_gap_between_versions_are_found() -> None:
    wrong = {**SCHEMA, "examples": [{"id": "x", "total": "1"}]}

    assert [one.path for one in check(contracts(v1=wrong), {})] == ["/id"]
    assert [one.what for one in check(contracts(v1=SCHEMA, v3=SCHEMA), {})] == [
        "follows version 1: the versions between them are missing"
    ]


def test_upcasters_lead_through_every_version_or_say_where_they_end() -> None:
    upcasters = Upcasters()
    upcasters.step("a", "T", 1)(lambda payload: [*payload, 2])
    upcasters.step("a", "T", 2)(lambda payload: [*payload, 3])

    assert upcasters.cast("a", "T", 1, [1]) == [1, 2, 3]
    assert upcasters.cast("a", "T", 1, [1], to=2) == [1, 2]
    assert upcasters.cast("a", "Other", 5, [1]) == [1]
    with pytest.raises(EventMissing):
        upcasters.cast("a", "T", 1, [1], to=4)
    with pytest.raises(EventMissing):
        upcasters.cast("a", "T", 3, [1], to=2)
    with pytest.raises(ContractInvalid):
        upcasters.step("a", "T", 1)(lambda payload: payload)


def test_contract_breaking_change_is_stopped_by_cdc_contracts_check(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["contracts", "record", str(folder)]) == 0
    assert run(["contracts", "check", str(folder)]) == 0
    write(folder, PLACED, {**SCHEMA, "properties": {**SCHEMA["properties"], "total": {"type": "integer"}}})
    capsys.readouterr()

    assert run(["contracts", "check", str(folder), "--json"]) == 1

    found = json.loads(capsys.readouterr().out)["findings"]
    assert {one["path"] for one in found} == {"/total"}
    assert run(["contracts", "record", str(folder)]) == 1
    (folder / file_name(PLACED)).unlink()
    assert run(["contracts", "check", str(folder)]) == 1


def test_mode_and_what_is_compared_with_are_chosen(folder: Path, tmp_path: Path) -> None:
    released = tmp_path / "released"
    write(released, PLACED, SCHEMA)
    write(folder, PLACED, {**SCHEMA, "required": ["id"]})
    command = ["contracts", "check", str(folder), "--against", str(released)]

    assert run([*command, "--mode", "backward"]) == 0
    assert run([*command, "--mode", "forward"]) == 1
    assert run([*command, "--mode", "full"]) == 1


def test_upcasters_of_the_application_are_found_by_their_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, PLACED._replace(version=2), {"type": "object", "required": ["a"], "properties": {"a": {}}})
    (tmp_path / "shop_upcasters.py").write_text(
        "from outbox.upcast import Upcasters\nsteps = Upcasters()\n"
        "steps.step('order', 'Placed', 1)(lambda payload: {'a': 1})\n"
    )
    monkeypatch.chdir(tmp_path)

    assert run(["contracts", "check", "contracts"]) == 1
    assert run(["contracts", "check", "contracts", "--upcasters", "shop_upcasters:steps"]) == 0
    assert run(["contracts", "check", "contracts", "--upcasters", "shop_upcasters:other"]) == 2
    assert run(["contracts", "check", "nowhere"]) == 2
    capsys.readouterr()


def test_page_shows_fields_types_and_an_example(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contracts", "docs", str(folder)]) == 0

    text = capsys.readouterr().out
    assert text == page(Contracts.load(folder))
    for words in ("### Placed, version 1", "| `total` | string | yes | in cents |", "| `buyer.mail` | string (email)"):
        assert words in text
