"""Chooses the columns that a view is kept by. Any columns that identify single rows are right; these are cheap.

A view's rows are replaced key by key, so its key need not be unique. But few rows should share a key, and it should be
found from a change without reading much. Suitable are the keys of tables that contribute to every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from sinks.warehouse.planner.affected_keys import of_partitions, traced
from sinks.warehouse.planner.relations import Unplannable
from sinks.warehouse.planner.restrict import in_from, required
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
    is_plain,
    names,
    refs,
)


def view_key(node: Block | Sets) -> tuple[str, ...]:
    """Return the columns to keep a view by; never empty. Raises Unplannable if there are none."""
    found = _key(node)
    if found:
        return _without_computed(node, found) if isinstance(node, Block) else found
    if isinstance(node, Sets):
        raise Unplannable("no column of its UNION identifies the rows that a change affects")
    if node.bounded:
        raise Unplannable("ORDER BY ... LIMIT depends on all rows")
    if node.group == () and not node.windows:
        raise Unplannable("it aggregates all rows into one: every change affects it")
    if node.windows:
        raise Unplannable("the partition columns of its windows are not among its columns")
    raise Unplannable("none of its columns identifies the rows that a change affects")


def _without_computed(block: Block, columns: Sequence[str]) -> tuple[str, ...]:
    """Drop columns that are computed of another one alone, such as a window's end of its start."""
    kept = list(columns)
    for name in reversed(columns):
        others = [block.outputs[other] for other in kept if other != name]
        if any(_is_computed_of(block.outputs[name], other) for other in others):
            kept.remove(name)
    return tuple(kept)


def _is_computed_of(expression: exp.Expr, other: exp.Expr) -> bool:
    if not is_plain(expression) or not other.find(exp.Column):
        return False
    rest = expression.copy().transform(lambda node: exp.null() if node == other else node)
    return rest != expression and rest.find(exp.Column) is None


def unique_key(node: Node) -> tuple[str, ...]:
    """Return columns that no two rows share, a null being equal to a null; empty if none are known."""
    if isinstance(node, Base):
        return node.key
    if isinstance(node, Sets):
        return ()
    if node.distinct:
        return tuple(node.outputs)
    if node.group is not None:
        return _group_key(node, node.group)
    owners = _undetermined(_own_tables(node.source), node.source)
    mandatory = {leaf.alias for leaf in required(node.source)}
    if any(leaf.alias not in mandatory for leaf in owners):
        return ()
    parts = [_placed_key(node, leaf) for leaf in owners]
    return tuple(name for part in parts for name in part) if all(parts) else ()


def _group_key(block: Block, group: tuple[exp.Expr, ...]) -> tuple[str, ...]:
    """Return the columns grouped by; for tables whose key is among them, only that key."""
    found = {one: name for name, one in block.outputs.items() if one in group}
    if not group or any(one not in found for one in group):
        return ()
    keyed = {leaf.alias: key for leaf in required(block.source) if (key := _placed_key(block, leaf))}
    keyed = {alias: key for alias, key in keyed.items() if set(key) <= set(found.values())}
    # A table that one of these looks up by its key also has one row for it.
    determined = set(keyed)
    for leaf in _own_tables(block.source):
        pairs = _equal_columns(block.source)
        equal = {one.name for one, other in pairs if one.table == leaf.alias and other.table in keyed}
        if (key := unique_key(leaf.node)) and set(key) <= equal:
            determined.add(leaf.alias)
    spared = {name for one, name in found.items() if (ref := _ref(one)) and ref[0] in determined}
    rest = [name for name in found.values() if name not in spared]
    return tuple(dict.fromkeys([*(name for key in keyed.values() for name in key), *rest]))


def _key(node: Block | Sets) -> tuple[str, ...]:
    cheap = [name for name in names(node) if _is_cheap(node, name)] or [
        name for name in names(node) if _is_determined(node, name)
    ]
    if isinstance(node, Sets):
        left, right = node.left, node.right
        if isinstance(left, Base) or isinstance(right, Base):
            return ()
        here = dict(zip(names(right), names(left), strict=True))
        shared = set(_key(left)) & {here[name] for name in _key(right)}
        return tuple(name for name in cheap if name in shared) or tuple(cheap)
    if node.group is not None or node.distinct or node.windows:
        return _of_table(node, cheap) or tuple(cheap)
    mandatory = {leaf.alias for leaf in required(node.source)}
    owners = [leaf for leaf in _own_tables(node.source) if set(_placed_key(node, leaf)) & set(cheap)]
    owners = [leaf for leaf in owners if set(_placed_key(node, leaf)) <= set(cheap)]
    chosen = [leaf for leaf in owners if leaf.alias in mandatory] or owners
    found = [name for leaf in _undetermined(chosen, node.source) for name in _placed_key(node, leaf)]
    return tuple(found) or _of_partition(node, cheap) or tuple(cheap)


def _of_partition(block: Block, columns: Sequence[str]) -> tuple[str, ...]:
    """Return those columns that are the partition of what replaces a clause MATCH_RECOGNIZE."""
    place = _places(block)
    for leaf in required(block.source):
        if isinstance(leaf.node, Base) and leaf.node.partition:
            found = [place.get((leaf.alias, column)) for column in leaf.node.partition]
            if all(name in columns for name in found):
                return tuple(name for name in found if name)
    return ()


def _is_cheap(node: Node, name: str) -> bool:
    """Whether a row alone determines its value of the column, all the way down to a table."""
    if isinstance(node, Base):
        return True
    if isinstance(node, Sets):
        other = dict(zip(names(node.left), names(node.right), strict=True))
        return _is_cheap(node.left, name) and _is_cheap(node.right, other[name])
    placed = {leaf.alias: leaf.node for leaf in in_from(node.source)}
    read = refs([node.outputs[name]])
    return _is_determined(node, name) and all(_is_cheap(placed[alias], column) for alias, column in read)


def _is_determined(node: Node, name: str) -> bool:
    """Whether a row of FROM determines the value, which a subquery there may have computed from many rows."""
    if isinstance(node, Base):
        return True
    if isinstance(node, Sets):
        other = dict(zip(names(node.left), names(node.right), strict=True))
        return _is_determined(node.left, name) and _is_determined(node.right, other[name])
    read = refs([node.outputs[name]])
    return not node.bounded and bool(read) and traced(node, name) and of_partitions(node, name)


def _of_table(block: Block, columns: Sequence[str]) -> tuple[str, ...]:
    """Return those columns that equal the key of a table that contributes to every row; empty if there is none.

    Of several tables, one that no other looks up by its key: an order has one customer, a customer has many orders.
    """
    place = _places(block)
    for one, other in _equal_columns(block.source):
        if (name := place.get((other.table, other.name))) is not None:
            place.setdefault((one.table, one.name), name)
    found: dict[str, tuple[str, ...]] = {}
    leaves = [leaf for leaf in required(block.source) if unique_key(leaf.node)]
    for leaf in leaves:
        key = [place.get((leaf.alias, column)) for column in unique_key(leaf.node)]
        if all(name in columns for name in key):
            found[leaf.alias] = tuple(name for name in key if name)
    keyed = [leaf for leaf in leaves if leaf.alias in found]
    return next((found[leaf.alias] for leaf in _undetermined(keyed, block.source)), ())


def _placed_key(block: Block, leaf: Leaf) -> tuple[str, ...]:
    """Return the block's columns that are the leaf's key; empty if a part of it is missing."""
    key, place = unique_key(leaf.node), _places(block)
    found = tuple(place[(leaf.alias, column)] for column in key if (leaf.alias, column) in place)
    return found if len(found) == len(key) else ()


def _places(block: Block) -> dict[Ref, str]:
    """Return column of a table -> the block's column that equals it."""
    return {ref: name for name, one in reversed(block.outputs.items()) if (ref := _ref(one)) is not None}


def _ref(expression: exp.Expr) -> Ref | None:
    return (expression.table, expression.name) if isinstance(expression, exp.Column) else None


def _own_tables(source: From) -> list[Leaf]:
    """Return the tables in FROM, without those that rows only depend on."""
    if isinstance(source, Leaf):
        return [source]
    if isinstance(source, Inner):
        return [leaf for member in source.members for leaf in _own_tables(member)]
    if isinstance(source, Depends):
        return _own_tables(source.left)
    return [*_own_tables(source.left), *_own_tables(source.right)]


def _undetermined(leaves: Sequence[Leaf], source: From) -> list[Leaf]:
    """Drop tables that another one of them looks up by their key."""
    mandatory = {leaf.alias for leaf in required(source)}
    left = list(leaves)
    for leaf in reversed(leaves):
        key = unique_key(leaf.node)
        others = {other.alias for other in left if other is not leaf and other.alias in mandatory}
        equal = {one.name for one, other in _equal_columns(source) if one.table == leaf.alias and other.table in others}
        if key and set(key) <= equal:
            left.remove(leaf)
    return left


def _equal_columns(source: From) -> Iterable[tuple[exp.Column, exp.Column]]:
    if isinstance(source, Leaf):
        return
    if isinstance(source, Depends):
        yield from _equal_columns(source.left)
        return
    for condition in source.conditions:
        if not isinstance(condition, exp.EQ):
            continue
        left, right = condition.left, condition.right
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            yield left, right
            yield right, left
    if isinstance(source, Outer):
        yield from _equal_columns(source.left)
        yield from _equal_columns(source.right)
    else:
        for member in source.members:
            yield from _equal_columns(member)
