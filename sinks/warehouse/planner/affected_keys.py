"""Which rows a cut can have changed: the rule of affected keys, for any tree of joins and blocks. Pure.

`touched(node, columns)` gives values of `columns` for, at least, each row that `node` has more or less often after the
cut than before. `around(node, columns)` gives them for, at least, each row it has before or after. Both may give more:
a key that is affected in vain costs time, one that is missing costs the truth. From these two the rules follow:

- a row of an inner join changed only if one of its parts did, beside parts that are around;
- a left join has, beside such rows, those whose partner came or went: the left part with null in its place;
- a row that depends on others (EXISTS, IN, a subquery for a value) changed if itself did, or one that it looks at;
- a group changed only if a row with its key did; so did the partition of a window;
- what is computed of many rows (a sum, a rank) has two values: that of the new side and that of the old side, each
  computed for the groups that changed.

A neighbour is the new side and the old images, so the old side itself is read for the last of these only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

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


def traced(block: Block, name: str) -> bool:
    """Whether a row of `block.source` by itself says the column's value."""
    return _is_value(block.outputs[name], block)


def of_partitions(block: Block, name: str) -> bool:
    """Whether all rows that a window puts together have the same value of the column."""
    return all(any(block.outputs[name] == one for one in window) for window in block.windows)


@dataclass(slots=True)
class AffectedKeys:
    """Builds the SQL for one set of changed relations; parts that only unchanged ones could touch are left out."""

    changed: Collection[str]
    _memo: dict[tuple[int, Refs], list[str]] = field(default_factory=dict)

    def touched(self, node: Node, wanted: Sequence[str]) -> list[str]:
        """Queries whose rows together hold the values; none when nothing it reads changed."""
        if isinstance(node, Base):
            if node.name not in self.changed:
                return []
            return [f"select {_listed(wanted)} from {images(node.name)}"]
        if isinstance(node, Sets):
            right = dict(zip(names(node.left), names(node.right), strict=True))
            others = self.touched(node.right, [right[name] for name in wanted])
            renamed = ", ".join(f"{quoted(right[name])} as {quoted(name)}" for name in wanted) or sql_pieces.ONE
            return [
                *self.touched(node.left, wanted),
                *(f"select {renamed} from ({branch})" for branch in others),
            ]
        if node.bounded:
            return self._unless_unchanged(node.source, "ORDER BY ... LIMIT in a subquery looks at all rows")
        if all(traced(node, name) for name in wanted):
            if all(of_partitions(node, name) for name in wanted):
                return self._outputs(node, wanted)
            return self._in_partitions(node, wanted)
        return self._both_values(node, wanted)

    def around(self, node: Node, wanted: Sequence[str]) -> str:
        """One query whose rows hold the values, old and new."""
        if isinstance(node, Base):
            new = f"select {_listed(wanted)} from {quoted(node.name)}"
            if node.name not in self.changed:
                return new
            return f"{new} union all select {_listed(wanted)} from {images(node.name)} where {WEIGHT} < 0"
        if isinstance(node, Sets):
            right = dict(zip(names(node.left), names(node.right), strict=True))
            renamed = ", ".join(f"{quoted(right[name])} as {quoted(name)}" for name in wanted) or sql_pieces.ONE
            other = self.around(node.right, [right[name] for name in wanted])
            return f"{self.around(node.left, wanted)} union all select {renamed} from ({other})"
        if all(traced(node, name) for name in wanted):
            read = refs(node.outputs[name] for name in wanted)
            source = self.candidates_in_source(node.source, read)
            return f"select {sql_pieces.outputs(node.outputs, wanted)} from ({source})"
        new = f"select {_listed(wanted)} from ({rows_of(node, Side.NEW, None)})"
        return sql_pieces.union([new, *self.touched(node, wanted)])

    def affected_in_source(self, source: From, wanted: Refs) -> list[str]:
        """`touched` of what FROM and WHERE make."""
        key = (id(source), wanted)
        if key not in self._memo:
            self._memo[key] = self._affected_in_source(source, wanted)
        return self._memo[key]

    def candidates_in_source(self, source: From, wanted: Refs) -> str:
        """`around` of what FROM and WHERE make."""
        if isinstance(source, Leaf):
            columns = [name for _, name in sql_pieces.ordered(wanted)]
            inner = self.around(source.node, columns)
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
            found = self.touched(source.node, columns)
            return [f"select {sql_pieces.renamed(source.alias, wanted)} from ({branch})" for branch in found]
        if isinstance(source, Inner):
            return [
                branch
                for member in source.members
                for branch in self._beside(
                    member, [one for one in source.members if one is not member], source.conditions, wanted
                )
            ]
        left, right = _of(wanted, source.left), _of(wanted, source.right)
        if isinstance(source, Depends) or (not right and not source.full):
            looked_at = self._beside(source.right, [source.left], source.conditions, left)
            return [*self.affected_in_source(source.left, left), *looked_at]
        return self._outer(source, wanted)

    def _outer(self, source: Outer, wanted: Refs) -> list[str]:
        """Pairs, and each side without the other: a partner that comes or goes changes both."""
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
        """What changed in `member`, beside what is around in the others that are on the way to the columns wanted."""
        flat, more = _spread(others, wanted | refs(conditions))
        held = _cheap([*conditions, *more], [member, *flat])
        found = self.affected_in_source(member, self._read(member, wanted, held))
        return [self._joined(member, branch, flat, held, wanted) for branch in found]

    def _read(self, member: From, wanted: Refs, conditions: Iterable[exp.Expr]) -> Refs:
        return _of(wanted | refs(conditions), member)

    def _joined(
        self, first: From, branch: str, rest: Sequence[From], conditions: Sequence[exp.Expr], wanted: Refs
    ) -> str:
        """`branch` (a piece of `first`) joined to those of the rest that lead to the columns wanted."""
        equal = _equal(first, rest, conditions, wanted)
        way = _way(first, rest, conditions, wanted - equal.keys())
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
        """Every row in a partition that a change fell into."""
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
        """Values that are computed of many rows: those of the old side and of the new, of the groups that changed."""
        if block.group is None and not block.windows:
            # A subquery's value, or one of a subquery in FROM: both sides of the rows that changed.
            raise Unplannable("a value from a subquery decides which rows there are")
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
    """The same rows with null for the columns of a side that has no partner."""
    return f"select {sql_pieces.columns(wanted, gone)} from ({branch})"


def _shared(block: Block) -> tuple[exp.Expr, ...]:
    """Values that say which rows are computed together: of a group, or of the partitions of all windows."""
    if not block.windows:
        return block.group or ()
    first, *rest = block.windows
    common = tuple(one for one in first if all(any(one == other for other in window) for window in rest))
    return tuple(one for one in common if _is_value(one, block))


def _is_value(expression: exp.Expr, block: Block) -> bool:
    return is_plain(expression) and (block.group is None or is_of_group(expression, block.group))


def _spread(sources: Sequence[From], read: Refs) -> tuple[list[From], list[exp.Expr]]:
    """The same rows, or more, as inner joins of smaller parts: an optional side that nobody reads is left out."""
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
    """Without what filters one member by a value of many rows: there are more keys then, never less."""
    blocks = {one.alias: one.node for one in members if isinstance(one, Leaf) and isinstance(one.node, Block)}

    def is_costly(condition: exp.Expr) -> bool:
        read = tables_of(condition)
        if sum(bool(read & aliases(member)) for member in members) > 1:
            return False
        return any(alias in blocks and not traced(blocks[alias], name) for alias, name in refs([condition]))

    return [one for one in conditions if not is_costly(one)]


def _equal(first: From, rest: Sequence[From], conditions: Iterable[exp.Expr], wanted: Refs) -> dict[Ref, Ref]:
    """Columns wanted that a column of `first` is equal to, where that spares a join: the key of an order in its lines.

    Without the join there are values of rows that do not exist: more keys, never less.
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


def _way(first: From, rest: Sequence[From], conditions: Sequence[exp.Expr], wanted: Refs) -> list[From]:
    """The members to join to get from `first` to the columns wanted, nearest first; equalities before other ties."""
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
