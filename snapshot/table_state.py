"""The state of one table's snapshot, and its record in the log."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias

from cdc.lsn import Lsn
from cdc.model.snapshot_record import Blocks, Hold, IncompleteKey, LeafRecord, SnapshotRecord
from snapshot.chunk import Form, Leaf
from snapshot.condition import Condition, parse
from snapshot.sweep import Sweep

KEYS_MAX: Final = 1000  # of a chunk that is read by key


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows that a request selects: all, those of a condition, or those of keys.

    `where` is the text of a condition that `snapshot.condition.parse` accepts; empty for none.
    """

    where: str = ""
    keys: tuple[bytes, ...] = ()


State: TypeAlias = Literal["begun", "suspected", "planned", "complete", "stopped"]


@dataclass(slots=True)
class LeafState:
    """A leaf of the last plan, with the ranges that are done and those that no chunk has taken."""

    leaf: Leaf
    done: tuple[Blocks, ...]
    todo: deque[Blocks]


@dataclass(slots=True)
class TableState:
    """A table that has or had a snapshot.

    Attributes:
        relation: pg_class.oid.
        number: number of the snapshot of this table, starting at 1.
        state: see `snapshot.merger`.
        began, ended: positions of the log; `ended` is 0 until the table is complete.
        form: form of the last plan; None before the first plan.
        leaves: leaves of the last plan, by oid.
        recorded: leaves known from the log, or from a plan that is no longer valid.
        recorded_form: digest of the form in which these were read.
        repair: keys to read, in the form of the log.
        repairing: whether a chunk of these keys is open.
        keys_max: maximum keys of such a chunk; smaller after one had too many bytes.
        asked: whether the snapshot was requested.
        again: whether the table was complete before.
        where, condition: the condition that selects rows, as text and parsed.
        keyed: only keys are read, no blocks.
        incomplete: rows to read because their records lack TOAST values, by their keys in the form of the log.
        sweep: the sweep of keys that only an earlier epoch has, or of `absent`.
        sweep_from: wait until the stream has reached this LSN, then sweep what the topic has; 0 if nothing to wait for.
        swept: keys that another table left in the topic up to this LSN are covered by a sweep.
        absent: requested keys that the table does not have; deleted from the log if it has them.
    """

    relation: int
    number: int
    state: State
    began: Lsn
    ended: Lsn = Lsn(0)  # noqa: RUF009 - Lsn is an immutable int
    row_count: int = 0
    form: Form | None = None
    leaves: dict[int, LeafState] = field(default_factory=dict)
    recorded: Mapping[str, LeafRecord] = field(default_factory=dict)
    recorded_form: str = ""
    repair: set[bytes] = field(default_factory=set)
    repairing: bool = False
    keys_max: int = KEYS_MAX
    byte_count: int = 0
    asked: bool = False
    again: bool = False
    paused: bool = False
    where: str = ""
    condition: Condition | None = None
    keyed: bool = False
    incomplete: dict[bytes, IncompleteKey] = field(default_factory=dict)
    sweep: Sweep | None = None
    sweep_from: Lsn = Lsn(0)  # noqa: RUF009 - as above
    swept: Lsn = Lsn(0)  # noqa: RUF009 - as above
    absent: set[bytes] = field(default_factory=set)

    @classmethod
    def resumed(cls, record: SnapshotRecord) -> Self:
        """Restore the state from its record."""
        return cls(
            record.relation,
            record.number,
            _state(record),
            Lsn(record.began_lsn),
            Lsn(record.ended_lsn),
            record.row_count,
            recorded=record.leaves,
            recorded_form=record.form,
            repair={key.encode() for key in record.repair},
            byte_count=record.byte_count,
            asked=record.asked,
            again=record.again,
            paused=record.hold == "paused",
            where=record.where,
            condition=condition_of(record.where),
            keyed=record.keyed,
            incomplete={one.key: one for one in record.owed},
            sweep=Sweep(record.sweep) if record.sweep else None,
            sweep_from=Lsn(record.sweep_from_lsn),
            swept=Lsn(record.swept_lsn),
            absent={key.encode() for key in record.absent},
        )

    @property
    def live(self) -> bool:
        """Whether its transactions must be reported."""
        return self.state not in {"complete", "stopped"}

    @property
    def scanned(self) -> bool:
        """Whether every block of the last plan is done."""
        return self.state == "planned" and all(_whole(leaf.done) for leaf in self.leaves.values())

    @property
    def read(self) -> bool:
        """Whether nothing is left to read or sweep."""
        swept = not self.absent if self.sweep is None else self.sweep.done
        return self.complete_but_for_sweep and swept

    @property
    def complete_but_for_sweep(self) -> bool:
        """Whether every row of the table is in the log."""
        return self.scanned and not self.repair and not self.incomplete and not self.repairing

    @property
    def selective(self) -> bool:
        """Whether only selected rows are read."""
        return self.keyed or self.condition is not None

    @property
    def marks(self) -> tuple[int, ...]:
        """Return the marks of the sweep; empty without one."""
        return self.sweep.marks if self.sweep is not None else ()

    def done(self, form: Form) -> dict[int, tuple[int, tuple[Blocks, ...]]]:
        """Return file node and finished ranges by leaf, but only if they were read in this form."""
        known: dict[int, tuple[int, tuple[Blocks, ...]]] = {}
        if self.recorded_form == digest(form):
            known = {int(oid): (leaf.filenode, leaf.done) for oid, leaf in self.recorded.items()}
        if self.form == form:
            known |= {oid: (leaf.leaf.filenode, leaf.done) for oid, leaf in self.leaves.items()}
        return known

    def give_up_plan(self) -> None:
        """Plan the table again, because it has changed."""
        self.recorded = self._recorded()
        self.recorded_form = "" if self.form is None else digest(self.form)
        self.leaves = {}
        self.state = "suspected"

    def end(self) -> None:
        """End the snapshot. A sweep that is not done is repeated with the next snapshot."""
        self.leaves, self.recorded, self.repair, self.incomplete, self.absent = {}, {}, set(), {}, set()
        self.sweep = Sweep(self.marks) if self.marks and self.state != "complete" else None
        self.where, self.condition = "", None
        self.keyed, self.again, self.paused = False, False, False

    def keep_incomplete(self) -> None:
        """End the snapshot, but still read the rows whose records are incomplete."""
        incomplete = self.incomplete
        self.end()
        self.incomplete, self.keyed, self.again = incomplete, True, True

    def record(self, name: str) -> SnapshotRecord:
        """Return its record for the log."""
        hold: Hold = "stopped" if self.state == "stopped" else "paused" if self.paused else ""
        return SnapshotRecord(
            table=name,
            relation=self.relation,
            state="complete" if self.state == "complete" else "running",
            number=self.number,
            began_lsn=self.began,
            ended_lsn=self.ended,
            row_count=self.row_count,
            leaves=self._recorded() or dict(self.recorded),
            form=digest(self.form) if self.form is not None else self.recorded_form,
            repair=tuple(sorted(key.decode() for key in self.repair)),
            byte_count=self.byte_count,
            asked=self.asked,
            again=self.again,
            begun=self.state == "begun",
            hold=hold,
            where=self.where,
            keyed=self.keyed,
            owed=tuple(self.incomplete[key] for key in sorted(self.incomplete)),
            sweep=self.marks,
            sweep_from_lsn=self.sweep_from,
            swept_lsn=self.swept,
            absent=tuple(sorted(key.decode() for key in self.absent)),
        )

    def _recorded(self) -> dict[str, LeafRecord]:
        return {str(oid): LeafRecord(filenode=one.leaf.filenode, done=one.done) for oid, one in self.leaves.items()}


def condition_of(where: str) -> Condition | None:
    """Parse a condition; None if `where` is empty."""
    return parse(where) if where else None


def digest(form: Form) -> str:
    """Return a digest that identifies a form, also after a restart."""
    relation = form.relation
    shape = (relation.namespace, relation.name, relation.replica_identity.value, form.row_filter, form.partitioned)
    columns = [(column.name, column.type_oid, column.type_modifier, column.identity) for column in relation.columns]
    return hashlib.sha256(repr((shape, columns)).encode()).hexdigest()[:16]


def _state(record: SnapshotRecord) -> State:
    if record.state == "complete":
        return "complete"
    if record.hold == "stopped":
        return "stopped"
    return "begun" if record.begun else "suspected"


def _whole(done: Sequence[Blocks]) -> bool:
    return len(done) == 1 and done[0] == (0, None)
