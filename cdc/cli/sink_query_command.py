"""`cdc sink query`: manages stored queries, which changed documents are matched against."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.errors import UsageError

if TYPE_CHECKING:
    from sinks.contract import Topic
    from sinks.search.rebuild import RebuildContext
    from sinks.search.rebuild_job import RebuildRequest

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

_table = click.option("--table", required=True, metavar="SCHEMA.TABLE", help="Table whose documents are matched.")


@click.group("query")
def group() -> None:
    """Manage the stored queries of a search sink.

    Each changed document is matched against the stored queries.
    """


@group.command("add")
@click.argument("name")
@click.argument("query_id")
@_table
@click.option("--query", "text", help='Query clause of a search, e.g. \'{"match": {"name": "apple"}}\'.')
@click.option(
    "--file", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="File with the query."
)
@click.option("--replay", is_flag=True, help="Also match the rows that are already in the topic.")
@config_option
@json_option
def add_command(
    name: str,
    query_id: str,
    *,
    table: str,
    text: str | None,
    file: Path | None,
    replay: bool,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Store a query under QUERY_ID for the search sink NAME.

    Replaces a query with the same id. Workers use it within 2 s: each row that matches from then on becomes a record in
    `<name>.__matches`. A match may be repeated, under the same key, but is never lost.
    """
    from sinks.search.rebuild_job import replay_query
    from sinks.search.stored_queries import StoredQueries

    query = _query(query_id, text, file)
    config = configuration(config_path)
    with _opened(name, (table,), config_path) as (context, ((topic, _),)):
        stored = StoredQueries(context.indices).add(topic, query_id, query, _settings(config, name))
        matched = replay_query(context, config, name, topic, query_id) if replay else 0
    if as_json:
        output.show_json(
            {"sink": name, "table": table, "query": query_id, "version": stored.version, "matched": matched}
        )
    else:
        more = f"; {matched} existing rows match" if replay else ""
        output.done(f"stored {query_id}, version {stored.version}{more}")


@group.command("list")
@click.argument("name")
@config_option
@json_option
def list_command(name: str, config_path: Path | None, as_json: bool) -> None:
    """Show the stored queries of the search sink NAME."""
    from sinks.search.stored_queries import StoredQueries

    with _opened(name, (), config_path) as (context, tables):
        found = [(topic.table, query) for topic, _ in tables for query in StoredQueries(context.indices).all(topic)]
    if as_json:
        output.show_json({"sink": name, "queries": [{"table": table, **query._asdict()} for table, query in found]})
        return
    if not found:
        output.note(f"sink {name!r} has no stored queries")
        return
    shown = output.table("table", "id", "version", "query", right=["version"])
    for table, query in found:
        shown.add_row(table, query.name, str(query.version), json.dumps(query.query))
    output.show_table(shown)


@group.command("remove")
@click.argument("name")
@click.argument("query_id")
@_table
@config_option
@json_option
def remove_command(name: str, query_id: str, *, table: str, config_path: Path | None, as_json: bool) -> None:
    """Remove a stored query of the search sink NAME."""
    from sinks.search.stored_queries import StoredQueries

    _check(query_id)
    with _opened(name, (table,), config_path) as (context, ((topic, _),)):
        was_there = StoredQueries(context.indices).remove(topic, query_id)
    if as_json:
        output.show_json({"sink": name, "table": table, "query": query_id, "removed": was_there})
    else:
        output.done(f"removed {query_id}" if was_there else f"no query {query_id} was stored")


def _opened(
    name: str, tables: tuple[str, ...], config_path: Path | None
) -> AbstractContextManager[tuple[RebuildContext, list[tuple[Topic, int]]]]:
    from sinks.search.rebuild_job import RebuildRequest, open_rebuild

    request: RebuildRequest = RebuildRequest(configuration(config_path), name, tables)
    return open_rebuild(request, SystemClock())


def _settings(config: Any, name: str) -> dict[str, Any]:
    from sinks.search.rebuild_job import search_of

    return search_of(config, name).index


def _query(query_id: str, text: str | None, file: Path | None) -> dict[str, Any]:
    _check(query_id)
    if (text is None) == (file is None):
        raise UsageError("give the query with either --query or --file", command="cdc sink query add --help")
    try:
        found = json.loads(text if text is not None else file.read_text() if file else "")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the query is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("the query must be a JSON object")
    return found


def _check(query_id: str) -> None:
    if _ID.fullmatch(query_id) is None:
        raise UsageError(f"invalid query id {query_id!r}: use at most 100 letters, digits, _ and -")
