"""Makes each commit to a Delta table happen once.

Every commit carries (app id, cut) in the Delta log, and also in its commit info, together with the cut's end.
deltalake does not refuse a repeated id, and omits it from optimize commits. So the commit infos above `base`, which are
few, show what happened:

1. the newest version is `base`: the statement is still to be made;
2. all commits above `base` are of this cut, and one is of this statement: the table holds it;
3. all commits above `base` are of later statements of this cut: the statement changed nothing and made no commit;
4. anything else was written by another program, or belongs to another range: LakeDamaged.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NoReturn

from deltalake import CommitProperties, DeltaTable, Transaction

from cdc.errors import InvariantError, LakeDamaged

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sinks.warehouse.lake.committer import Txn

_INFO_APP: Final = "tailrace.app"
_INFO_CUT: Final = "tailrace.cut"
_INFO_END: Final = "tailrace.end_lsn"
_INFO_STEP: Final = "tailrace.step"
_INFO_COLUMNS: Final = "tailrace.columns"


def commit_properties(txn: Txn) -> CommitProperties:
    """Return what a commit carries."""
    return CommitProperties(
        app_transactions=[Transaction(txn.app, txn.cut)],
        custom_metadata={
            _INFO_APP: txn.app,
            _INFO_CUT: str(txn.cut),
            _INFO_END: str(txn.end_lsn),
            _INFO_STEP: str(txn.step),
        },
        max_commit_retries=0,  # a conflict means another writer; nothing may be committed above its version
    )


def note_columns(properties: CommitProperties, columns: Collection[str] | None) -> None:
    """Add the columns whose values a commit changes, if it neither adds nor deletes rows (None)."""
    if columns is not None:
        known = properties.custom_metadata or {}
        properties.custom_metadata = {**known, _INFO_COLUMNS: json.dumps(sorted(columns))}


def noted_columns(opened: DeltaTable, base: int) -> frozenset[str] | None:
    """Return the columns in which an open version differs from `base`; None if rows differ, or it is not known."""
    if opened.version() != base + 1:
        return None
    info = opened.history(1)[0]
    text = info.get(_INFO_COLUMNS)
    return None if text is None or info["version"] != base + 1 else frozenset(json.loads(text))


def held_version(table: str, opened: DeltaTable | None, base: int | None, txn: Txn) -> int | None:
    """Return the version whose commit carried `txn`; None if the statement is still to be made, on top of `base`."""
    if opened is None:
        if base is not None:
            raise LakeDamaged(
                f"{table} is missing, but the manifest names version {base}",
                hint="restore the lake from a copy, or rebuild the sink",
                table=table,
            )
        return None
    newest, floor = opened.version(), -1 if base is None else base
    if newest < floor:
        raise LakeDamaged(
            f"{table} ends at version {newest}, but the manifest names version {base}",
            hint="files of its log were lost; restore the lake from a copy, or rebuild the sink",
            table=table,
        )
    done = opened.transaction_version(txn.app)
    if done is not None and done > txn.cut:
        raise LakeDamaged(
            f"{table} holds cut {done} of {txn.app}, but cut {txn.cut} is in progress",
            hint="the manifest is older than the tables; restore both from one copy, or rebuild the sink",
            table=table,
        )
    if newest == floor and done != txn.cut:
        return None
    return _version_of(table, opened, floor, txn)


def _version_of(table: str, opened: DeltaTable, floor: int, txn: Txn) -> int:
    """Return where `txn` was committed. Everything above `floor` must belong to its cut."""
    newest = opened.version()
    infos = {int(info["version"]): info for info in opened.history(newest - floor)} if newest > floor else {}
    above = range(floor + 1, newest + 1)
    others = [version for version in above if infos.get(version, {}).get(_INFO_CUT) != str(txn.cut)]
    if others:
        foreign(table, floor, others)
    found = [version for version in reversed(above) if infos[version].get(_INFO_APP) == txn.app]
    if not found and above and txn.step and floor >= 0 and all(_step(infos[one]) > txn.step for one in above):
        return floor
    if not found:
        raise InvariantError(f"{txn.app} writes {table} in cut {txn.cut} a second time, or on a stale version")
    end_lsn = infos[found[0]].get(_INFO_END)
    if end_lsn != str(txn.end_lsn):
        raise LakeDamaged(
            f"{table} holds cut {txn.cut} up to {end_lsn}, but it is repeated up to {txn.end_lsn}",
            hint="the manifest is older than the tables; restore both from one copy, or rebuild the sink",
            table=table,
        )
    return found[0]


def _step(info: Mapping[str, object]) -> int:
    """Return the position of a commit in its cut; 0 if an older release made it."""
    return int(str(info.get(_INFO_STEP, 0)))


def foreign(table: str, base: int | None, versions: Sequence[int]) -> NoReturn:
    """Raise the error for versions above `base` that another writer made."""
    raise LakeDamaged(
        f"another writer changed {table}: the manifest names version {base}, but {list(versions)[:8]} are not ours",
        hint="only one sink may write to a lake; restore the table to the manifest's version, or rebuild the sink",
        table=table,
    )
