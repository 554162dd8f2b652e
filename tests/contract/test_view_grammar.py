"""Texts that PostgreSQL's own grammar refuses are refused as views; the words are those of the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import parse_view
from sinks.warehouse.views.meaning.grammar import NEED_AS, RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.running_servers import Database

_SYNTAX_ERROR = "42601"
_WRONG = [
    "select order from t",
    "select id, from t",
    "select id from t order by id,",
    "select id from t where id in (1, 2,)",
    "select row_number() over (partition by id,) as n from t",
    "select string_agg(id::text, ',' order by , id) as x from t",
    "select , id from t",
    "select as id from t",
    "select coalesce(, id) as x from t",
    "select count(*) as n from t group by",
    "select id from t where order by id",
    "select id year from t",
    "select left.id from t as left",
    "select id from t user",
    "with end as (select 1 as a) select a from end",
    "select id from t limit",
    "select id from (t",
    "select id from t where",
    "select id id id from t",
    "select from where t",
    "select 'a from t",
]
_RIGHT = [
    "select t.order from t",
    "select id as order, id as year from t",
    'select "user".id from t as "user"',
    "select public.t.id from public.t",
    'select left("order"::text, 1) as a, case when true then 1 else 2 end as b, array[1, 2] as c from t',
    "select a.id from t a left join t b on a.id = b.id cross join lateral (select 1 as x) l",
    "with w as (select id from t) select id from w where id = any(array[1, 2]) order by id limit 3",
]


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(database.dsn, autocommit=True) as made:
        made.execute('create table t (id int, "order" int)')
        yield made


def test_reserved_words_are_those_of_the_server(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    found = connection.execute("select word, catcode, barelabel from pg_get_keywords()").fetchall()

    assert {word for word, kind, _ in found if kind in {"R", "T"}} - RESERVED == set()
    assert {word for word, _, bare in found if not bare} - NEED_AS == set()


@pytest.mark.parametrize("sql", _WRONG)
def test_what_the_server_cannot_parse_is_refused(connection: psycopg.Connection[tuple[Any, ...]], sql: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(f"explain {sql}".encode())
    with pytest.raises(ViewRefused):
        parse_view(Path("v.sql"), f"-- dialect: postgres\n{sql}")

    assert raised.value.sqlstate == _SYNTAX_ERROR


@pytest.mark.parametrize("sql", _RIGHT)
def test_what_the_server_parses_is_parsed(connection: psycopg.Connection[tuple[Any, ...]], sql: str) -> None:
    connection.execute(f"explain {sql}".encode())

    assert parse_view(Path("v.sql"), f"-- dialect: postgres\n{sql}").references
