"""The rules of `cdc contracts check`: compares contracts with the recorded ones and tests examples and upcasters.

Pure, except for the upcasters, which are functions of the application.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from outbox.compatibility import Mode, problems
from outbox.errors import EventMissing
from outbox.event_contracts import Contract, ContractId, Contracts
from outbox.json_schema import Schema
from outbox.upcast import Upcasters


class Finding(NamedTuple):
    """A reason to refuse a set of contracts: the contract, the path in it, and what is wrong."""

    event: str
    path: str
    what: str


def check(
    now: Contracts,
    recorded: Mapping[ContractId, Schema],
    *,
    mode: Mode = "backward",
    upcasters: Upcasters | None = None,
) -> list[Finding]:
    """Return every finding about the contracts `now`; empty if they pass.

    The contracts pass if:

    1. every recorded contract still exists, because topics and event stores may have its events,
    2. recorded contracts changed only as `mode` allows,
    3. each version is compatible with the previous one under `mode`, or an upcaster leads to it,
    4. examples are valid under their contract, and what upcasters make of them under the next one.
    """
    known = upcasters or Upcasters()
    found: list[Finding] = []
    for of, schema in sorted(recorded.items()):
        contract = now.get(of)
        if contract is None:
            found.append(Finding(str(of), "", "is recorded but missing: readers may read its events at any time"))
        else:
            found += _compared(of, schema, contract.schema, mode, "as recorded")
    for contract in now:
        found += _versions(now, contract, mode, known)
        found += _examples(now, contract, known)
    return found


def _compared(of: ContractId, old: Schema, new: Schema, mode: Mode, what: str) -> Iterator[Finding]:
    for problem in problems(old, new, mode):
        yield Finding(str(of), problem.path, f"is not {mode} compatible with the contract {what}: {problem.what}")


def _versions(now: Contracts, contract: Contract, mode: Mode, upcasters: Upcasters) -> Iterator[Finding]:
    of = contract.id
    before = [version for version in now.versions(of.aggregate_type, of.type) if version < of.version]
    if not before:
        return
    if before[-1] != of.version - 1:
        yield Finding(str(of), "", f"follows version {before[-1]}: the versions between them are missing")
        return
    if upcasters.has(of.aggregate_type, of.type, before[-1]):
        return
    old = now.get(of._replace(version=before[-1]))
    assert old is not None
    what = f"of version {before[-1]}, and no upcaster converts it"
    yield from _compared(of, old.schema, contract.schema, mode, what)


def _examples(now: Contracts, contract: Contract, upcasters: Upcasters) -> Iterator[Finding]:
    for number, example in enumerate(contract.examples):
        for path, rule in contract.writing.breaches(example, most=1):
            yield Finding(str(contract.id), path, f"example {number} breaks its own contract: {rule}")
        yield from _cast(now, contract, number, example, upcasters)


def _cast(now: Contracts, contract: Contract, number: int, example: object, upcasters: Upcasters) -> Iterator[Finding]:
    """Convert an example to the newest version, and validate each step."""
    of, value = contract.id, copy.deepcopy(example)
    for version in range(of.version, upcasters.newest(of.aggregate_type, of.type, of.version)):
        after = now.get(of._replace(version=version + 1))
        what = f"example {number}: the upcaster of version {version}"
        if after is None:
            yield Finding(str(of), "", f"{what} returns a version that has no contract")
            return
        try:
            value = upcasters.cast(of.aggregate_type, of.type, version, value, to=version + 1)
        except EventMissing:
            return
        except Exception as error:  # noqa: BLE001 - a function of the application; its message may hold values
            yield Finding(str(of), "", f"{what} fails: {type(error).__name__}")
            return
        for path, rule in after.reading.breaches(value, most=1):
            yield Finding(str(of), path, f"{what} returns a payload that is invalid in version {version + 1}: {rule}")
            return
