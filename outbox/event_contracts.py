"""Contracts of events: a folder of JSON Schemas, what writers are held to, and what may be changed.

A folder has ``<aggregate_type>/<type>.v<version>.json``; what a file's name does not take is percent-encoded. What is
recorded lies beside them in ``contracts.lock.json``: every contract as it was when `record` wrote it last, so that a
change is held against what was released, wherever it is checked.
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
    """Which events a contract is of."""

    aggregate_type: str
    type: str
    version: int

    def __str__(self) -> str:
        return f"{self.aggregate_type}/{self.type}.v{self.version}"


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract, ready to be used: `writing` is what a writer is held to, `reading` what a reader may expect."""

    id: ContractId
    schema: Schema
    writing: Validator
    reading: Validator

    @property
    def examples(self) -> list[Any]:
        """Payloads that the contract itself gives."""
        return list(self.schema.get("examples", ())) if isinstance(self.schema, dict) else []


class Contracts:
    """The contracts of a folder. Thread-safe: nothing changes after it is made."""

    def __init__(self, schemas: Mapping[ContractId, Schema], *, unknown_allowed: bool = False) -> None:
        """`unknown_allowed`: events of types without any contract pass unchecked. Raises ContractInvalid."""
        self._unknown_allowed = unknown_allowed
        self._contracts = {of: _contract(of, schema) for of, schema in sorted(schemas.items())}

    @classmethod
    def load(cls, folder: Path | str, *, unknown_allowed: bool = False) -> Contracts:
        """Read a folder. Raises ContractInvalid, which names the file."""
        return cls(read_folder(Path(folder)), unknown_allowed=unknown_allowed)

    def __iter__(self) -> Iterator[Contract]:
        """All, by aggregate type, type and version."""
        return iter(self._contracts.values())

    def __len__(self) -> int:
        return len(self._contracts)

    def get(self, of: ContractId) -> Contract | None:
        """The contract of these events."""
        return self._contracts.get(of)

    def versions(self, aggregate_type: str, type_: str) -> list[int]:
        """Versions of a type that have a contract, in order."""
        return sorted(of.version for of in self._contracts if of[:2] == (aggregate_type, type_))

    @property
    def schemas(self) -> dict[ContractId, Schema]:
        """What was read."""
        return {of: contract.schema for of, contract in self._contracts.items()}

    def check(self, event: Event) -> None:
        """Raise ContractBroken with the path in the payload, never a value of it, or ContractUnknown.

        Bytes are not looked into: Avro's schemas are a registry's affair. They are refused where a contract in JSON
        says that the payload is JSON.
        """
        of = ContractId(event.aggregate_type, event.type, event.version)
        contract = self._contracts.get(of)
        if contract is None:
            if event.payload_bytes is None and not self._passes(of):
                raise self._unknown(of)
            return
        if event.payload is None:
            what = "bytes" if event.payload_bytes is not None else "no payload"
            raise ContractBroken(f"event {of} has {what}, and its contract is of JSON", path="", rule="type", event=of)
        breaches = contract.writing.breaches(json.loads(event.payload))
        if breaches:
            path, rule = breaches[0]
            more = f", and {len(breaches) - 1} more" if len(breaches) > 1 else ""
            raise ContractBroken(
                f"payload of {of} breaks its contract at {path or 'its top'}: {rule}{more}",
                path=path,
                rule=rule,
                hint="write what the contract says, or make a new version of it",
                event=str(of),
            )

    def _passes(self, of: ContractId) -> bool:
        return self._unknown_allowed and not self.versions(of.aggregate_type, of.type)

    def _unknown(self, of: ContractId) -> ContractUnknown:
        known = self.versions(of.aggregate_type, of.type)
        there = f"there are versions {', '.join(map(str, known))}" if known else "there is none of this type"
        return ContractUnknown(
            f"event {of} has no contract: {there}",
            hint=f"write {file_name(of)} into the folder of contracts",
            event=str(of),
        )


def file_name(of: ContractId) -> str:
    """Where in the folder a contract lies; every type has a name of its own."""
    return f"{_quoted(of.aggregate_type)}/{_quoted(of.type)}.v{of.version}.json"


def read_folder(folder: Path) -> dict[ContractId, Schema]:
    """Every contract of a folder. Raises ContractInvalid for a file that is none."""
    if not folder.is_dir():
        raise ContractInvalid(f"there is no folder {folder}", hint="contracts lie in <aggregate_type>/<type>.v1.json")
    found: dict[ContractId, Schema] = {}
    for path in sorted(folder.rglob("*.json")):
        place = path.relative_to(folder)
        if path.name == LOCK:
            continue
        match = _FILE.fullmatch(path.name)
        if match is None or len(place.parts) != 2:
            raise ContractInvalid(
                f"{place} is no name of a contract", hint="<aggregate_type>/<type>.v<version>.json, as order/Placed.v1"
            )
        of = ContractId(unquote(place.parts[0]), unquote(match["type"]), int(match["version"]))
        if Path(file_name(of)) != place:
            raise ContractInvalid(f"{place} is another spelling of {file_name(of)}", hint="rename it")
        found[of] = _schema(_json(path, str(place)), str(place))
    return found


def read_lock(path: Path) -> dict[ContractId, Schema]:
    """What was recorded. Raises ContractInvalid when the file is none of ours."""
    document = _json(path, path.name)
    if not isinstance(document, dict) or document.get("form") != _FORM or not isinstance(document.get("events"), dict):
        raise ContractInvalid(f"{path.name} is not a record of contracts", hint="`cdc contracts record` writes it")
    found: dict[ContractId, Schema] = {}
    for place, schema in document["events"].items():
        aggregate_type, _, name = place.partition("/")
        match = _FILE.fullmatch(f"{name}.json")
        if match is None:
            raise ContractInvalid(f"{path.name} names {place!r}, which is no contract")
        of = ContractId(unquote(aggregate_type), unquote(match["type"]), int(match["version"]))
        found[of] = _schema(schema, place)
    return found


def lock_text(schemas: Mapping[ContractId, Schema]) -> str:
    """The text of the record: sorted, so that a change of one contract is a change of its lines."""
    events = {file_name(of).removesuffix(".json"): schemas[of] for of in sorted(schemas)}
    return json.dumps({"form": _FORM, "events": events}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _contract(of: ContractId, schema: Schema) -> Contract:
    reading = Validator(schema, file_name(of))
    return Contract(of, schema, Validator(strict(schema), file_name(of)), reading)


def _schema(document: Any, where: str) -> Schema:
    if not isinstance(document, dict | bool):
        raise ContractInvalid(f"{where} is no JSON Schema: an object, or true")
    return document


def _json(path: Path, where: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ContractInvalid(f"{where} cannot be read: {getattr(error, 'strerror', None) or 'no UTF-8'}") from None
    except (ValueError, RecursionError) as error:
        at = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ContractInvalid(f"{where} is not JSON{at}") from None


def _quoted(name: str) -> str:
    """As URLs do it, dots at the beginning too, so that no name leaves the folder."""
    text = quote(name, safe="")
    return text.replace(".", "%2E", 1) if text.startswith(".") else text
