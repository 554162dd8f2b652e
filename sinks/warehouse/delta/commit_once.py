"""How a commit to a Delta table happens once.

Each carries (app id, cut) in the Delta log, and the same with the cut's end in its commit info. deltalake does not
refuse a repeated id by itself, and leaves it out of optimize commits, so what happened is read from the commit infos
above `base`, which are a few:

1. the newest version is `base`: the statement is still to be made;
2. commits above `base` are all of this cut, and one is of this statement: it holds;
3. commits above `base` are all of later statements of this cut: the statement changed nothing and made no commit;
4. anything else was written by somebody else, or belongs to another range: LakeDamaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from deltalake import CommitProperties, DeltaTable, Transaction

from cdc.errors import InvariantError, LakeDamaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sinks.warehouse.lake.committer import Txn

_INFO_APP: Final = "tailrace.app"
_INFO_CUT: Final = "tailrace.cut"
_INFO_END: Final = "tailrace.end_lsn"
_INFO_STEP: Final = "tailrace.step"


def commit_properties(txn: Txn) -> CommitProperties:
    """What a commit carries."""
    return CommitProperties(
        app_transactions=[Transaction(txn.app, txn.cut)],
        custom_metadata={
            _INFO_APP: txn.app,
            _INFO_CUT: str(txn.cut),
            _INFO_END: str(txn.end_lsn),
            _INFO_STEP: str(txn.step),
        },
        max_commit_retries=0,  # a conflict is another writer; nothing may be committed above its version
    )


def held_version(table: str, opened: DeltaTable | None, base: int | None, txn: Txn) -> int | None:
    """The version whose commit carried `txn`; None when the statement is still to be made, on top of `base`."""
    if opened is None:
        if base is not None:
            raise LakeDamaged(
                f"{table} is gone: the manifest names version {base}",
                hint="bring the lake back from a copy, or rebuild the sink",
                table=table,
            )
        return None
    newest, floor = opened.version(), -1 if base is None else base
    if newest < floor:
        raise LakeDamaged(
            f"{table} ends at version {newest}, the manifest names {base}",
            hint="files of its log were lost; bring the lake back from a copy, or rebuild the sink",
            table=table,
        )
    done = opened.transaction_version(txn.app)
    if done is not None and done > txn.cut:
        raise LakeDamaged(
            f"{table} holds cut {done} of {txn.app} while cut {txn.cut} is made",
            hint="the manifest is older than the tables; bring both back from one copy, or rebuild the sink",
            table=table,
        )
    if newest == floor and done != txn.cut:
        return None
    return _version_of(table, opened, floor, txn)


def _version_of(table: str, opened: DeltaTable, floor: int, txn: Txn) -> int:
    """Where `txn` was committed. Everything above `floor` must be of its cut."""
    newest = opened.version()
    infos = {int(info["version"]): info for info in opened.history(newest - floor)} if newest > floor else {}
    above = range(floor + 1, newest + 1)
    strangers = [version for version in above if infos.get(version, {}).get(_INFO_CUT) != str(txn.cut)]
    if strangers:
        foreign(table, floor, strangers)
    found = [version for version in reversed(above) if infos[version].get(_INFO_APP) == txn.app]
    if not found and above and txn.step and floor >= 0 and all(_step(infos[one]) > txn.step for one in above):
        return floor
    if not found:
        raise InvariantError(f"{txn.app} writes {table} in cut {txn.cut} a second time, or on a stale version")
    end_lsn = infos[found[0]].get(_INFO_END)
    if end_lsn != str(txn.end_lsn):
        raise LakeDamaged(
            f"{table} holds cut {txn.cut} up to {end_lsn}, it is made again up to {txn.end_lsn}",
            hint="the manifest is older than the tables; bring both back from one copy, or rebuild the sink",
            table=table,
        )
    return found[0]


def _step(info: Mapping[str, object]) -> int:
    """The place of a commit in its cut; 0 when an older release made it."""
    return int(str(info.get(_INFO_STEP, 0)))


def foreign(table: str, base: int | None, versions: Sequence[int]) -> NoReturn:
    """Say that these versions above `base` are of another writer."""
    raise LakeDamaged(
        f"somebody else wrote {table}: the manifest names version {base}, and {list(versions)[:8]} are not ours",
        hint="only one sink may write a lake; restore the table to the version of the manifest, or rebuild the sink",
        table=table,
    )
