"""What is known of one table under snapshot, and the record of it. Values only; `snapshot.merger` changes them."""

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
    """Rows of a table that are read because somebody asked for them: all, or those of a condition or of keys.

    `where` is the condition as it was given, which `snapshot.condition.parse` has taken; empty for none.
    """

    where: str = ""
    keys: tuple[bytes, ...] = ()


State: TypeAlias = Literal["begun", "suspected", "planned", "complete", "stopped"]


@dataclass(slots=True)
class LeafState:
    """A leaf of the last plan: what is done, and what nobody has in hand."""

    leaf: Leaf
    done: tuple[Blocks, ...]
    todo: deque[Blocks]


@dataclass(slots=True)
class TableState:
    """A table there is or was a snapshot of.

    Attributes:
        relation: pg_class.oid.
        number: 1 for its first snapshot, and so on.
        form: of the last plan, None before there is one.
        leaves: of the last plan, by oid.
        recorded: leaves that are known from the log, or from a plan that does not hold any more.
        recorded_form: digest of the form that these were read in.
        repair: keys that are to be read, as the log has them.
        repairing: a chunk of them is open.
        keys_max: of such a chunk; fewer once one had too many bytes.
        asked: somebody asked for it.
        again: the table was complete before.
        keyed: only keys are read.
        owed: rows whose records lack values that could not be read in time, by their keys as the log has them.
        sweep: of keys that only an earlier epoch of the log speaks of, where one is wanted; or of those `absent`.
        sweep_from: the sweep covers what the topic has when the stream has reached this LSN; nothing is read before
            that. 0 once it has.
        swept: keys that another table left in the topic up to this LSN are covered.
        absent: keys that somebody had read, and the table did not have: deleted from the log where it has them.
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
    owed: dict[bytes, IncompleteKey] = field(default_factory=dict)
    sweep: Sweep | None = None
    sweep_from: Lsn = Lsn(0)  # noqa: RUF009 - as above
    swept: Lsn = Lsn(0)  # noqa: RUF009 - as above
    absent: set[bytes] = field(default_factory=set)

    @classmethod
    def resumed(cls, record: SnapshotRecord) -> Self:
        """As the log has it."""
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
            owed={one.key: one for one in record.owed},
            sweep=Sweep(record.sweep) if record.sweep else None,
            sweep_from=Lsn(record.sweep_from_lsn),
            swept=Lsn(record.swept_lsn),
            absent={key.encode() for key in record.absent},
        )

    @property
    def live(self) -> bool:
        """Whether transactions must be told to it."""
        return self.state not in {"complete", "stopped"}

    @property
    def scanned(self) -> bool:
        """Whether every block of the last plan is done."""
        return self.state == "planned" and all(_whole(leaf.done) for leaf in self.leaves.values())

    @property
    def read(self) -> bool:
        """Whether nothing is left to be read."""
        swept = not self.absent if self.sweep is None else self.sweep.done
        return self.complete_but_for_sweep and swept

    @property
    def complete_but_for_sweep(self) -> bool:
        """Whether every row that the table has is in the log."""
        return self.scanned and not self.repair and not self.owed and not self.repairing

    @property
    def selective(self) -> bool:
        """Whether only some rows are read."""
        return self.keyed or self.condition is not None

    @property
    def marks(self) -> tuple[int, ...]:
        """Of the sweep that is wanted; empty for none."""
        return self.sweep.marks if self.sweep is not None else ()

    def done(self, form: Form) -> dict[int, tuple[int, tuple[Blocks, ...]]]:
        """Leaf -> file node and what is done there, all of it in that form: else rows would lack columns."""
        known: dict[int, tuple[int, tuple[Blocks, ...]]] = {}
        if self.recorded_form == digest(form):
            known = {int(oid): (leaf.filenode, leaf.done) for oid, leaf in self.recorded.items()}
        if self.form == form:
            known |= {oid: (leaf.leaf.filenode, leaf.done) for oid, leaf in self.leaves.items()}
        return known

    def give_up_plan(self) -> None:
        """It is not what it was when it was planned: plan it again."""
        self.recorded = self._recorded()
        self.recorded_form = "" if self.form is None else digest(self.form)
        self.leaves = {}
        self.state = "suspected"

    def end(self) -> None:
        """Nothing more is wanted of it now; a sweep that was not done is, when it is read again."""
        self.leaves, self.recorded, self.repair, self.owed, self.absent = {}, {}, set(), {}, set()
        self.sweep = Sweep(self.marks) if self.marks and self.state != "complete" else None
        self.where, self.condition = "", None
        self.keyed, self.again, self.paused = False, False, False

    def only_owed(self) -> None:
        """Nothing more is wanted of it but what its topic lacks."""
        owed = self.owed
        self.end()
        self.owed, self.keyed, self.again = owed, True, True

    def record(self, name: str) -> SnapshotRecord:
        """What the log is to have of it."""
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
            owed=tuple(self.owed[key] for key in sorted(self.owed)),
            sweep=self.marks,
            sweep_from_lsn=self.sweep_from,
            swept_lsn=self.swept,
            absent=tuple(sorted(key.decode() for key in self.absent)),
        )

    def _recorded(self) -> dict[str, LeafRecord]:
        return {str(oid): LeafRecord(filenode=one.leaf.filenode, done=one.done) for oid, one in self.leaves.items()}


def condition_of(where: str) -> Condition | None:
    """A condition as it was given; None for none."""
    return parse(where) if where else None


def digest(form: Form) -> str:
    """Tells one form of a table from another, also after a restart."""
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
