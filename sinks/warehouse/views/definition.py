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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from cdc.errors import ViewRefused
from sinks.warehouse.lake.table_naming import known_names_hint, matching_tables, quoted, sql_name
from sinks.warehouse.views.determinism import Finding, check_beginning, check_tree, check_words, line_of
from sinks.warehouse.views.header import Header, read_header
from sinks.warehouse.views.macros import Expanded, check_as_of, expand, kinds_of
from sinks.warehouse.views.meaning.lake_types import Source, Types, sources_of
from sinks.warehouse.views.meaning.pg_types import PgType
from sinks.warehouse.views.meaning.queries import translated
from sinks.warehouse.views.meaning.refusal import NotProven, check_spelling
from sinks.warehouse.views.safety import check_reads

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
    """

    name: str
    sql: str
    file: Path
    header: Header
    plain: str
    references: tuple[Reference, ...]

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
    """

    view: View
    sql: str
    tables: dict[str, str]
    views: dict[str, str]
    sha: str
    columns: Mapping[str, PgType] | None = None
    relies_on: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The view's name."""
        return self.view.name


def load_views(folder: Path) -> tuple[View, ...]:
    """Read every ``*.sql`` of the folder; each view follows the views it reads. Raises ViewRefused."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".sql")
    except OSError as error:
        raise ViewRefused(
            f"cannot read the views' folder {folder}: {error.strerror}", hint="check `views` of the sink in cdc.toml"
        ) from error
    views: dict[str, View] = {}
    for file in files:
        view = read_view(file)
        same = views.get(view.name.lower())
        if same is not None:
            raise ViewRefused(
                f"{same.file} and {file.name} define the same view: view names are case-insensitive",
                hint="rename one of them",
            )
        views[view.name.lower()] = view
    return in_order(views.values())


def views_of(settings: Warehouse) -> tuple[View, ...]:
    """Read the views of a sink from their files. Raises ViewRefused."""
    return load_views(Path(settings.views)) if settings.views else ()


def read_view(file: Path) -> View:
    """Read one file. Raises ViewRefused."""
    name = file.stem
    if not _NAME.fullmatch(name):
        raise ViewRefused(
            f"{file}: invalid view name {name!r}", hint="use letters, digits and _, no digit first, at most 100"
        )
    try:
        sql = file.read_bytes()[: _BYTES_MAX + 1].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ViewRefused(f"cannot read {file}: {error}", hint="a view is a text file in UTF-8", view=name) from error
    if len(sql) > _BYTES_MAX:
        raise ViewRefused(f"{file} is larger than {_BYTES_MAX >> 20} MiB", view=name)
    return parse_view(file, sql)


def parse_view(file: Path, sql: str, *, is_stored: bool = False) -> View:
    """Parse the view in a file's text, or in a text that an earlier generation stored. Raises ViewRefused."""
    header = read_header(sql, is_stored=is_stored)
    if isinstance(header, Finding):
        raise _refused(file, header)
    dialect = header.dialect
    plain = _expanded(file, sql, dialect)
    tokens, query = _parse(file, plain, dialect)
    finding = check_words(tokens) or check_reads(query) or check_tree(query, dialect)
    if finding is not None:
        raise _refused(file, finding)
    references = tuple(
        sorted((_reference(table, dialect) for table in table_names(query)), key=lambda found: found.start)
    )
    for found in references:
        shown = plain[found.start : found.end].replace("``", "`").replace('""', '"').lstrip('`"')
        if not shown.lower().startswith(found.parts[0].lstrip('`"').lower()):
            raise _refused(
                file, Finding(f"cannot locate {found} in the query", "write the query differently", found.line)
            )
    return View(file.stem, sql, file, header, plain, references)


def bind_query(query: View, views: Collection[str], tables: Collection[str], types: Types | None = None) -> BoundView:
    """Bind a query that is not a view of the lake to these views and lake tables. Raises ViewRefused."""
    return _Binding({view.lower(): view for view in views}, tables, types or {}).bind(query)


def bind_each(
    views: Sequence[View], tables: Collection[str], types: Types | None = None
) -> Iterator[BoundView | tuple[View, ViewRefused]]:
    """As `bind`, one view at a time; a refused view is returned with its error."""
    binding = _Binding({view.name.lower(): view.name for view in views}, tables, types or {})
    for view in views:
        try:
            yield binding.bind(view)
        except ViewRefused as error:
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


def _expanded(file: Path, sql: str, dialect: str) -> str:
    """Replace the macros for joins in time by SQL. Raises ViewRefused."""
    try:
        tokens = list(sqlglot.tokenize(sql, read=dialect))
    except SqlglotError:
        return sql  # `_parse` reports the error
    found = expand(sql, tokens)
    if isinstance(found, Expanded) and found.as_of:
        kinds = kinds_of(table_names(_parse(file, found.sql, dialect)[1]))
        finding = check_as_of(found.as_of, kinds)
        found = finding or expand(sql, tokens, kinds)
    if isinstance(found, Finding):
        raise _refused(file, found)
    return found.sql


def _parse(file: Path, sql: str, dialect: str) -> tuple[list[Token], exp.Query]:
    try:
        tokens = list(sqlglot.tokenize(sql, read=dialect))
        finding = check_beginning(tokens)
        if finding is not None:
            raise _refused(file, finding)
        found = sqlglot.parse(_masked(sql, tokens), read=dialect, error_level=ErrorLevel.IMMEDIATE)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        what = str(first.get("description") or "").rstrip(".")
        if "<" in what or not what:  # the parser shows its own objects
            what = "syntax error"
        raise _refused(
            file, Finding(f"is not valid SQL: {what}{near}", _dialect_hint(dialect), int(first.get("line") or 0))
        ) from error
    except SqlglotError as error:
        raise _refused(
            file, Finding(f"is not valid SQL: {str(error).splitlines()[0]}", _dialect_hint(dialect))
        ) from error
    statements = [one for one in found if one is not None and not isinstance(one, exp.Semicolon)]
    if len(statements) != 1:
        raise _refused(
            file, Finding(f"contains {len(statements)} statements", "a view is one SELECT", line_of(statements[1]))
        )
    if not isinstance(statements[0], exp.Query) or isinstance(statements[0], exp.Table):
        raise _refused(file, Finding("is not a SELECT", "a view is one SELECT", line_of(statements[0])))
    return tokens, statements[0]


def _masked(sql: str, tokens: Sequence[Token]) -> str:
    """Mask what sqlglot 30 misreads, without changing positions: ``group by window(...)`` as the WINDOW clause."""
    text = list(sql)
    for before, token in pairwise(tokens):
        if before.token_type == TokenType.GROUP_BY and token.token_type == TokenType.WINDOW:
            text[token.start : token.end + 1] = "wind0w"
    return "".join(text)


def _dialect_hint(dialect: str) -> str:
    if dialect == "spark":
        return "it is read as Spark SQL; add the first line `-- dialect: postgres` for PostgreSQL's SQL"
    return "it is read as PostgreSQL's SQL, because a comment above the query says so"


def table_names(query: exp.Query) -> list[exp.Table]:
    """Return the tables a query reads: without names of its own WITH, functions in FROM, and names in hints."""
    return [
        table
        for table in query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier | exp.Dot) and not table.find_ancestor(exp.Hint) and not _is_own(table)
    ]


def _is_own(table: exp.Table) -> bool:
    """Whether a WITH around it defines the name. A name is known after its definition; if recursive, also inside."""
    if table.args.get("db"):
        return False
    below: exp.Expr = table
    while (above := below.parent) is not None:
        scope = above if isinstance(above, exp.With) else above.args.get("with_")
        if isinstance(scope, exp.With):
            for definition in scope.expressions:
                if definition is below and not scope.args.get("recursive"):
                    break
                if definition.alias.lower() == table.name.lower():
                    return True
                if definition is below:
                    break
        if isinstance(above, exp.With):
            # The query that owns this WITH sees all of it; its definitions see only what precedes them.
            below = above.parent or above
            continue
        below = above
    return False


def _parts(table: exp.Table) -> tuple[str, ...]:
    return tuple(part.name for part in table.parts)


def _reference(table: exp.Table, dialect: str) -> Reference:
    spans = [part.meta for part in table.parts]
    parts = _parts(table)
    if dialect == "postgres":
        parts = tuple(part.name if part.args.get("quoted") else part.name.lower() for part in table.parts)
    alias = "" if table.alias else parts[-1]
    return Reference(parts, line_of(table), spans[0]["start"], spans[-1]["end"] + 1, alias)


def in_order(found: Iterable[View]) -> tuple[View, ...]:
    """Sort views so that each follows the views it reads. Raises ViewRefused for a cycle."""
    views = {view.name.lower(): view for view in found}
    graph: dict[str, list[str]] = {name: [] for name in views}
    for name, view in views.items():
        # A qualified name never means a view.
        read = {found.parts[0].lower() for found in view.references if len(found.parts) == 1}
        graph[name] = sorted(read & views.keys())
    try:
        order = tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        names = [views[name].name for name in error.args[1]]
        raise ViewRefused(
            f"views read each other in a cycle: {' -> '.join(reversed(names))}",
            hint="remove the cycle; to read a table with the name of a view, qualify it: public.orders",
            view=names[0],
        ) from error
    return tuple(views[name] for name in order)


@dataclass(slots=True)
class _Binding:
    """Binds views in their order, and keeps the columns of those in PostgreSQL's SQL for the views that read them."""

    names: Mapping[str, str]
    tables: Collection[str]
    types: Types
    columns: dict[str, Mapping[str, PgType] | None] = field(default_factory=dict)

    def bind(self, view: View) -> BoundView:
        """Bind the next view. Raises ViewRefused."""
        read_tables: dict[str, str] = {}
        read_views: dict[str, str] = {}
        pieces: list[str] = []
        at = 0
        quote = _pg_quoted if view.dialect == "postgres" else quoted
        for found in view.references:
            target = _resolve(view, found, self.names, self.tables)
            name = temporary(target)
            if target.startswith("views/"):
                read_views[name] = target.removeprefix("views/")
            else:
                read_tables[name] = target
            alias = f" as {quote(found.alias)}" if found.alias else ""
            pieces += [view.plain[at : found.start], quote(name), alias]
            at = found.end
        sql = "".join([*pieces, view.plain[at:]])
        bound = BoundView(view, sql, read_tables, read_views, hashlib.sha256(sql.encode()).hexdigest())
        if view.dialect == "postgres":
            bound = self._translated(bound)
        self.columns[view.name] = bound.columns
        return bound

    def _translated(self, bound: BoundView) -> BoundView:
        """Return it in Spark's SQL. Raises ViewRefused for what is not known to be equal there."""
        view = bound.view
        for found in view.references:
            target = _resolve(view, found, self.names, self.tables)
            if not target.startswith("views/") and target not in self.types:
                hint = "the sink records them at its next cut" if self.types else "they are in a lake that has a cut"
                what = f"types of the columns of {sql_name(target)} are not known yet"
                raise _refused(view.file, Finding(what, hint, found.line), construct="unknown types")
        tokens, query = _parse(view.file, bound.sql, "postgres")
        finding = check_spelling(tokens)
        if finding is not None:
            raise _refused(view.file, finding, construct=finding.message)
        read = {name: self.columns.get(other) for name, other in bound.views.items()}
        sources = sources_of(bound.tables, self.types) | {
            name: Source(columns, name=bound.views[name]) for name, columns in read.items()
        }
        try:
            spark = translated(query, sources, c=view.header.collation == "C")
        except NotProven as refused:
            raise _refused(view.file, refused.finding, construct=refused.finding.message) from refused
        sha = hashlib.sha256(spark.sql.encode()).hexdigest()
        return replace(bound, sql=spark.sql, sha=sha, columns=spark.columns, relies_on=spark.used)


def _pg_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _resolve(view: View, found: Reference, names: Mapping[str, str], tables: Collection[str]) -> str:
    """Return the lake table or ``views/<name>`` that a name means."""
    meant = matching_tables(found.parts, tables)
    own = names.get(found.parts[0].lower()) if len(found.parts) == 1 else None
    if own is not None:
        meant.append(f"views/{own}")
    if len(meant) == 1:
        return meant[0]
    if meant:
        can_be = ", ".join(f"the view {one[6:]}" if one.startswith("views/") else sql_name(one) for one in meant)
        write = " or ".join(_explicit(one) for one in meant if not one.startswith("views/"))
        raise _refused(view.file, Finding(f"{found} is ambiguous: {can_be}", f"write {write}", found.line))
    shown = [sql_name(table) for table in tables] + [name for name in names.values() if name != view.name]
    hint = known_names_hint(str(found), shown) or "the lake has no tables yet"
    raise _refused(view.file, Finding(f"table {found} does not exist", hint, found.line))


def _explicit(table: str) -> str:
    return f"mirror.{sql_name(table)}" if table.startswith("mirror/") else sql_name(table)


def _refused(file: Path, finding: Finding, **facts: str) -> ViewRefused:
    line = f", line {finding.line}" if finding.line else ""
    return ViewRefused(
        f"{file}{line}: {finding.message}",
        hint=finding.hint,
        view=file.stem,
        file=str(file),
        line=finding.line or None,
        **facts,
    )
