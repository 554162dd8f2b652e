"""Rules about snapshots that are paused, limited, or wait. Pure: evidence in, causes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdc.model.units import duration
from cdc.replication.source_activity import Session
from cdc.why.cause import Cause, Level
from cdc.why.evidence import Evidence, SnapshotEvidence
from cdc.why.source_rules import transaction
from snapshot.load_control import GUARDED
from snapshot.snapshot_progress import THROTTLED

_NAMED_MAX: Final = 5
_ENDED: Final = frozenset({"complete", "stopped"})


def snapshot_causes(evidence: Evidence) -> Iterator[Cause]:
    """Return why snapshots make no progress, or little."""
    open_ones = [one for one in evidence.capture.snapshots if one.state not in _ENDED]
    paused = [one for one in open_ones if one.state == "paused"]
    if paused:
        yield Cause(
            code="snapshot-paused",
            part=_part(paused),
            says=f"an operator paused the snapshot of {_names(paused)}",
            level=Level.SLOW,
            evidence=tuple(f"{one.table}: {one.rows:,} rows read so far" for one in paused[:_NAMED_MAX]),
            hint="resume it when the load on the source allows it",
            command=f"cdc snapshot resume {paused[0].table}" if len(paused) == 1 else "cdc snapshot resume",
        )
    working = [one for one in open_ones if one.state != "paused"]
    yield from _throttled([one for one in working if THROTTLED in one.waits_for])
    yield from _guarded([one for one in working if _slowed(one)])
    for one in working:
        yield from _waiting(evidence, one)


def _throttled(found: Sequence[SnapshotEvidence]) -> Iterator[Cause]:
    if found:
        says = f"snapshot.rows_per_s_max limits the snapshot of {_names(found)}"
        hint = "raise snapshot.rows_per_s_max, or set it to 0 for no limit, then reload the configuration"
        yield _limited(found, says, hint)


def _guarded(found: Sequence[SnapshotEvidence]) -> Iterator[Cause]:
    if found:
        says = f"the source is under load, so the snapshot of {_names(found)} reads more slowly"
        hint = (
            "wait; it reads faster when the source recovers. If the value is normal for this source, raise its limit "
            "in [snapshot], then reload the configuration"
        )
        yield _limited(found, says, hint, _slowed(found[0]))


def _limited(found: Sequence[SnapshotEvidence], says: str, hint: str, *facts: str) -> Cause:
    return Cause(
        code="snapshot-throttled",
        part=_part(found),
        says=says,
        level=Level.SLOW,
        evidence=(*facts, *map(_progress, found[:_NAMED_MAX])),
        hint=hint,
        command="cdc reload",
    )


def _slowed(one: SnapshotEvidence) -> str:
    return next((what for what in one.waits_for if what.startswith(GUARDED)), "")


def _waiting(evidence: Evidence, one: SnapshotEvidence) -> Iterator[Cause]:
    others = tuple(what for what in one.waits_for if what != THROTTLED and not what.startswith(GUARDED))
    locks = [lock for lock in evidence.source.locks if lock.table.replace('"', "") == one.table]
    if locks:
        holder = locks[0].holder
        yield Cause(
            code="table-locked",
            part=f"snapshot {one.table}",
            says=f"{holder.what} locks {one.table}, so the snapshot cannot read it",
            level=Level.SLOW,
            evidence=(f"its transaction has been open for {duration(holder.age_s)}", *others),
            hint="commit it, or end the session with this statement",
            command=holder.remedy,
        )
        return
    blocking = [writer for writer in evidence.source.writers if _names_writer(others, writer)]
    if blocking:
        yield transaction(blocking[0], f"snapshot {one.table}", f"delays the snapshot of {one.table}", Level.SLOW)
    elif others and one.state == "waiting":
        yield Cause(
            code="snapshot-waits",
            part=f"snapshot {one.table}",
            says=f"the snapshot of {one.table} waits for {others[0]}",
            level=Level.SLOW,
            evidence=others[1:],
            hint="wait; it continues by itself",
        )


def _names_writer(waits_for: Sequence[str], writer: Session) -> bool:
    """Whether a reason to wait is this transaction, as `cdc.replication.blockers.Blocker.what` names it."""
    head = f"prepared transaction {writer.gid!r}" if writer.prepared else f"pid {writer.pid}"
    return any(what.startswith((f"{head} ", f"{head},")) for what in waits_for)


def _progress(one: SnapshotEvidence) -> str:
    rate = f" at {one.rows_per_s:,.0f} rows/s" if one.rows_per_s is not None else ""
    left = f", {duration(one.eta_s)} left" if one.eta_s is not None else ""
    return f"{one.table}: {one.rows:,} rows read{rate}{left}"


def _part(found: Sequence[SnapshotEvidence]) -> str:
    return f"snapshot {found[0].table}" if len(found) == 1 else "snapshots"


def _names(found: Sequence[SnapshotEvidence]) -> str:
    return found[0].table if len(found) == 1 else f"{found[0].table} and {len(found) - 1} more"
