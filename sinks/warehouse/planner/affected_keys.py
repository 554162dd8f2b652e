"""Finds the keys that a cut may have changed, for any tree of joins and blocks. Pure, SQL to SQL.

`affected(node, columns)` gives values of `columns` for at least each row whose number in `node` differs before and
after the cut. `candidates(node, columns)` gives them for at least each row that it has before or after. Both may give
more keys, which costs time, but never fewer, which would give wrong rows. Whatever these rules do not cover raises
Unplannable, and the view is recomputed. The rules:

- A row of an inner join changed only if one of its parts did, beside candidate rows of the other parts.
- A left join also has rows whose partner came or went: the left part with nulls in its place.
- A row that depends on others (EXISTS, IN, a scalar subquery) changed if it changed itself, or one that it reads.
- A subquery that is the same for every row is a constant: the caller checks that its rows are (`constants`).
- A group changed only if a row with its key did. The same holds for the partition of a window.
- A value computed from many rows (a sum, a rank) has two values: that of the new side and that of the old side. Each
  is computed for the groups that changed.

The candidate rows of a neighbour are the new side and the old images. So the old side itself is read only by the last
rule. Keys are compared null-safely, and images cover the whole difference (`tests/property/view_mutants.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.planner import sql_pieces
from sinks.warehouse.planner.relations import WEIGHT, Unplannable, images
from sinks.warehouse.planner.restrict import Restriction, Side, rows_of
from sinks.warehouse.planner.tree import (
    Base,
    Block,
    Depends,
    From,
    Inner,
    Leaf,
    Node,
    Outer,
    Ref,
    Sets,
    aliases,
    is_of_group,
    is_plain,
    names,
    refs,
    tables_of,
)

Refs = frozenset[Ref]
_LOOKUP_ROWS_MAX: Final = 100_000  # a join with so few rows costs less than the rows of keys that it removes


def traced(block: Block, name: str) -> bool:
    """Whether a row of `block.source` alone determines the column's value."""
    return _is_value(block.outputs[name], block)


def of_partitions(block: Block, name: str) -> bool:
    """Whether all rows of a window's partition have the same value of the column."""
    return all(any(block.outputs[name] == one for one in window) for window in block.windows)


@dataclass(slots=True)
class AffectedKeys:
    """Builds the SQL for one set of changed relations. Parts that only unchanged relations affect are left out."""

    changed: Collection[str]
    constants: dict[Leaf, list[str]] = field(default_factory=dict)
    """Subqueries that are the same for every row -> queries that have a row if one of its rows may have changed."""
    _memo: dict[tuple[int, Refs], list[str]] = field(default_factory=dict)

    def affected(self, node: Node, wanted: Sequence[str]) -> list[str]:
        """Return queries whose rows together contain the values; empty if none of its inputs changed."""
        if isinstance(node, Base):
            if node.name not in self.changed:
                return []
            return [f"select {_listed(wanted)} from {images(node.name)}"]
        if isinstance(node, Sets):
            right = dict(zip(names(node.left), names(node.right), strict=True))
            others = self.affected(node.right, [right[name] for name in wanted])
            renamed = ", ".join(f"{quoted(right[name])} as {quoted(name)}" for name in wanted) or sql_pieces.ONE
            return [
                *self.affected(node.left, wanted),
                *(f"select {renamed} from ({branch})" for branch in others),
            ]
        if node.bounded:
            return self._unless_unchanged(node.source, "ORDER BY ... LIMIT in a subquery depends on all rows")
        if all(traced(node, name) for name in wanted):
            if all(of_partitions(node, name) for name in wanted):
                return self._outputs(node, wanted)
            return self._in_partitions(node, wanted)
        return self._both_values(node, wanted)

    def candidates(self, node: Node, wanted: Sequence[str]) -> str:
        """Return one query whose rows contain the values, old and new."""
        if isinstance(node, Base):
            new = f"select {_listed(wanted)} from {quoted(node.name)}"
            if node.name not in self.changed:
                return new
            return f"{new} union all select {_listed(wanted)} from {images(node.name)} where {WEIGHT} < 0"
        if isinstance(node, Sets):
            right = dict(zip(names(node.left), names(node.right), strict=True))
            renamed = ", ".join(f"{quoted(right[name])} as {quoted(name)}" for name in wanted) or sql_pieces.ONE
            other = self.candidates(node.right, [right[name] for name in wanted])
            return f"{self.candidates(node.left, wanted)} union all select {renamed} from ({other})"
        if all(traced(node, name) for name in wanted):
            read = refs(node.outputs[name] for name in wanted)
            source = self.candidates_in_source(node.source, read)
            return f"select {sql_pieces.outputs(node.outputs, wanted)} from ({source})"
        new = f"select {_listed(wanted)} from ({rows_of(node, Side.NEW, None)})"
        return sql_pieces.union([new, *self.affected(node, wanted)])

    def affected_in_source(self, source: From, wanted: Refs) -> list[str]:
        """As `affected`, for the result of FROM and WHERE."""
        key = (id(source), wanted)
        if key not in self._memo:
            self._memo[key] = self._affected_in_source(source, wanted)
        return self._memo[key]

    def candidates_in_source(self, source: From, wanted: Refs) -> str:
        """As `candidates`, for the result of FROM and WHERE."""
        if isinstance(source, Leaf):
            columns = [name for _, name in sql_pieces.ordered(wanted)]
            inner = self.candidates(source.node, columns)
            return f"select {sql_pieces.renamed(source.alias, wanted)} from ({inner})"
        if isinstance(source, Depends):
            return self.candidates_in_source(source.left, wanted)
        if isinstance(source, Inner):
            owner = next((member for member in source.members if _of(wanted, member)), source.members[0])
            rest = [member for member in source.members if member is not owner]
            conditions = _cheap(source.conditions, source.members)
            piece = self.candidates_in_source(owner, self._read(owner, wanted, conditions))
            return self._joined(owner, piece, rest, conditions, wanted)
        left, right = _of(wanted, source.left), _of(wanted, source.right)
        if not right and not source.full:
            return self.candidates_in_source(source.left, left)
        piece = self.candidates_in_source(source.left, self._read(source.left, wanted, source.conditions))
        both = self._joined(source.left, piece, [source.right], source.conditions, wanted)
        branches = [both, _without(self.candidates_in_source(source.left, left), wanted, aliases(source.right))]
        if source.full:
            branches.append(_without(self.candidates_in_source(source.right, right), wanted, aliases(source.left)))
        return sql_pieces.union(branches)

    def _affected_in_source(self, source: From, wanted: Refs) -> list[str]:
        if isinstance(source, Leaf):
            columns = [name for _, name in sql_pieces.ordered(wanted)]
            found = self.affected(source.node, columns)
            return [f"select {sql_pieces.renamed(source.alias, wanted)} from ({branch})" for branch in found]
        if isinstance(source, Inner):
            return [
                branch
                for member in source.members
                for branch in self._beside(
                    member, [one for one in source.members if one is not member], source.conditions, wanted
                )
            ]
        if isinstance(source, Depends) and not source.conditions:
            self._constant(source.right)
            return self.affected_in_source(source.left, wanted)
        left, right = _of(wanted, source.left), _of(wanted, source.right)
        if isinstance(source, Depends) or (not right and not source.full):
            looked_at = self._beside(source.right, [source.left], source.conditions, left)
            return [*self.affected_in_source(source.left, left), *looked_at]
        return self._outer(source, wanted)

    def _constant(self, source: From) -> None:
        branches = self.affected_in_source(source, frozenset())
        if branches and not isinstance(source, Leaf):
            raise Unplannable("a semi join without a condition")
        if branches and isinstance(source, Leaf):
            self.constants[source] = branches

    def _outer(self, source: Outer, wanted: Refs) -> list[str]:
        """Return pairs, and each side without the other: a partner that comes or goes changes both."""
        left, right, conditions = source.left, source.right, source.conditions
        pairs = [
            *self._beside(left, [right], conditions, wanted),
            *self._beside(right, [left], conditions, wanted),
        ]
        optional = [aliases(right), aliases(left)] if source.full else [aliases(right)]
        alone = [_without(pair, wanted, side) for side in optional for pair in pairs]
        alone += [_without(one, wanted, aliases(right)) for one in self.affected_in_source(left, _of(wanted, left))]
        if source.full:
            alone += [
                _without(one, wanted, aliases(left)) for one in self.affected_in_source(right, _of(wanted, right))
            ]
        return [*pairs, *alone]

    def _beside(self, member: From, others: Sequence[From], conditions: Sequence[exp.Expr], wanted: Refs) -> list[str]:
        """Return changes of `member`, joined to candidate rows of the other members that lead to the wanted columns."""
        flat, more = _spread(others, wanted | refs(conditions))
        held = _cheap([*conditions, *more], [member, *flat])
        found = self.affected_in_source(member, self._read(member, wanted, held))
        return [self._joined(member, branch, flat, held, wanted, filtered=True) for branch in found]

    def _read(self, member: From, wanted: Refs, conditions: Iterable[exp.Expr]) -> Refs:
        return _of(wanted | refs(conditions), member)

    def _joined(
        self,
        first: From,
        branch: str,
        rest: Sequence[From],
        conditions: Sequence[exp.Expr],
        wanted: Refs,
        *,
        filtered: bool = False,
    ) -> str:
        """Join `branch` (a piece of `first`) to those of the other members that lead to the wanted columns.

        With `filtered`, also to small tables that are looked up and have a condition: that gives fewer keys.
        """
        equal = _equal(first, rest, conditions, wanted)
        way = _way(first, rest, conditions, wanted - equal.keys())
        if filtered:
            way += _lookups([first, *way], [one for one in rest if one not in way], conditions)
        known = frozenset().union(*map(aliases, [first, *way]))
        held = [one for one in conditions if tables_of(one) <= known]
        text, seen, left = f"({branch}) p0", aliases(first), list(held)
        for number, member in enumerate(way, 1):
            seen |= aliases(member)
            now = [one for one in left if tables_of(one) <= seen]
            left = [one for one in left if not tables_of(one) <= seen]
            piece = f"({self.candidates_in_source(member, self._read(member, wanted - equal.keys(), held))}) p{number}"
            on = " and ".join(f"({sql_pieces.over_pieces(one)})" for one in now)
            text += f" join {piece} on {on}" if on else f" cross join {piece}"
        where = " and ".join(f"({sql_pieces.over_pieces(one)})" for one in left)
        return f"select {sql_pieces.columns(wanted, equal=equal)} from {text}" + (f" where {where}" if where else "")

    def _outputs(self, block: Block, wanted: Sequence[str]) -> list[str]:
        read = refs(block.outputs[name] for name in wanted)
        chosen = sql_pieces.outputs(block.outputs, wanted)
        return [f"select {chosen} from ({branch})" for branch in self.affected_in_source(block.source, read)]

    def _in_partitions(self, block: Block, wanted: Sequence[str]) -> list[str]:
        """Return every row in a partition that contains a change."""
        read = refs(block.outputs[name] for name in wanted)
        found = self._outputs(block, wanted)
        for window in block.windows:
            if not window:
                self._unless_unchanged(block.source, "a window over all rows")
                continue
            if not all(_is_value(one, block) for one in window):
                raise Unplannable("a window partitioned by a value that is computed of many rows")
            same = refs(window)
            marks = ", ".join(f"{sql_pieces.over_pieces(one)} as `p{index}`" for index, one in enumerate(window))
            on = " and ".join(f"w.`p{index}` <=> {sql_pieces.over_pieces(one)}" for index, one in enumerate(window))
            rows = self.candidates_in_source(block.source, read | same)
            found += [
                f"select {sql_pieces.outputs(block.outputs, wanted)} from ({rows}) p0 where exists "
                f"(select 1 from (select {marks} from ({branch})) w where {on})"
                for branch in self.affected_in_source(block.source, same)
            ]
        return found

    def _both_values(self, block: Block, wanted: Sequence[str]) -> list[str]:
        """Return values computed from many rows: those of the old and of the new side, for the groups that changed."""
        if block.group is None and not block.windows:
            # The value of a subquery, also of one in FROM: both sides of the changed rows would be needed.
            raise Unplannable("the value of a subquery decides which rows there are")
        by = _shared(block)
        if not by:
            return self._unless_unchanged(block.source, "one value of all rows decides which rows there are")
        marks = ", ".join(f"{sql_pieces.over_pieces(one)} as `g{index}`" for index, one in enumerate(by))
        branches = self.affected_in_source(block.source, refs(by))
        if not branches:
            return []
        keys = f"select distinct * from ({sql_pieces.union([f'select {marks} from ({one})' for one in branches])})"
        restriction = Restriction(f"({keys})", tuple((f"g{index}", one) for index, one in enumerate(by)))
        return [f"select {_listed(wanted)} from ({rows_of(block, side, restriction)})" for side in (Side.NEW, Side.OLD)]

    def _unless_unchanged(self, source: From, why: str) -> list[str]:
        if self.affected_in_source(source, frozenset()):
            raise Unplannable(why)
        return []


def _listed(wanted: Sequence[str]) -> str:
    return ", ".join(map(quoted, wanted)) or sql_pieces.ONE


def _of(wanted: Refs, source: From) -> Refs:
    own = aliases(source)
    return frozenset(ref for ref in wanted if ref[0] in own)


def _without(branch: str, wanted: Refs, gone: frozenset[str]) -> str:
    """Return the same rows with nulls for the columns of a side without a partner."""
    return f"select {sql_pieces.columns(wanted, gone)} from ({branch})"


def _shared(block: Block) -> tuple[exp.Expr, ...]:
    """Return the values that identify rows computed together: of a group, or of the partitions of all windows."""
    if not block.windows:
        return block.group or ()
    first, *rest = block.windows
    common = tuple(one for one in first if all(any(one == other for other in window) for window in rest))
    return tuple(one for one in common if _is_value(one, block))


def _is_value(expression: exp.Expr, block: Block) -> bool:
    return is_plain(expression) and (block.group is None or is_of_group(expression, block.group))


def _spread(sources: Sequence[From], read: Refs) -> tuple[list[From], list[exp.Expr]]:
    """Return the same rows, or more, as inner joins of smaller parts; unread optional sides are left out."""
    flat: list[From] = []
    conditions: list[exp.Expr] = []
    for source in sources:
        if isinstance(source, Depends) or (
            isinstance(source, Outer) and not source.full and not _of(read, source.right)
        ):
            inner, more = _spread([source.left], read)
        elif isinstance(source, Inner):
            inner, more = _spread(source.members, read | refs(source.conditions))
            more = [*source.conditions, *more]
        else:
            inner, more = [source], []
        flat += inner
        conditions += more
    return flat, conditions


def _cheap(conditions: Iterable[exp.Expr], members: Sequence[From]) -> list[exp.Expr]:
    """Drop conditions that filter one member by a value of many rows: that gives more keys, never fewer."""
    blocks = {one.alias: one.node for one in members if isinstance(one, Leaf) and isinstance(one.node, Block)}

    def is_costly(condition: exp.Expr) -> bool:
        read = tables_of(condition)
        if sum(bool(read & aliases(member)) for member in members) > 1:
            return False
        return any(alias in blocks and not traced(blocks[alias], name) for alias, name in refs([condition]))

    return [one for one in conditions if not is_costly(one)]


def _equal(first: From, rest: Sequence[From], conditions: Iterable[exp.Expr], wanted: Refs) -> dict[Ref, Ref]:
    """Return wanted columns that equal a column of `first`, if that saves a join: the key of an order in its lines.

    Without the join there are values of rows that do not exist: more keys, never fewer.
    """
    same: dict[Ref, Ref] = {}
    for one in conditions:
        if isinstance(one, exp.EQ) and isinstance(one.left, exp.Column) and isinstance(one.right, exp.Column):
            for mine, its in ((one.left, one.right), (one.right, one.left)):
                if mine.table in aliases(first):
                    same[(its.table, its.name)] = (mine.table, mine.name)
    found: dict[Ref, Ref] = {}
    for member in rest:
        own = _of(wanted, member)
        if own and own <= same.keys():
            found |= {ref: same[ref] for ref in own}
    return found


def _lookups(known: Sequence[From], others: Sequence[From], conditions: Sequence[exp.Expr]) -> list[From]:
    """Return small tables that `known` look up by their whole key, up to those that have a condition of their own."""
    seen, found = frozenset().union(*map(aliases, known)), list[Leaf]()
    left = [one for one in others if isinstance(one, Leaf) and isinstance(one.node, Base)]
    while more := next((one for one in left if _is_small_lookup(one, seen, conditions)), None):
        left.remove(more)
        found.append(more)
        seen |= {more.alias}
    kept: list[From] = []
    needed: frozenset[str] = frozenset()
    for leaf in reversed(found):
        if leaf.alias in needed or any(tables_of(one) == {leaf.alias} for one in conditions):
            kept.insert(0, leaf)
            needed |= frozenset().union(*(tables_of(one) for one in conditions if leaf.alias in tables_of(one)))
    return kept


def _is_small_lookup(leaf: Leaf, seen: frozenset[str], conditions: Sequence[exp.Expr]) -> bool:
    if not isinstance(leaf.node, Base) or not leaf.node.key or not 0 < leaf.node.rows <= _LOOKUP_ROWS_MAX:
        return False
    equal = {
        mine.name
        for one in conditions
        if isinstance(one, exp.EQ) and isinstance(one.left, exp.Column) and isinstance(one.right, exp.Column)
        for mine, its in ((one.left, one.right), (one.right, one.left))
        if mine.table == leaf.alias and its.table in seen
    }
    return set(leaf.node.key) <= equal


def _way(first: From, rest: Sequence[From], conditions: Sequence[exp.Expr], wanted: Refs) -> list[From]:
    """Return the members to join from `first` to the wanted columns, nearest first; equalities come first."""
    owners = [member for member in rest if _of(wanted, member)]
    before: dict[int, From | None] = {id(first): None}
    order: list[From] = []
    equal = [one for one in conditions if isinstance(one, exp.EQ | exp.NullSafeEQ)]
    for ties in (equal, list(conditions)):
        queue = deque([first, *order])
        while queue:
            here = queue.popleft()
            for member in rest:
                if id(member) not in before and any(
                    tables_of(one) & aliases(here) and tables_of(one) & aliases(member) for one in ties
                ):
                    before[id(member)] = here
                    order.append(member)
                    queue.append(member)
        if all(id(owner) in before for owner in owners):
            break
    needed: set[int] = set()
    for owner in owners:
        at: From | None = owner
        while at is not None:
            needed.add(id(at))
            at = before.get(id(at))
    return [member for member in [*order, *(one for one in owners if id(one) not in before)] if id(member) in needed]
