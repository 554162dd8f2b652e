"""Event contracts: reads a folder of JSON Schemas and checks events against them.

The folder has one file ``<aggregate_type>/<type>.v<version>.json`` per contract; characters that a file name cannot
have are percent-encoded. ``contracts.lock.json`` beside them has every contract as it was released, so that
`cdc contracts check` compares changes with the released contracts on any machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from outbox.errors import ContractBroken, ContractInvalid, ContractUnknown
from outbox.event import Event
from outbox.json_schema import Schema, Validator, strict

LOCK: Final = "contracts.lock.json"
_FILE: Final = re.compile(r"(?P<type>.+)\.v(?P<version>[1-9][0-9]{0,8})\.json")
_FORM: Final = 1


class ContractId(NamedTuple):
    """Identifies the events that a contract applies to."""

    aggregate_type: str
    type: str
    version: int

    def __str__(self) -> str:
        return f"{self.aggregate_type}/{self.type}.v{self.version}"


@dataclass(frozen=True, slots=True)
class Contract:
    """A compiled contract: `writing` is the strict schema for writers, `reading` the lenient one for readers."""

    id: ContractId
    schema: Schema
    writing: Validator
    reading: Validator

    @property
    def examples(self) -> list[Any]:
        """Return the example payloads in the contract."""
        return list(self.schema.get("examples", ())) if isinstance(self.schema, dict) else []


class Contracts:
    """A set of contracts. Thread-safe: it is immutable."""

    def __init__(self, schemas: Mapping[ContractId, Schema], *, unknown_allowed: bool = False) -> None:
        """Compile the contracts. With `unknown_allowed`, types without a contract pass. Raises ContractInvalid."""
        self._unknown_allowed = unknown_allowed
        self._contracts = {of: _contract(of, schema) for of, schema in sorted(schemas.items())}

    @classmethod
    def load(cls, folder: Path | str, *, unknown_allowed: bool = False) -> Contracts:
        """Read a folder. Raises ContractInvalid, which names the invalid file."""
        return cls(read_folder(Path(folder)), unknown_allowed=unknown_allowed)

    def __iter__(self) -> Iterator[Contract]:
        """Iterate in the order of aggregate type, type and version."""
        return iter(self._contracts.values())

    def __len__(self) -> int:
        return len(self._contracts)

    def get(self, of: ContractId) -> Contract | None:
        """Return the contract of these events, or None."""
        return self._contracts.get(of)

    def versions(self, aggregate_type: str, type_: str) -> list[int]:
        """Return the versions of a type that have a contract, in ascending order."""
        return sorted(of.version for of in self._contracts if of[:2] == (aggregate_type, type_))

    @property
    def schemas(self) -> dict[ContractId, Schema]:
        """Return the schema of every contract."""
        return {of: contract.schema for of, contract in self._contracts.items()}

    def check(self, event: Event) -> None:
        """Check the payload of an event.

        Bytes are not validated, because a registry has the schemas of Avro; they are refused if the type has a JSON
        contract.

        Raises:
            ContractBroken: with the path in the payload, never a value.
            ContractUnknown: the type or version has no contract.
        """
        of = ContractId(event.aggregate_type, event.type, event.version)
        contract = self._contracts.get(of)
        if contract is None:
            if event.payload_bytes is None and not self._passes(of):
                raise self._unknown(of)
            return
        if event.payload is None:
            what = "bytes" if event.payload_bytes is not None else "no payload"
            raise ContractBroken(f"event {of} has {what}, but its contract is for JSON", path="", rule="type", event=of)
        breaches = contract.writing.breaches(json.loads(event.payload))
        if breaches:
            path, rule = breaches[0]
            more = f", and {len(breaches) - 1} more" if len(breaches) > 1 else ""
            raise ContractBroken(
                f"payload of {of} breaks its contract at {path or 'its top level'}: {rule}{more}",
                path=path,
                rule=rule,
                hint="change the payload, or make a new version of the contract",
                event=str(of),
            )

    def _passes(self, of: ContractId) -> bool:
        return self._unknown_allowed and not self.versions(of.aggregate_type, of.type)

    def _unknown(self, of: ContractId) -> ContractUnknown:
        known = self.versions(of.aggregate_type, of.type)
        available = f"its type has versions {', '.join(map(str, known))}" if known else "its type has none"
        return ContractUnknown(
            f"event {of} has no contract: {available}",
            hint=f"add {file_name(of)} to the folder of contracts",
            event=str(of),
        )


def file_name(of: ContractId) -> str:
    """Return the path of a contract in the folder; no two contracts share one."""
    return f"{_quoted(of.aggregate_type)}/{_quoted(of.type)}.v{of.version}.json"


def read_folder(folder: Path) -> dict[ContractId, Schema]:
    """Read every contract of a folder. Raises ContractInvalid for a file that is not a contract."""
    if not folder.is_dir():
        raise ContractInvalid(f"folder {folder} not found", hint="create <aggregate_type>/<type>.v1.json in it")
    found: dict[ContractId, Schema] = {}
    for path in sorted(folder.rglob("*.json")):
        place = path.relative_to(folder)
        if path.name == LOCK:
            continue
        match = _FILE.fullmatch(path.name)
        if match is None or len(place.parts) != 2:
            raise ContractInvalid(
                f"invalid contract file name {place}: expected <aggregate_type>/<type>.v<version>.json",
                hint="rename it, e.g. order/Placed.v1.json",
            )
        of = ContractId(unquote(place.parts[0]), unquote(match["type"]), int(match["version"]))
        if Path(file_name(of)) != place:
            raise ContractInvalid(f"invalid contract file name {place}: expected {file_name(of)}", hint="rename it")
        found[of] = _schema(_json(path, str(place)), str(place))
    return found


def read_lock(path: Path) -> dict[ContractId, Schema]:
    """Read the recorded contracts. Raises ContractInvalid if the file is invalid."""
    document = _json(path, path.name)
    if not isinstance(document, dict) or document.get("form") != _FORM or not isinstance(document.get("events"), dict):
        raise ContractInvalid(f"{path.name} is not a record of contracts", hint="create it with `cdc contracts record`")
    found: dict[ContractId, Schema] = {}
    for place, schema in document["events"].items():
        aggregate_type, _, name = place.partition("/")
        match = _FILE.fullmatch(f"{name}.json")
        if match is None:
            raise ContractInvalid(f"invalid contract name {place!r} in {path.name}")
        of = ContractId(unquote(aggregate_type), unquote(match["type"]), int(match["version"]))
        found[of] = _schema(schema, place)
    return found


def lock_text(schemas: Mapping[ContractId, Schema]) -> str:
    """Return the text of the record, sorted, so that a changed contract changes only its own lines."""
    events = {file_name(of).removesuffix(".json"): schemas[of] for of in sorted(schemas)}
    return json.dumps({"form": _FORM, "events": events}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _contract(of: ContractId, schema: Schema) -> Contract:
    reading = Validator(schema, file_name(of))
    return Contract(of, schema, Validator(strict(schema), file_name(of)), reading)


def _schema(document: Any, where: str) -> Schema:
    if not isinstance(document, dict | bool):
        raise ContractInvalid(f"{where} is not a valid JSON Schema: expected an object, true or false")
    return document


def _json(path: Path, where: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ContractInvalid(f"cannot read {where}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    except (ValueError, RecursionError) as error:
        at = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ContractInvalid(f"{where} is not JSON{at}") from None


def _quoted(name: str) -> str:
    """Percent-encode a name; also a leading dot, so that no path leaves the folder."""
    text = quote(name, safe="")
    return text.replace(".", "%2E", 1) if text.startswith(".") else text
