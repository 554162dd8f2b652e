"""Writes time windows as plain SQL, so that the rules for groups and partitions hold for them. Pure.

    window(at, '1 hour')                 the begin of a row's window is a value of the row
    window(at, '1 hour', '10 minutes')   a row is in six windows: it is joined with as many numbers
    session_window(at, '5 minutes')      sessions are numbered in the partition of the other grouped values

Spark's rules (https://spark.apache.org/docs/latest/sql-ref-functions-builtin.html, its TimeWindow and SessionWindow):
a window has its begin and not its end, rows without a time are in none, and a session ends `gap` after its last row.
The text is only for plans. A view that is recomputed runs its own text; tests/spark/test_time_windows.py compares both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from sinks.warehouse.planner.parse import parsed, sources
from sinks.warehouse.planner.relations import Relation, Unplannable
from sinks.warehouse.planner.rewrite_check import check_faithful
from sinks.warehouse.planner.spark_text import tree_of

HOPS: Final = "__hops"
"""The relation that hopping windows are joined with: the numbers below `HOPS_MAX`."""
HOPS_MAX: Final = 1_000
_HOP: Final = "__hop"
NUMBERS: Final = Relation(HOPS, {"i": "bigint"}, ("i",), HOPS_MAX)

_CALL: Final = re.compile(r"\bwindow\s*\(|\bsession_window\s*\(", re.IGNORECASE)
MASKED_WINDOW: Final = "wind0w"
"""What `window` is called in a parsed text; it is as long."""
_SESSION: Final = "session_window"
_STRUCTS: Final = {MASKED_WINDOW: "window", _SESSION: _SESSION}
_PART: Final = re.compile(r"(\d+)\s+(microsecond|millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)
_MICROSECONDS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}


def has_time_windows(sql: str) -> bool:
    """Whether a text calls one of the functions."""
    return _CALL.search(sql) is not None


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A tumbling or hopping window over a time of type `kind`; sizes in microseconds."""

    kind: str
    size: int
    slide: int
    offset: int

    @property
    def hops(self) -> int:
        """In how many windows a row can be."""
        return -(-self.size // self.slide)

    def begin(self, at: str, hop: str) -> str:
        """Return the SQL of the begin, in microseconds since 1970; `at` and `hop` are SQL."""
        instant = self.instant(at)
        shifted = f"{instant} - {self.offset}" if self.offset else instant
        first = f"({instant} - pmod({shifted}, {self.slide}))"
        return first if self.hops == 1 else f"({first} - {hop} * {self.slide})"

    def instant(self, at: str) -> str:
        """Return the SQL of a time in microseconds since 1970."""
        return f"unix_micros({at})" if self.kind == "timestamp" else f"unix_micros(cast({at} as timestamp))"

    def start(self, at: str, hop: str) -> str:
        """Return the SQL of the begin as a time."""
        made = f"timestamp_micros({self.begin(at, hop)})"
        return f"cast({made} as timestamp_ntz)" if self.kind == "timestamp_ntz" else made


@dataclass(frozen=True, slots=True)
class Plain:
    """A text without time windows, and the tumbling and hopping ones that it had."""

    sql: str
    windows: tuple[TimeWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of a window have times from its start, which is the view's column `start`, to its end.

    Attributes:
        start: the column of the view.
        time: the column of the rows.
        window: the window.
    """

    start: str
    time: exp.Column
    window: TimeWindow

    def between(self, least: int, greatest: int) -> exp.Expr:
        """Return the condition on rows whose windows start at `least` to `greatest`, for reading fewer of them.

        Both are microseconds since 1970.
        """
        at, kind = self.time.sql("spark"), "timestamp_ntz" if self.window.kind == "timestamp_ntz" else "timestamp"
        low, high = (f"cast(timestamp_micros({moment}) as {kind})" for moment in (least, greatest + self.window.size))
        return _parsed(f"({at} >= {low} and {at} < {high})")


def without_time_windows(sql: str, relations: Mapping[str, Relation]) -> Plain:
    """Return a text with the same rows, without time windows. Raises Unplannable."""
    text = masked(sql, sqlglot.tokenize(sql, read="spark"))
    query = parsed(text)
    check_faithful(text, query)
    windows: list[TimeWindow] = []
    for select in reversed(list(query.find_all(exp.Select))):  # innermost first
        calls = [call for call in _calls(select) if call.parent_select is select]
        window = _rewrite(select, calls, relations) if calls else None
        windows += [] if window is None else [window]
    return Plain(str(query.sql("spark")), tuple(windows))


def spans_of(outputs: Mapping[str, exp.Expr], windows: Sequence[TimeWindow]) -> tuple[Span, ...]:
    """Return the columns of a view that are starts of its windows. `outputs`: column -> expression."""
    found = []
    for name, expression in outputs.items():
        columns = {column.sql("spark"): column for column in expression.find_all(exp.Column)}
        for window in windows:
            for at, hop in product(columns, columns):
                if _parsed(_parsed(window.start(at, hop)).sql("spark")) == expression:
                    found.append(Span(name, columns[at].copy(), window))
    return tuple({span.start: span for span in found}.values())


def masked(sql: str, tokens: Sequence[Token]) -> str:
    """Mask what sqlglot 30 misreads, without changing positions: ``group by window(...)`` as the WINDOW clause."""
    text = list(sql)
    for token, behind in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and behind.token_type == TokenType.L_PAREN:
            text[token.start : token.end + 1] = MASKED_WINDOW
    return "".join(text)


def _calls(part: exp.Expr) -> list[exp.Anonymous]:
    return [call for call in part.find_all(exp.Anonymous) if call.name.lower() in _STRUCTS]


@dataclass(frozen=True, slots=True)
class _Times:
    """What takes the place of a window: the SQL of its begin and end, and the name of its column."""

    name: str
    start: str
    end: str

    def of(self, part: str) -> exp.Expr:
        """Return the expression of ``start`` or ``end``, or of both as a struct."""
        whole = f"named_struct('start', {self.start}, 'end', {self.end})"
        return _parsed({"start": self.start, "end": self.end}.get(part, whole))


def _rewrite(select: exp.Select, calls: list[exp.Anonymous], relations: Mapping[str, Relation]) -> TimeWindow | None:
    """Rewrite one SELECT in place. Returns its window, None if it has sessions."""
    group = select.args.get("group")
    grouped = [one for one in (group.expressions if group is not None else []) if one in calls]
    if len(grouped) != 1 or any(call != grouped[0] for call in calls):
        raise Unplannable("a time window that is not the only one of its GROUP BY")
    call, name = grouped[0], _STRUCTS[grouped[0].name.lower()]
    if _calls(exp.Paren(this=call.expressions[0].copy())) or any(
        source.alias_or_name.lower() == name for source in sources(select)
    ):
        raise Unplannable("a time window over another one")
    time = call.expressions[0]
    kind = _kind(time, select, relations)
    at = time.sql("spark")
    window = None
    if name == _SESSION:
        times, replaced = _session(select, call, at, kind)
    else:
        window = _window_of(call, kind)
        times = _place(select, window, at)
        replaced = times.of("start")
    _name_outputs(select, name)
    call.replace(replaced)
    for node in [node for node in select.find_all(exp.Expr) if node.parent_select is select]:
        part = _part_of(node, name, call)
        if part is not None:
            node.replace(times.of(part))
    return window


def _window_of(call: exp.Anonymous, kind: str) -> TimeWindow:
    size, *more = [_microseconds(one) for one in call.expressions[1:]]
    slide, offset = (more[0] if more else size), (more[1] if len(more) > 1 else 0)
    if not 0 < slide <= size or len(more) > 2:
        raise Unplannable("a time window whose slide is not between zero and its size")
    window = TimeWindow(kind, size, slide, offset)
    if window.hops > HOPS_MAX:
        raise Unplannable(f"more than {HOPS_MAX:,} windows have the same row")
    return window


def _place(select: exp.Select, window: TimeWindow, at: str) -> _Times:
    """Put the conditions of a window into WHERE, and what a hopping one is joined with into FROM."""
    select.where(f"{at} is not null", copy=False, dialect="spark")
    hop = f"{_HOP}.i"
    if window.hops > 1:
        select.join(exp.alias_(exp.to_table(HOPS), _HOP, table=True), join_type="cross", copy=False)
        select.where(f"{hop} < {window.hops}", copy=False, dialect="spark")
        if window.size % window.slide:
            inside = f"{window.instant(at)} < {window.begin(at, hop)} + {window.size}"
            select.where(inside, copy=False, dialect="spark")
    start = window.start(at, hop)
    return _Times("window", start, f"{start} + {_interval(window.size)}")


def _session(select: exp.Select, call: exp.Anonymous, at: str, kind: str) -> tuple[_Times, exp.Expr]:
    """Number the sessions of each partition in FROM. Rows with one time are in one session, whatever their order."""
    if len(call.expressions) != 2:
        raise Unplannable("a session window without a fixed gap")
    if kind == "date":
        raise Unplannable("sessions over dates")
    gap = _interval(_microseconds(call.expressions[1]))
    read = sources(select)
    by = [one for one in select.args["group"].expressions if one is not call]
    if len(read) != 1 or not by:
        raise Unplannable("sessions of a join, or without another grouped value")
    source, alias = read[0], exp.to_identifier(read[0].alias_or_name).sql("spark")
    if any(_is_alias(one, select) for one in by):
        raise Unplannable("sessions by an alias; group by its expression")
    if any(isinstance(one, exp.Literal) or one.find(exp.Query, exp.Window, exp.AggFunc) for one in by):
        raise Unplannable("sessions by a computed value, or by the number of a column")
    over = f"over (partition by {', '.join(one.sql('spark') for one in by)} order by {at})"
    begins = f"case when {at} <= lag({at}) {over} + {gap} then 0 else 1 end"
    first = exp.select(f"{alias}.*", f"{begins} as session_begins", dialect="spark").from_(source.copy())
    if (where := select.args.get("where")) is not None:
        first = first.where(where.this.copy())
    first = first.where(f"{at} is not null", dialect="spark")
    number = f"sum({alias}.session_begins) {over} as session_number"
    second = exp.select(f"{alias}.*", number, dialect="spark").from_(first.subquery(alias))
    source.replace(second.subquery(alias))
    select.set("where", None)
    times = _Times(_SESSION, f"min({at})", f"max({at}) + {gap}")
    return times, _parsed(f"{alias}.session_number")


def _is_alias(grouped: exp.Expr, select: exp.Select) -> bool:
    """Whether a grouped name may be that of another expression of the SELECT."""
    if not isinstance(grouped, exp.Column) or grouped.table:
        return False
    name = grouped.name.lower()
    meant = [one.this for one in select.expressions if isinstance(one, exp.Alias) and one.alias.lower() == name]
    return any(not isinstance(one, exp.Column) or one.name.lower() != name for one in meant)


def _name_outputs(select: exp.Select, name: str) -> None:
    """Keep the names that Spark gives to columns without an alias."""
    for one in list(select.expressions):
        if isinstance(one, exp.Column | exp.Dot) and one.name:
            one.replace(exp.alias_(one.copy(), one.name, quoted=True))
        elif isinstance(one, exp.Anonymous) and one.name.lower() in _STRUCTS:
            one.replace(exp.alias_(one.copy(), name, quoted=True))


def _part_of(node: exp.Expr, name: str, call: exp.Anonymous) -> str | None:
    """Return ``start``, ``end`` or "" if a node is that part of the window, or all of it; None if it is neither."""
    if isinstance(node, exp.Dot) and node.this == call:
        return _known_part(node.expression.name)
    if node == call and not isinstance(node.parent, exp.Dot):
        return ""
    if isinstance(node, exp.Column) and node.table.lower() == name:
        return _known_part(node.name)
    if isinstance(node, exp.Column) and not node.table and node.name.lower() == name:
        return ""
    return None


def _known_part(name: str) -> str:
    if name.lower() not in {"start", "end"}:
        raise Unplannable("a part of a time window that is not its start or end")
    return name.lower()


def _kind(time: exp.Expr, select: exp.Select, relations: Mapping[str, Relation]) -> str:
    """Return the type of a time; only that of a table's column, or of a cast, is known here."""
    if isinstance(time, exp.Cast):
        kind = time.to.sql("spark").lower()
    elif isinstance(time, exp.Column):
        tables = [one for one in sources(select) if isinstance(one, exp.Table)]
        if time.table:
            tables = [one for one in tables if one.alias_or_name.lower() == time.table.lower()]
        found = [relations[one.name.lower()].columns for one in tables if one.name.lower() in relations]
        kinds = {kind for columns in found for column, kind in columns.items() if column.lower() == time.name.lower()}
        kind = kinds.pop() if len(kinds) == 1 else ""
    else:
        kind = ""
    if kind not in {"timestamp", "timestamp_ntz", "date"}:
        raise Unplannable("a time window over a computed time, or over a column without a time")
    return kind


def _microseconds(duration: exp.Expr) -> int:
    text = duration.name if isinstance(duration, exp.Literal) and duration.is_string else ""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise Unplannable("a time window whose duration is not fixed")
    return sum(int(number) * _MICROSECONDS[unit.lower()] for number, unit in parts)


def _interval(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"interval '{microseconds}' microsecond" if rest else f"interval '{seconds}' second"


def _parsed(sql: str) -> exp.Expr:
    return tree_of(sql)
