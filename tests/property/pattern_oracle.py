"""Which rows match a row pattern, by the simplest rules: every way through the pattern, in the order of preference.

A pattern is a nested tuple: ``("v", name)``, ``("seq", *parts)``, ``("or", *parts)``, ``("^",)``, ``("$",)``,
``("rep", part, least, most, is_reluctant)`` with None for no end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Tree: TypeAlias = "tuple[Any, ...]"
Path: TypeAlias = "tuple[str, ...]"
"""The variable of each row of a match."""
Meets: TypeAlias = "Callable[[int, Path], bool]"
"""Whether the last row of a path that starts at a row meets the condition of its variable."""


def text(tree: Tree) -> str:
    """The pattern as it is written in SQL."""
    kind = tree[0]
    if kind == "v":
        return str(tree[1])
    if kind in {"^", "$"}:
        return str(kind)
    if kind == "seq":
        return " ".join(map(text, tree[1:]))
    if kind == "or":
        return "(" + " | ".join(map(text, tree[1:])) + ")"
    _, part, least, most, is_reluctant = tree
    bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if bounds is None:
        bounds = "{%s,%s}" % (least, "" if most is None else most)  # noqa: UP031 - braces
    return f"({text(part)}){bounds}{'?' if is_reluctant else ''}"


def may_be_empty(tree: Tree) -> bool:
    """Whether it can match without a row."""
    if tree[0] in {"^", "$"}:
        return True
    if tree[0] == "v":
        return False
    if tree[0] == "rep":
        return tree[2] == 0 or may_be_empty(tree[1])
    return (all if tree[0] == "seq" else any)(map(may_be_empty, tree[1:]))


def paths(tree: Tree, start: int, path: Path, rows: int, meets: Meets) -> Iterator[Path]:
    """Every longer path through the tree, the preferred one first."""
    at = start + len(path)
    if tree[0] == "v":
        longer = (*path, tree[1])
        if at < rows and meets(start, longer):
            yield longer
    elif tree[0] in {"^", "$"}:
        if at == (0 if tree[0] == "^" else rows):
            yield path
    elif tree[0] == "or":
        for part in tree[1:]:
            yield from paths(part, start, path, rows, meets)
    elif tree[0] == "seq":
        if len(tree) == 1:
            yield path
        else:
            for longer in paths(tree[1], start, path, rows, meets):
                yield from paths(("seq", *tree[2:]), start, longer, rows, meets)
    else:
        yield from _repeated(tree, start, path, rows, meets)


def _repeated(tree: Tree, start: int, path: Path, rows: int, meets: Meets) -> Iterator[Path]:
    _, part, least, most, is_reluctant = tree
    if is_reluctant and least == 0:
        yield path
    if most is None or most > 0:
        rest = ("rep", part, max(least - 1, 0), None if most is None else most - 1, is_reluctant)
        for longer in paths(part, start, path, rows, meets):
            yield from _repeated(rest, start, longer, rows, meets)
    if not is_reluctant and least == 0:
        yield path


class SkipError(Exception):
    """AFTER MATCH SKIP names a row that does not exist, or the first one of the match."""


def matches(tree: Tree, rows: int, meets: Meets, skip: tuple[str, str]) -> list[tuple[int, Path]]:
    """First row and path of each match. `skip`: ``past``, ``next``, ``first`` or ``last``, and a variable."""
    found: list[tuple[int, Path]] = []
    start = 0
    while start < rows:
        path = next(paths(tree, start, (), rows, meets), None)
        if path is None:
            start += 1
            continue
        found.append((start, path))
        mode, name = skip
        own = [start + index for index, one in enumerate(path) if one == name]
        if mode == "past":
            start += len(path)
        elif mode == "next":
            start += 1
        elif not own or (own[0] if mode == "first" else own[-1]) == start:
            raise SkipError
        else:
            start = own[0] if mode == "first" else own[-1]
    return found
