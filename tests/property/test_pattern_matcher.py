"""The matcher of row patterns finds what a naive search over all paths finds, over random patterns and rows."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.warehouse.patterns.conditions import Compared, Condition, IsNull, Joined, Not, OfRow, OfRows, evaluator
from sinks.warehouse.patterns.matcher import Matcher, PatternFault, RowTests, Skip
from sinks.warehouse.patterns.pattern_syntax import parse_pattern
from sinks.warehouse.patterns.program import compiled
from sinks.warehouse.patterns.trail import ALL, Aggregate, Navigation, Trail
from tests.property.pattern_oracle import Path, SkipError, Tree, matches, may_be_empty, text

NAMES: Final = ("A", "B", "C")


def _with_quantifier(part: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (0, 2), (1, 3), (2, None)])
    made = st.tuples(part, bounds, st.booleans()).map(lambda one: ("rep", one[0], *one[1], one[2]))
    return made.filter(lambda one: one[3] is not None or not may_be_empty(one[1]))


TREES: Final[st.SearchStrategy[Tree]] = st.recursive(
    st.sampled_from(NAMES).map(lambda name: ("v", name)),
    lambda part: st.one_of(
        st.lists(part, min_size=2, max_size=3).map(lambda parts: ("seq", *parts)),
        st.lists(part, min_size=2, max_size=3).map(lambda parts: ("or", *parts)),
        _with_quantifier(part),
    ),
    max_leaves=6,
)
_MAYBE: Final = st.sampled_from([0, 0, 1])
PATTERNS: Final = st.tuples(TREES, _MAYBE, _MAYBE).map(
    lambda one: ("seq", *[("^",)] * one[1], one[0], *[("$",)] * one[2]) if one[1] or one[2] else one[0]
)
ROWS: Final = st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=7)
SKIPS: Final = st.tuples(st.sampled_from(["past", "next", "first", "last"]), st.sampled_from(NAMES))


def found(tree: Tree, columns: list[list[Any]], tests: list[RowTests], skip: tuple[str, str], **more: Any) -> Any:
    """First row and path of each match, by the product's matcher; the name of the error if it refuses."""
    program = compiled(parse_pattern(text(tree)), NAMES)
    trail = more.pop("trail", Trail(len(NAMES), [], columns))
    matcher = Matcher(program, tests, len(columns[0]), trail, **more)
    try:
        each = matcher.matches(Skip(skip[0], NAMES.index(skip[1]), skip[1]))
        return [(one.start, tuple(NAMES[variable] for variable in one.variables)) for one in each]
    except PatternFault:
        return "fault"


def expected(tree: Tree, rows: int, meets: Any, skip: tuple[str, str]) -> Any:
    try:
        return matches(tree, rows, meets, skip)
    except SkipError:
        return "fault"


@settings(max_examples=400)
@given(tree=PATTERNS.filter(lambda one: not may_be_empty(one)), rows=ROWS, kinds=st.data(), skip=SKIPS)
def test_conditions_of_single_rows(tree: Tree, rows: list[int | None], kinds: st.DataObject, skip: Any) -> None:
    """Each variable accepts a random set of values, and an unknown condition is not met."""
    accepted = {name: kinds.draw(st.sets(st.integers(0, 3))) for name in NAMES}
    booleans = {name: [None if row is None else row in accepted[name] for row in rows] for name in NAMES}
    tests = [RowTests(booleans[name]) for name in NAMES]

    got = found(tree, [rows], tests, skip)

    assert got == expected(tree, len(rows), lambda start, path: booleans[path[-1]][start + len(path) - 1] is True, skip)


def _sum(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _over(rows: list[Any], start: int, path: Path, name: str | None) -> list[Any]:
    return [rows[start + index] for index, one in enumerate(path) if name is None or one == name]


@settings(max_examples=400)
@given(tree=PATTERNS.filter(lambda one: not may_be_empty(one)), rows=ROWS, skip=SKIPS, most=st.integers(0, 6))
def test_conditions_on_the_match_so_far(tree: Tree, rows: list[int | None], skip: Any, most: int) -> None:
    """A: not below the first row. B: greater than the last A, unless there is none. C: sum of all rows is small."""
    aggregates = [Aggregate("sum", ALL, 0)]
    columns: list[list[Any]] = [rows, [most] * len(rows)]
    conditions: list[Condition] = [
        Not(Compared("<", OfRow(0), OfRow(0, Navigation(True, ALL, 0)))),
        Joined(
            False,
            (
                Compared(">", OfRow(0), OfRow(0, Navigation(False, 0, 0))),
                IsNull(OfRow(0, Navigation(False, 0, 0))),
            ),
        ),
        Compared("<=", OfRows(0), OfRow(1)),
    ]
    tests = [RowTests(None, evaluator(one, columns)) for one in conditions]

    def meets(start: int, path: Path) -> bool:
        here, name = rows[start + len(path) - 1], path[-1]
        if name == "A":
            first = rows[start]
            return here is not None and first is not None and not here < first
        if name == "B":
            last = next(reversed(_over(rows, start, path, "A")), None)
            return last is None or (here is not None and here > last)
        total = _sum(_over(rows, start, path, None))
        return total is not None and total <= most

    got = found(tree, columns, tests, skip, trail=Trail(len(NAMES), aggregates, columns))

    assert got == expected(tree, len(rows), meets, skip)


@settings(max_examples=300)
@given(
    tree=TREES.filter(lambda one: not may_be_empty(one)),
    times=st.lists(st.integers(0, 9), max_size=7).map(sorted),
    size=st.integers(0, 4),
    skip=SKIPS,
)
def test_a_match_ends_within_its_time(tree: Tree, times: list[int], size: int, skip: Any) -> None:
    reach = [sum(time <= first + size for time in times) for first in times]
    odd = [time % 2 == 0 for time in times]
    tests = [RowTests(odd), RowTests(), RowTests([not one for one in odd])]

    def meets(start: int, path: Path) -> bool:
        row = start + len(path) - 1
        return times[row] - times[start] <= size and {"A": odd[row], "B": True, "C": not odd[row]}[path[-1]]

    assert found(tree, [times], tests, skip, reach=reach) == expected(tree, len(times), meets, skip)


@pytest.mark.parametrize("function", ["count", "sum", "min", "max", "avg"])
@given(rows=st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(-5, 5))), max_size=8), cut=st.data())
def test_aggregates_can_be_taken_back(function: str, rows: list[tuple[int, int | None]], cut: st.DataObject) -> None:
    values = [value for _, value in rows]
    each = [Aggregate(function, variable, 0) for variable in (ALL, 0, 1, 2)]
    trail = Trail(len(NAMES), each, [values])
    trail.begin(0)
    for variable, _ in rows:
        trail.append(variable)

    length = cut.draw(st.integers(0, len(rows)))
    trail.cut(length)

    for index, one in enumerate(each):
        of = [value for variable, value in rows[:length] if one.variable in {ALL, variable} and value is not None]
        plain = {"count": len(of), "sum": _sum(of), "min": min(of, default=None), "max": max(of, default=None)}
        plain["avg"] = sum(of) / len(of) if of else None
        assert trail.value(index) == plain[function]


def test_a_pattern_that_tries_too_much_ends_by_a_limit() -> None:
    rows = [1] * 40
    tree: Tree = ("seq", ("rep", ("rep", ("v", "A"), 1, None, False), 1, None, False), ("v", "B"))
    never = [False] * len(rows)
    of_match = [RowTests(None, lambda _: True), RowTests(never), RowTests()]
    of_row = [RowTests(), RowTests(never), RowTests()]

    assert found(tree, [rows], of_match, ("past", "A"), steps_max=100_000) == "fault"
    assert found(tree, [rows], of_row, ("past", "A"), steps_max=100_000) == []


@pytest.mark.parametrize(("anchored", "want"), [("^", [(0, ("A",))]), ("$", [(2, ("A",))])])
def test_anchors_are_the_ends_of_the_partition(anchored: str, want: list[tuple[int, Path]]) -> None:
    parts: list[Tree] = [("^",), ("v", "A")] if anchored == "^" else [("v", "A"), ("$",)]

    assert found(("seq", *parts), [[1, 1, 1]], [RowTests()] * 3, ("next", "A")) == want
