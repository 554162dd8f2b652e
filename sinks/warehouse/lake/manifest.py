"""Stores the manifest of each cut: which versions of the tables belong together, and how far the log is applied.

Readers read the manifest first, and then every table at the version it names. So they see all tables as of one LSN.
The files, in ``<lake>/_cuts``, are JSON on one line each:

- ``pending.json``: the cut in progress. It is durable before the first table is changed, so that an interrupted cut is
  repeated with the same range and the same plans.
- ``<cut>.json``: one for each cut that is kept.
- ``current.json``: the newest cut. Readers look only here.

Publishing writes the cut file, then the pointer, and then removes `pending`. By then every table holds the cut, so a
crash between any two of these steps leaves a correct lake. Nothing here depends on Delta or Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from cdc.errors import InvariantError, LakeDamaged, UsageError
from cdc.model.topic_names import parse_partition
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.cut_position import CutPosition, PartitionCount, partition_name
from sinks.warehouse.lake.local_disk import Disk, LocalDisk
from sinks.warehouse.lake.location import Location, Where
from sinks.warehouse.lake.plan_run import Run

MANIFEST_VERSION: Final = 1
_MINUTE_US: Final = 60_000_000

_Count = Annotated[int, msgspec.Meta(ge=0)]
_CutNumber = Annotated[int, msgspec.Meta(ge=1)]
_LATER: Final = frozenset({"repairs", "loads", "written", "states"})  # left out if empty: the form of all releases
# Fields of the position, which stand among those of the record, in the order of all releases.
_POSITION: Final = ("epoch", "end_lsn", "commit_lsn", "cuts_offset", "since_lsn", "accounts", "complete")
# `version` and `cut` come first, so that even a file that is cut off later shows them.
_BEGINNING: Final = re.compile(rb'\{"version":\d+,"cut":(\d+),')


class TableState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table at a cut.

    Attributes:
        version: of the Delta table.
        schema_id: of the newest row schema it was written with.
        rows: at this version; None if unknown.
        key: names of its key columns as the log orders them, empty without a key; None if an older release wrote it.
        event_time: the column of a history that says since when a version is valid; empty if none is named.
        columns: column -> its type (`sinks.warehouse.views.meaning.lake_types`), for a table that a view in
            PostgreSQL's SQL reads; else empty.
    """

    version: _Count
    schema_id: str
    rows: int | None = None
    key: tuple[str, ...] | None = None
    event_time: str = ""
    columns: dict[str, str] = {}


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a view was kept at the cut it is as of, and the costs of its plans (`sinks.warehouse.planner.choose`).

    Attributes:
        plan: the plan that ran: recompute or affected.
        reason: why this one.
        seconds: its duration, including its commit.
        keys: number of affected keys; 0 if no keys were needed.
        rows: number of rows written.
        runs: plan -> its last runs, the newest last.
        since: computed cuts since a plan other than the best was tried.
        cancelled: plan -> its last runs that exceeded their budget, until a run in such a cut is completed.
        refused: why it cannot be kept by keys (`sinks.warehouse.planner.decide`), "" if it can; None if not decided.
        unique: columns that no two of its rows share; empty if none are known.
    """

    plan: str
    reason: str
    seconds: float = 0.0
    keys: int = 0
    rows: int = 0
    runs: dict[str, tuple[Run, ...]] = {}
    since: int = 0
    cancelled: dict[str, tuple[Run, ...]] = {}
    refused: str | None = None
    unique: tuple[str, ...] = ()


class ViewState(msgspec.Struct, frozen=True, kw_only=True):
    """A view at a cut.

    Attributes:
        version: of the Delta table of this generation.
        reason: why it was left as of an older cut; "" if it is as of this one.
        cut: the cut that it was computed at.
        sql_sha: hash of the SQL it was computed with.
        text: hash of the text that made it (`sinks.warehouse.views.generations`); "" if an older release wrote it.
        newest: the highest number that a generation of the view ever had; 0 if an older release wrote it. A number is
            used once: a table that left the manifest still has its log.
        plan: how it was kept; None if an older release wrote it.
    """

    version: _Count
    generation: _Count
    reason: str
    cut: _CutNumber
    sql_sha: str
    text: str = ""
    newest: int = 0
    plan: PlanRecord | None = None


class Unbuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A view that has no rows at any cut yet.

    Attributes:
        reason: why it could not be computed.
        text: hash of the text that it was computed by (`sinks.warehouse.views.generations`).
    """

    reason: str
    text: str


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """A repair of the log that the lake has passed. What the source did between `known_to` and `resumes_at` is unknown.

    Attributes:
        epoch: the one that ended. Versions of it that were open then end at `known_to` in histories. No transaction
            commits at that LSN, so nothing else ends there.
        known_to: the LSN that its log reaches.
        known_at_us: commit time of its last event in the lake, in microseconds since 1970.
        resumes_at: the LSN where the log of the next epoch begins.
    """

    epoch: int
    known_to: int
    known_at_us: int
    resumes_at: int


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A cut in progress, and what was decided before it began.

    Attributes:
        cut: its number, one above `start_cut`, which is the newest published cut (0: none yet).
        position: where the cut ends.
        plans: view -> chosen plan; a repeated attempt takes the same.
        pieces: the pieces that the cut is applied in (`sinks.warehouse.log.cut_pieces`); empty if it is not divided.
        attempts: how often the cut was begun again.
        failures: how many attempts ended because Spark failed outside of views.
        suspect: the views that were being computed when Spark last failed, joined by commas.
        left: view -> why this cut leaves it behind: Spark failed while it was computed.
        loads: topics whose tables are new: pieces write their archives only, and the other tables follow as a whole.
        written: number of pieces that every table has; no later attempt reads them again.
        states: lake table -> its state after these pieces, if they changed it.
        serve, texts: decisions about generations of views (`sinks.warehouse.views.generations.Decided`).
        others as in `Manifest`.
    """

    version: int = MANIFEST_VERSION
    cut: _CutNumber
    start_cut: _Count
    position: CutPosition
    plans: dict[str, str] = {}
    serve: dict[str, int] = {}
    texts: dict[str, str] = {}
    pieces: tuple[dict[str, tuple[int, int]], ...] = ()
    attempts: int = 0
    failures: int = 0
    suspect: str = ""
    left: dict[str, str] = {}
    loads: tuple[str, ...] = ()
    written: _Count = 0
    states: dict[str, TableState] = {}

    @property
    def end_lsn(self) -> int:
        """Where the cut ends."""
        return self.position.end_lsn


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A published cut.

    Attributes:
        cut: its number; 1, 2, 3 ... without gaps.
        name: of the pipeline.
        position: where the cut ends.
        tables: path below the lake -> its state.
        views: name -> its state.
        unbuilt: name of a view that has failed in every cut so far -> why.
        repairs: of the log, that the lake has passed, the newest last.
        committed_at_us: when it was published; for display only.
    """

    version: int = MANIFEST_VERSION
    cut: _CutNumber
    name: str
    position: CutPosition
    tables: dict[str, TableState]
    views: dict[str, ViewState] = {}
    unbuilt: dict[str, Unbuilt] = {}
    repairs: tuple[Repair, ...] = ()
    committed_at_us: int

    @property
    def end_lsn(self) -> int:
        """Where the cut ends."""
        return self.position.end_lsn


_File = TypeVar("_File", Manifest, Pending)


class Pruned(NamedTuple):
    """Cuts that were removed, and the tables that they named."""

    cuts: list[int]
    tables: frozenset[str]


class ManifestStore:
    """The folder of cuts. One writer, and any number of readers at the same time, also in other processes.

    Args:
        where: location of the lake. It need not exist.
        disk: stores the files; tests pass one that fails between two steps.
        storage: options of the object store.
    """

    def __init__(self, where: Where, disk: Disk | None = None, *, storage: Mapping[str, str] | None = None) -> None:
        self._location = Location.of(where, storage)
        self._disk = disk or disk_of(self._location)
        self._read: tuple[bytes, Manifest] | None = None  # the pointer is read several times in a cut

    def current(self) -> Manifest | None:
        """Return the newest published cut; None if there is none yet.

        A missing or corrupt pointer is replaced by the newest complete cut file. A cut file is written only after all
        its tables, so it is never too new. Raises LakeDamaged if there is no complete cut file either, or if a newer
        release wrote the newest one.
        """
        path = self._path(layout.CURRENT_FILE)
        data = self._disk.read(layout.CURRENT_FILE)
        damage: LakeDamaged | None = None
        if data is not None:
            try:
                if self._read is None or self._read[0] != data:
                    self._read = data, _decode(path, data, Manifest)
                return self._read[1]
            except LakeDamaged as error:
                _stop_if_newer(error)
                damage = error
        for cut in reversed(self._files()):
            try:
                return self._load(cut)
            except LakeDamaged as error:
                _stop_if_newer(error)
                damage = damage or error
        if damage is not None:
            raise damage
        return None

    def at(self, cut: int) -> Manifest:
        """Return the manifest of a cut. Raises UsageError if it is not kept, LakeDamaged if its file is corrupt."""
        kept = self.cuts()
        if cut not in kept:
            span = f"cuts {kept[0]} to {kept[-1]} are kept" if kept else "no cut is published yet"
            if kept and kept[0] < cut < kept[-1]:
                span += f", of older cuts one per minute; the one before is {max(one for one in kept if one < cut)}"
            raise UsageError(
                f"cut {cut} is not in the lake: {span}",
                hint="the sink's keep_cuts and keep_hours define how long a cut can be read",
                cut=cut,
            )
        return self._load(cut)

    def at_lsn(self, lsn: int) -> Manifest | None:
        """Return the newest kept cut that ends at `lsn` or before it; None if all kept cuts end later.

        Uses binary search. LSNs only grow within an epoch of the log; a repair may take them back. The newest epoch
        that reaches back to `lsn` counts.
        """
        newest = self.current()
        epoch = -1 if newest is None else newest.position.epoch
        while True:
            found = self._last_to((epoch, lsn))
            if found is None or found.position.epoch == epoch:
                return found
            epoch = found.position.epoch

    def _last_to(self, place: tuple[int, int]) -> Manifest | None:
        """Return the newest kept cut at or before (epoch, LSN)."""
        kept = self.cuts()
        found: Manifest | None = None
        low, high = 0, len(kept)
        while low < high:
            middle = (low + high) // 2
            manifest = self._load(kept[middle])
            if (manifest.position.epoch, manifest.end_lsn) <= place:
                found, low = manifest, middle + 1
            else:
                high = middle
        return found

    def cuts(self) -> list[int]:
        """Return the numbers of the kept cuts, ascending, up to the current one."""
        current = self.current()
        return [] if current is None else [cut for cut in self._files() if cut <= current.cut]

    def pending(self) -> Pending | None:
        """Return the cut that was begun but not published; None if there is none.

        Raises LakeDamaged if the file is corrupt, unless it shows that its cut is published.
        """
        path = self._path(layout.PENDING_FILE)
        data = self._disk.read(layout.PENDING_FILE)
        if data is None:
            return None
        current = self.current()
        published = 0 if current is None else current.cut
        try:
            pending = _decode(path, data, Pending)
        except LakeDamaged:
            beginning = _BEGINNING.match(data)
            if beginning is not None and int(beginning.group(1)) <= published:
                return None
            raise
        if pending.cut <= published:
            return None
        if pending.start_cut != published:
            raise LakeDamaged(
                f"{path} begins cut {pending.cut} after cut {pending.start_cut}, but cut {published} is the newest one",
                hint="files of the lake were removed or restored; rebuild the sink",
                file=path,
            )
        return pending

    def begin(self, pending: Pending) -> bool:
        """Make `pending` durable. Returns whether it is new; repeating the same one has no effect.

        Another one while one is open is a bug.
        """
        found = self.pending()
        if found is not None:
            if found != pending:
                raise InvariantError(f"cut {pending.cut} is begun a second time with another range")
            return False
        current = self.current()
        published = 0 if current is None else current.cut
        if pending.start_cut != published or pending.cut != published + 1:
            raise InvariantError(f"cut {pending.cut} is begun after cut {published}")
        self._disk.replace(layout.PENDING_FILE, encode(pending))
        return True

    def revise(self, pending: Pending) -> None:
        """Replace the plan of the open cut; its range stays."""
        found = self.pending()
        if found is None or (found.cut, found.end_lsn) != (pending.cut, pending.end_lsn):
            raise InvariantError(f"cut {pending.cut} is planned again and is not open")
        if found != pending:
            self._disk.replace(layout.PENDING_FILE, encode(pending))

    def publish(self, manifest: Manifest) -> None:
        """Make a cut the newest one. It is visible as soon as the pointer is replaced."""
        pending = self.pending()
        if pending is None or (pending.cut, pending.position) != (manifest.cut, manifest.position):
            raise InvariantError(f"cut {manifest.cut} is published but was not begun")
        data = encode(manifest)
        self._disk.replace(layout.cut_file(manifest.cut), data)
        self._disk.replace(layout.CURRENT_FILE, data)
        self._disk.remove(layout.PENDING_FILE)

    def prune(self, keep: int, *, since_us: int | None = None) -> Pruned:
        """Remove all but the newest `keep` cuts, at least one; the current cut always stays.

        With `since_us`, the first older cut of each minute stays, too, if it was published at that time or later.
        """
        gone: list[Manifest] = []
        minute = -1
        for manifest in map(self._load, self.cuts()[: -max(keep, 1)]):
            at_us = manifest.committed_at_us
            if since_us is None or at_us < since_us or at_us // _MINUTE_US == minute:
                gone.append(manifest)
            else:
                minute = at_us // _MINUTE_US
        for manifest in gone:
            self._disk.remove(layout.cut_file(manifest.cut))
        return Pruned([manifest.cut for manifest in gone], frozenset(_named(gone)))

    def needed(self) -> dict[str, set[int]]:
        """Return table -> versions that a kept cut names, including views: vacuum must keep them."""
        return _named(map(self._load, self.cuts()))

    def _load(self, cut: int) -> Manifest:
        path = self._path(layout.cut_file(cut))
        data = self._disk.read(layout.cut_file(cut))
        if data is None:
            raise LakeDamaged(f"{path} is gone", hint="it was deleted manually, or just pruned", file=path)
        manifest = _decode(path, data, Manifest)
        if manifest.cut != cut:
            raise LakeDamaged(f"{path} holds cut {manifest.cut}", hint="put its own file back", file=path)
        return manifest

    def _files(self) -> list[int]:
        found = map(layout.cut_of, self._disk.names())
        return sorted(cut for cut in found if cut is not None)

    def _path(self, name: str) -> str:
        return self._location.uri(layout.CUTS_FOLDER, name)


def _named(manifests: Iterable[Manifest]) -> dict[str, set[int]]:
    """Return table -> versions that these cuts name, including views."""
    versions: dict[str, set[int]] = {}
    for manifest in manifests:
        for table, state in manifest.tables.items():
            versions.setdefault(table, set()).add(state.version)
        for name, view in manifest.views.items():
            versions.setdefault(layout.view(name, view.generation), set()).add(view.version)
    return versions


def epoch_at(manifest: Manifest, lsn: int) -> int:
    """Return the newest epoch of the log, as far as the lake has passed it, that reaches back to an LSN."""
    later = [repair.epoch for repair in manifest.repairs if lsn < repair.resumes_at]
    return min(later, default=manifest.position.epoch)


def check_owner(current: Manifest | None, name: str, location: Location) -> None:
    """Raise LakeDamaged if the lake belongs to another pipeline."""
    if current is not None and current.name != name:
        raise LakeDamaged(
            f"the lake in {location} belongs to pipeline {current.name!r}, not to {name!r}",
            hint="choose another location in the sink's `path`",
            path=str(location),
        )


def disk_of(location: Location, folder: str = layout.CUTS_FOLDER) -> Disk:
    """Return the storage of a lake's manifests, or of the small files in another folder of it."""
    if location.folder is not None:
        return LocalDisk(location.folder / folder)
    # Imported late: reading a lake in a folder needs no deltalake.
    from sinks.warehouse.lake.object_disk import ObjectDisk

    return ObjectDisk(location, folder)


def encode(record: Manifest | Pending) -> bytes:
    """Return the content of a record's file."""
    fields: dict[str, object] = {}
    for name, value in structs.asdict(record).items():
        if name == "position":
            fields |= {one: getattr(value, one) for one in _POSITION}
            fields["accounts"] = {partition_name(at): count for at, count in record.position.accounts.items()}
        elif name not in _LATER or value:
            fields[name] = value
    return msgspec.json.encode(fields) + b"\n"


def _decode(path: str, data: bytes, kind: type[_File]) -> _File:
    try:
        fields = msgspec.json.decode(data, type=dict[str, object])
        if fields.get("version", MANIFEST_VERSION) != MANIFEST_VERSION:
            # Before anything else: another version may have another form, which must not look like damage.
            version = fields["version"]
            raise LakeDamaged.of_newer_release(path, version, MANIFEST_VERSION, file=path, version=version)
        position = {name: fields.pop(name) for name in _POSITION if name in fields}
        counts = msgspec.convert(position.get("accounts"), dict[str, PartitionCount])
        position["accounts"] = {parse_partition(name): count for name, count in counts.items()}
        record = msgspec.convert({**fields, "position": position}, kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise LakeDamaged(
            f"{path} is corrupt: {error}",
            hint="restore the file from a copy, or rebuild the sink",
            file=path,
        ) from error
    return record


def _stop_if_newer(error: LakeDamaged) -> None:
    """Raise the error if a newer release wrote the file: no older cut may replace it, the tables are ahead of that."""
    if "version" in error.facts:
        raise error
