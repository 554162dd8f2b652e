"""A table as the catalog describes it, and the rule that chooses its key. Values only, no SQL.

The key is an immediate unique index over NOT NULL columns that the stream also shows. That is the replica identity
index; or the primary key, if the identity is DEFAULT or FULL; or the index over the columns that `source.keys` names.
No other unique index counts: creating or rebuilding one would change which one is chosen, and with it every key of the
topic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cdc.model.relation import Column, Relation, ReplicaIdentity


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column.

    Attributes:
        name: without quotes.
        type_oid: pg_type.oid.
        type_modifier: atttypmod, -1 for none.
        type_name: as format_type prints it.
        not_null: declared NOT NULL.
        generated: computed from other columns; the stream has it only if the publication includes it.
        toastable: a value may be stored out of line; the stream then omits it in an update that does not change it.
        virtual: generated, and computed when it is read; the stream never has it.
    """

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    not_null: bool
    generated: bool
    toastable: bool
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A unique index over plain columns that is not partial."""

    name: str
    primary: bool
    replica_identity: bool
    immediate: bool
    valid: bool
    columns: tuple[str, ...]
    not_null: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition that holds rows. Its own replica identity decides how much of an old row is logged."""

    namespace: str
    name: str
    kind: str
    persistence: str
    replica_identity: ReplicaIdentity

    @property
    def table(self) -> str:
        """``schema.table``."""
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class Key:
    """The key, or why there is none. Exactly one of the two is not empty."""

    columns: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table that the configuration selects.

    Attributes:
        oid: pg_class.oid; of a partitioned table the root's, as in Relation messages.
        kind: relkind: ``r`` table, ``p`` partitioned, ``f`` foreign.
        persistence: relpersistence: ``p`` permanent, ``u`` unlogged.
        key: key columns in key order; empty if there is no usable key.
        key_problem: why there is none.
        keyless: there is no key, and the configuration accepts that.
        columns: in table order.
        leaves: of a partitioned table, all partitions that hold rows.
        is_partition: it is a partition of a table that is not selected.
        wanted_key: the columns that the configuration names as key; empty for none.
        owner: the role that owns it.
        owned: the querying role has the rights of the owner.
    """

    oid: int
    namespace: str
    name: str
    kind: str
    persistence: str
    replica_identity: ReplicaIdentity
    key: tuple[str, ...]
    key_problem: str
    keyless: bool
    columns: tuple[SourceColumn, ...]
    leaves: tuple[Leaf, ...] = ()
    is_partition: bool = False
    wanted_key: tuple[str, ...] = ()
    owner: str = ""
    owned: bool = True

    @property
    def table(self) -> str:
        """``schema.table``, for messages and patterns."""
        return f"{self.namespace}.{self.name}"

    def relation(self, published: Collection[str] | None) -> Relation:
        """Return the Relation message that the stream would send for it now.

        `published` are the columns that its publication has; None for all that are not generated.
        """
        full = self.replica_identity is ReplicaIdentity.FULL
        columns = tuple(
            Column(column.name, column.type_oid, column.type_modifier, full or column.name in self.key)
            for column in self.columns
            if (not column.generated if published is None else column.name in published)
        )
        return Relation(self.oid, self.namespace, self.name, self.replica_identity, columns)

    @property
    def partitioned(self) -> bool:
        """Whether it is the root of partitions and is published as one table."""
        return self.kind == "p"

    @property
    def unpublishable(self) -> str:
        """Why PostgreSQL cannot publish it at all; empty if it can."""
        if self.kind == "f":
            return "it is a foreign table: its rows are not in this server's WAL"
        if self.persistence == "u":
            return "it is unlogged: its rows are not in the WAL"
        if self.persistence == "t":
            return "it is temporary"
        return ""

    @property
    def problem(self) -> str:
        """Why it cannot be captured as configured; empty if it can."""
        if self.unpublishable:
            return self.unpublishable
        return "" if self.key or self.keyless else self.key_problem


def choose_key(identity: ReplicaIdentity, indexes: Sequence[Index], wanted: Sequence[str] = ()) -> Key:
    """Choose the key by the rule above. `wanted` are the columns that the configuration names."""
    if wanted and identity is ReplicaIdentity.FULL:
        return _usable_first([index for index in indexes if set(index.columns) == set(wanted)], wanted)
    key = _key_of_identity(identity, indexes)
    if wanted and key.columns and set(key.columns) != set(wanted):
        shown = ", ".join(key.columns)
        return Key(problem=f"source.keys names ({', '.join(wanted)}), but updates and deletes show only ({shown})")
    return key


def _usable_first(indexes: Sequence[Index], wanted: Sequence[str]) -> Key:
    if not indexes:
        return Key(problem=f"source.keys names ({', '.join(wanted)}), but no unique index has exactly these columns")
    keys = [_key_of(index) for index in sorted(indexes, key=lambda index: index.name)]
    return next((key for key in keys if key.columns), keys[0])


def _key_of_identity(identity: ReplicaIdentity, indexes: Sequence[Index]) -> Key:
    if identity is ReplicaIdentity.NOTHING:
        return Key(problem="its replica identity is NOTHING: updates and deletes show no key")
    if identity is ReplicaIdentity.INDEX:
        index = next((index for index in indexes if index.replica_identity), None)
        if index is None:
            return Key(problem="the index of its replica identity is gone")
    else:
        index = next((index for index in indexes if index.primary), None)
        if index is None:
            return Key(problem="it has no primary key")
    return _key_of(index)


def _key_of(index: Index) -> Key:
    what = "primary key" if index.primary else f"index {index.name}"
    if not index.immediate:
        return Key(problem=f"its {what} is deferrable: two rows may have the same key inside a transaction")
    if not index.valid:
        return Key(problem=f"its {what} is not valid yet")
    if not index.not_null:
        return Key(problem=f"its {what} has columns that may be null")
    if index.generated:
        return Key(problem=f"its {what} has a generated column, which a publication may leave out")
    return Key(columns=index.columns)
