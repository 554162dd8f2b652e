"""Reads views from SQL files, validates and orders them, and binds their names to lake tables. Pure except for reading.

A view is one SELECT in ``<name>.sql``, in Spark's SQL or, with the first line ``-- dialect: postgres``, in
PostgreSQL's. It names tables as people do (`orders`, `public.orders`, `history.orders`, `archive.orders`, another
view); `bind` turns those names into names of one cut's tables. The rest of a text in Spark's SQL runs unchanged. A text
in PostgreSQL's SQL is translated then, because its meaning depends on the types of the columns that it reads.
`sinks.warehouse.views.determinism` refuses queries whose result would differ from run to run.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from cdc.errors import ViewRefused
from sinks.warehouse.lake.table_naming import known_names_hint, matching_tables, quoted, sql_name
from sinks.warehouse.views.determinism import Finding, Line, check_tree, check_words, line_of
from sinks.warehouse.views.header import Header, read_header
from sinks.warehouse.views.meaning.grammar import check_grammar
from sinks.warehouse.views.meaning.lake_types import Source, Types, sources_of
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.query_text import expanded, parsed, refused, table_names
from sinks.warehouse.views.row_patterns import BoundPattern, RowPattern, read_patterns
from sinks.warehouse.views.safety import check_reads
from sinks.warehouse.views.translation import in_spark, unreadable

if TYPE_CHECKING:
    from cdc.config.settings import Warehouse

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_BYTES_MAX: Final = 1 << 20  # a larger file is most likely not a query


@dataclass(frozen=True, slots=True)
class Reference:
    """A table's name in a query.

    Attributes:
        parts: as written, from the outermost: ("history", "public", "orders").
        line: in the file.
        start: start of the name in `View.plain`, in characters.
        end: end of the name, exclusive.
        alias: name of the table in the query if the query gives no alias, which is the last part; empty otherwise.
    """

    parts: tuple[str, ...]
    line: int
    start: int
    end: int
    alias: str

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class View:
    """A view as defined by its file.

    Attributes:
        name: the file's name without ``.sql``.
        sql: the file's text.
        file: path of the file.
        header: settings in the comments above the query.
        plain: `sql` without macros, in the view's dialect, with tables named as written.
        references: the tables it reads, in the order of `plain`.
        patterns: its clauses MATCH_RECOGNIZE, each behind one of the references.
    """

    name: str
    sql: str
    file: Path
    header: Header
    plain: str
    references: tuple[Reference, ...]
    patterns: tuple[RowPattern, ...] = ()

    @property
    def plan(self) -> str:
        """The plan that the file requests; ``auto`` chooses by measured costs."""
        return self.header.plan

    @property
    def dialect(self) -> str:
        """``spark`` or ``postgres``."""
        return self.header.dialect

    @property
    def late(self) -> str:
        """How late rows are handled; ``correct`` recomputes a window that was already published."""
        return self.header.late

    @property
    def text_sha(self) -> str:
        """Hash of the query without its header. Another query makes another generation of the view."""
        lines = self.sql.splitlines()
        first = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("--")), 0)
        return hashlib.sha256("\n".join([self.dialect, *lines[first:]]).strip().encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class BoundView:
    """A view with resolved names.

    Attributes:
        view: the view.
        sql: the text that Spark runs; it reads temporary views.
        tables: name of a temporary view -> lake table, as ``mirror/public.orders``.
        views: name of a temporary view -> another view's name.
        sha: hash of `sql`; if it changes, the view must be recomputed.
        columns: its columns and their types in PostgreSQL; None for a view in Spark's SQL.
        relies_on: name of a temporary view -> column -> the Spark type that `sql` was translated for.
        shifts: pairs of a place in the text before translation, and the same place in `View.plain`, ascending.
        patterns: name of a temporary view -> what it has instead of a clause MATCH_RECOGNIZE.
    """

    view: View
    sql: str
    tables: dict[str, str]
    views: dict[str, str]
    sha: str
    columns: Mapping[str, PgType] | None = None
    relies_on: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shifts: tuple[tuple[int, int], ...] = ()
    patterns: Mapping[str, BoundPattern] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The view's name."""
        return self.view.name

    def line_in_file(self, line: int) -> Line:
        """Return a place in `sql`, before its translation, as a place in the file."""
        column, plain = getattr(line, "column", 0), self.view.plain
        if not column or not self.shifts or plain != self.view.sql:
            return Line(line)
        place = sum(len(one) + 1 for one in self.sql.split("\n")[: line - 1]) + column - 1
        ours, its = self.shifts[bisect_right(self.shifts, (place, len(plain))) - 1]
        at = its + place - ours
        return Line(line, at - plain.rfind("\n", 0, at))


@dataclass(frozen=True, slots=True)
class ViewFiles:
    """The views of a folder. A file that cannot be used concerns no other file.

    Attributes:
        views: each follows the views it reads.
        refused: view -> why its file cannot be used; by the file's name without ``.sql``, even if that is invalid.
    """

    views: tuple[View, ...] = ()
    refused: Mapping[str, ViewRefused] = field(default_factory=dict)


def read_views(folder: Path) -> ViewFiles:
    """Read every ``*.sql`` of the folder. Raises ViewRefused if the folder itself cannot be read."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".sql")
    except OSError as error:
        raise ViewRefused(
            f"cannot read the views' folder {folder}: {error.strerror}", hint="check `views` of the sink in cdc.toml"
        ) from error
    same: dict[str, list[Path]] = {}
    for file in files:
        same.setdefault(file.stem.lower(), []).append(file)
    views: list[View] = []
    failed: dict[str, ViewRefused] = {}
    for file in files:
        others = [other.name for other in same[file.stem.lower()] if other != file]
        try:
            if others:
                what = f"defines the same view as {', '.join(others)}: view names are case-insensitive"
                raise refused(file, Finding(what, "rename one of them"))
            views.append(read_view(file))
        except ViewRefused as error:
            failed[file.stem] = error
    in_order, cycles = ordered(views)
    return ViewFiles(in_order, failed | cycles)


def load_views(folder: Path) -> tuple[View, ...]:
    """Read every ``*.sql`` of the folder; each view follows the views it reads. Raises the first ViewRefused."""
    files = read_views(folder)
    for error in files.refused.values():
        raise error
    return files.views


def views_of(settings: Warehouse) -> ViewFiles:
    """Read the views of a sink from their files. Raises ViewRefused if the folder cannot be read."""
    return read_views(Path(settings.views)) if settings.views else ViewFiles()


def is_view_name(name: str) -> bool:
    """Whether a view can have this name."""
    return _NAME.fullmatch(name) is not None


def read_view(file: Path) -> View:
    """Read one file. Raises ViewRefused."""
    if not is_view_name(file.stem):
        what = f"invalid view name {file.stem!r}"
        raise refused(file, Finding(what, "use letters, digits and _, no digit first, at most 100"))
    try:
        data = file.read_bytes()
        if len(data) > _BYTES_MAX:
            raise refused(file, Finding(f"is larger than {_BYTES_MAX >> 20} MiB", "a view is one SELECT"))
        sql = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = Line(data.count(b"\n", 0, error.start) + 1)
        raise refused(file, Finding("is not text in UTF-8", "save it in UTF-8", line)) from error
    except OSError as error:
        raise refused(file, Finding(f"cannot be read: {error.strerror}", "check its type and rights")) from error
    return parse_view(file, sql)


def parse_view(file: Path, sql: str, *, is_stored: bool = False) -> View:
    """Parse the view in a file's text, or in a text that an earlier generation stored. Raises ViewRefused."""
    try:
        return _parsed_view(file, sql, is_stored=is_stored)
    except ViewRefused:
        raise
    except Exception as error:
        # The parser fails on some texts, e.g. deeply nested ones. That must concern this view only.
        raise refused(file, unreadable(error)) from error


def _parsed_view(file: Path, sql: str, *, is_stored: bool) -> View:
    header = read_header(sql, is_stored=is_stored)
    if isinstance(header, Finding):
        raise refused(file, header)
    dialect = header.dialect
    plain = expanded(file, sql, dialect)
    tokens, query = parsed(file, plain, dialect)
    finding = check_words(tokens) or check_reads(query) or check_tree(query, dialect)
    if finding is None and dialect == "postgres":
        finding = check_grammar(tokens, query)
    if finding is not None:
        raise refused(file, finding)
    references = tuple(
        sorted((_reference(table, dialect) for table in table_names(query)), key=lambda found: found.start)
    )
    for found in references:
        shown = plain[found.start : found.end].replace("``", "`").replace('""', '"').lstrip('`"')
        if not shown.lower().startswith(found.parts[0].lstrip('`"').lower()):
            raise refused(
                file, Finding(f"cannot locate {found} in the query", "write the query differently", found.line)
            )
    return View(file.stem, sql, file, header, plain, references, read_patterns(file, plain, tokens, dialect))


def bind_query(query: View, views: Collection[str], tables: Collection[str], types: Types | None = None) -> BoundView:
    """Bind a query that is not a view of the lake to these views and lake tables. Raises ViewRefused."""
    return _Binding({view.lower(): view for view in views}, tables, types or {}).bind(query)


def bind_each(
    views: Sequence[View], tables: Collection[str], types: Types | None = None, behind: Collection[str] = ()
) -> Iterator[BoundView | tuple[View, ViewRefused]]:
    """As `bind`, one view at a time; a refused view is returned with its error, and so are views that read it.

    `behind` has further views that are left behind.
    """
    names = {name.lower(): name for name in behind} | {view.name.lower(): view.name for view in views}
    binding = _Binding(names, tables, types or {}, behind=set(behind))
    for view in views:
        try:
            yield binding.bind(view)
        except ViewRefused as error:
            binding.behind.add(view.name)
            yield view, error


def bind(views: Sequence[View], tables: Collection[str], types: Types | None = None) -> tuple[BoundView, ...]:
    """Bind views to lake tables (``mirror/public.orders`` ...), in the given order. Raises ViewRefused.

    A name means a view, or a mirror by table or by schema and table. The prefixes ``mirror.``, ``history.`` and
    ``archive.`` give the kind. An ambiguous name is refused.

    Args:
        views: each follows the views it reads.
        tables: of the lake.
        types: lake table -> its columns; needed for views in PostgreSQL's SQL.
    """
    binding = _Binding({view.name.lower(): view.name for view in views}, tables, types or {})
    return tuple(binding.bind(view) for view in views)


def inputs(view: BoundView) -> frozenset[str]:
    """Return the lake tables that a view reads directly, not through other views."""
    return frozenset(view.tables.values())


def temporary(table: str) -> str:
    """Return the temporary view for a lake table or ``views/<name>`` in the SQL that runs: a plain identifier."""
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', table)[:60].lower()}_{digest}"


def _parts(table: exp.Table) -> tuple[str, ...]:
    return tuple(part.name for part in table.parts)


def _reference(table: exp.Table, dialect: str) -> Reference:
    spans = [part.meta for part in table.parts]
    parts = _parts(table)
    if dialect == "postgres":
        parts = tuple(part.name if part.args.get("quoted") else part.name.lower() for part in table.parts)
    alias = "" if table.alias else parts[-1]
    return Reference(parts, line_of(table), spans[0]["start"], spans[-1]["end"] + 1, alias)


def ordered(found: Iterable[View]) -> tuple[tuple[View, ...], dict[str, ViewRefused]]:
    """Sort views so that each follows the views it reads. Views in a cycle are returned apart, with their errors."""
    views = {view.name.lower(): view for view in found}
    read = {name: {one: at for one, at in reads(view).items() if one in views} for name, view in views.items()}
    try:
        return tuple(views[name] for name in TopologicalSorter(read).static_order()), {}
    except CycleError:
        cycles = {name: cycle for name in views if (cycle := _cycle(name, read))}
    hint = "remove the cycle; to read a table with the name of a view, qualify it: public.orders"
    errors = {}
    for name, cycle in cycles.items():
        shown = " -> ".join(views[one].name for one in cycle)
        finding = Finding(f"views read each other in a cycle: {shown}", hint, read[name][cycle[1]].line)
        errors[views[name].name] = refused(views[name].file, finding)
    rest = {name: read[name].keys() - cycles.keys() for name in views if name not in cycles}
    return tuple(views[name] for name in TopologicalSorter(rest).static_order()), errors


def reads(view: View) -> dict[str, Reference]:
    """Return the names, in lower case, that can mean views in a query: qualified names mean tables."""
    return {found.parts[0].lower(): found for found in view.references if len(found.parts) == 1}


def _cycle(name: str, read: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the shortest path from a view to itself; empty if there is none."""
    seen: set[str] = set()
    paths = [[name]]
    for path in paths:
        for other in read[path[-1]]:
            if other == name:
                return [*path, name]
            if other not in seen:
                seen.add(other)
                paths.append([*path, other])
    return []


@dataclass(slots=True)
class _Binding:
    """Binds views in their order, and keeps the columns of those in PostgreSQL's SQL for the views that read them."""

    names: Mapping[str, str]
    tables: Collection[str]
    types: Types
    behind: set[str] = field(default_factory=set)
    columns: dict[str, Mapping[str, PgType] | None] = field(default_factory=dict)
    meant: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    def bind(self, view: View) -> BoundView:
        """Bind the next view. Raises ViewRefused."""
        read_tables: dict[str, str] = {}
        read_views: dict[str, str] = {}
        patterns: dict[str, BoundPattern] = {}
        pieces: list[str] = []
        shifts: list[tuple[int, int]] = []
        at = end = 0
        quote = _pg_quoted if view.dialect == "postgres" else quoted
        for found in view.references:
            target = self._resolve(view, found)
            name = temporary(target)
            if target.startswith("views/"):
                read_views[name] = target.removeprefix("views/")
            else:
                read_tables[name] = target
            ends = found.end
            for pattern in (one for one in view.patterns if one.start == found.start):
                bound_pattern = pattern.bound(name)
                name, ends = bound_pattern.name, pattern.end
                patterns[name] = bound_pattern
            alias = f" as {quote(found.alias)}" if found.alias else ""
            more = [view.plain[at : found.start], f"{quote(name)}{alias}"]
            shifts += [(end, at), (end + len(more[0]), found.start)]
            pieces += more
            at, end = ends, end + sum(map(len, more))
        sql = "".join([*pieces, view.plain[at:]])
        shifts.append((end, at))
        sha = hashlib.sha256(sql.encode()).hexdigest()
        bound = BoundView(view, sql, read_tables, read_views, sha, shifts=tuple(shifts), patterns=patterns)
        if view.dialect == "postgres":
            bound = self._translated(bound)
        self.columns[view.name] = bound.columns
        return bound

    def _translated(self, bound: BoundView) -> BoundView:
        """Return it in Spark's SQL. Raises ViewRefused for what is not known to be equal there."""
        view = bound.view
        for found in view.references:
            target = self._resolve(view, found)
            if not target.startswith("views/") and target not in self.types:
                hint = "the sink records them at its next cut" if self.types else "they are in a lake that has a cut"
                what = f"types of the columns of {sql_name(target)} are not known yet"
                raise refused(view.file, Finding(what, hint, found.line), construct="unknown types")
        read = {name: self.columns.get(other) for name, other in bound.views.items()}
        sources = sources_of(bound.tables, self.types) | {
            name: Source(columns, name=bound.views[name]) for name, columns in read.items()
        }
        given = tuple(
            (name, None if one.columns is None else tuple(one.columns.items()), tuple(one.hidden.items()), one.name)
            for name, one in sorted(sources.items())
        )
        spark = in_spark(view.file, bound.sql, (view.header.collation == "C", view.header.zones), given)
        if isinstance(spark, Finding):
            finding = replace(spark, line=bound.line_in_file(spark.line))
            raise refused(view.file, finding, construct=finding.message)
        sha = hashlib.sha256(spark.sql.encode()).hexdigest()
        return replace(bound, sql=spark.sql, sha=sha, columns=spark.columns, relies_on=spark.used)

    def _resolve(self, view: View, found: Reference) -> str:
        """Return the lake table or ``views/<name>`` that a name means. Raises ViewRefused."""
        if found.parts not in self.meant:
            self.meant[found.parts] = matching_tables(found.parts, self.tables)
        target = _resolve(view, found, self.names, self.tables, self.meant[found.parts])
        name = target.removeprefix("views/")
        if name != target and name in self.behind:
            raise ViewRefused(f"the view {name} is left behind", view=view.name)
        return target


def _pg_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _resolve(
    view: View, found: Reference, names: Mapping[str, str], tables: Collection[str], matching: Sequence[str]
) -> str:
    meant = list(matching)
    own = names.get(found.parts[0].lower()) if len(found.parts) == 1 else None
    if own is not None:
        meant.append(f"views/{own}")
    if len(meant) == 1:
        return meant[0]
    if meant:
        can_be = ", ".join(f"the view {one[6:]}" if one.startswith("views/") else sql_name(one) for one in meant)
        write = " or ".join(_explicit(one) for one in meant if not one.startswith("views/"))
        raise refused(view.file, Finding(f"{found} is ambiguous: {can_be}", f"write {write}", found.line))
    shown = [sql_name(table) for table in tables] + [
        name for name in names.values() if name != view.name and is_view_name(name)
    ]
    hint = known_names_hint(str(found), shown) or "the lake has no tables yet"
    raise refused(view.file, Finding(f"table {found} does not exist", hint, found.line))


def _explicit(table: str) -> str:
    return f"mirror.{sql_name(table)}" if table.startswith("mirror/") else sql_name(table)
