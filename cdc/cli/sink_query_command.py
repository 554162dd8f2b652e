"""`cdc sink query`: stored queries, which documents are matched with as they change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sinks.contract import Topic
    from sinks.search.rebuild import RebuildContext
    from sinks.search.rebuild_job import RebuildRequest

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

_table = click.option("--table", required=True, metavar="SCHEMA.TABLE", help="The table whose documents it is about.")


@click.group("query")
def group() -> None:
    """Queries of a search sink that changed documents are matched with."""


@group.command("add")
@click.argument("name")
@click.argument("query_id")
@_table
@click.option("--query", "text", help='As under "query" in a search: \'{"match": {"name": "apple"}}\'.')
@click.option("--file", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A file with it.")
@click.option("--replay", is_flag=True, help="Match what the topic holds already, too.")
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
    """Store a query for the search sink NAME, under QUERY_ID; another one under the same id replaces it.

    Each row that matches and is applied from now on (workers hear of it within 2 s) becomes a record on
    `<name>.__matches`. A record's key tells it from all others; it may come again, never get lost.
    """
    from sinks.search.rebuild_job import replay_query
    from sinks.search.stored_queries import StoredQueries

    query = _query(query_id, text, file)
    config = configuration(config_path)
    with _shop(name, (table,), config_path) as (shop, ((topic, _),)):
        stored = StoredQueries(shop.indices).add(topic, query_id, query, _settings(config, name))
        matched = replay_query(shop, config, name, topic, query_id) if replay else 0
    if as_json:
        output.show_json(
            {"sink": name, "table": table, "query": query_id, "version": stored.version, "matched": matched}
        )
    else:
        more = f"; {matched} rows of the topic match" if replay else ""
        output.done(f"{query_id} is stored, version {stored.version}{more}")


@group.command("list")
@click.argument("name")
@config_option
@json_option
def list_command(name: str, config_path: Path | None, as_json: bool) -> None:
    """Show the queries of the search sink NAME."""
    from sinks.search.stored_queries import StoredQueries

    with _shop(name, (), config_path) as (shop, tables):
        found = [(topic.table, query) for topic, _ in tables for query in StoredQueries(shop.indices).all(topic)]
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
    """Forget a query of the search sink NAME."""
    from sinks.search.stored_queries import StoredQueries

    _check(query_id)
    with _shop(name, (table,), config_path) as (shop, ((topic, _),)):
        was_there = StoredQueries(shop.indices).remove(topic, query_id)
    if as_json:
        output.show_json({"sink": name, "table": table, "query": query_id, "removed": was_there})
    else:
        output.done(f"{query_id} is removed" if was_there else f"there was no query {query_id}")


def _shop(
    name: str, tables: tuple[str, ...], config_path: Path | None
) -> AbstractContextManager[tuple[RebuildContext, list[tuple[Topic, int]]]]:
    from cdc.clock import SystemClock
    from sinks.search.rebuild_job import RebuildRequest, open_rebuild

    what: RebuildRequest = RebuildRequest(configuration(config_path), name, tables)
    return open_rebuild(what, SystemClock())


def _settings(config: Any, name: str) -> dict[str, Any]:
    from sinks.search.rebuild_job import search_of

    return search_of(config, name).index


def _query(query_id: str, text: str | None, file: Path | None) -> dict[str, Any]:
    _check(query_id)
    if (text is None) == (file is None):
        raise UsageError("a query comes by --query or by --file", command="cdc sink query add --help")
    try:
        found = json.loads(text if text is not None else file.read_text() if file else "")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the query is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError("the query is no JSON object")
    return found


def _check(query_id: str) -> None:
    if _ID.fullmatch(query_id) is None:
        raise UsageError(f"{query_id!r} is no id of a query: letters, digits, _ and -, 100 at most")
