"""Each entry of the table of known constructs gives PostgreSQL's value, or an error where PostgreSQL has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fixtures.servers.running_servers import fresh_database
from tests.spark.meaning.cases import AREAS
from tests.spark.meaning.differ import Differ
from tests.spark.meaning.queries import queries
from tests.spark.meaning.subquery_forms import FAILING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.running_servers import PostgresServer


@pytest.fixture
def differ(postgres: PostgresServer, quick: SparkSession) -> Iterator[Differ]:
    with fresh_database(postgres) as database, psycopg.connect(database.dsn, autocommit=True) as session:
        found = Differ(quick, session)
        yield found
        found.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("area", AREAS)
def test_what_is_known_to_be_equal_is_equal(differ: Differ, area: str) -> None:
    every = list(AREAS[area]())
    refused = {case.sql: str(why) for case in every if (why := differ.refused(case))}
    assert not refused

    found = [str(one) for one in differ.differences(every)]

    assert not found, "\n".join(found)


@pytest.mark.timeout(1200)
def test_aggregates_windows_and_clauses_are_equal(differ: Differ) -> None:
    wrong = {}
    for _, query in queries():
        wanted, found = differ.rows(query)
        if wanted != found:
            wrong[query] = sorted((wanted - found).elements())[:3], sorted((found - wanted).elements())[:3]

    assert not wrong, "\n".join(f"{query}: PostgreSQL {one}, Spark {other}" for query, (one, other) in wrong.items())


def test_a_query_that_fails_in_postgresql_fails_as_a_view(differ: Differ) -> None:
    assert {query: differ.fails(query) for query in FAILING} == dict.fromkeys(FAILING, (True, True))
