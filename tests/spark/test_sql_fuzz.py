"""Random SQL as a view and on PostgreSQL, with a fixed seed. `make sql-fuzz` is the full run, with fresh seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.sqlfuzz.as_view import Views
from tests.sqlfuzz.fuzz import Fuzz, refused_rules
from tests.sqlfuzz.on_postgres import Postgres
from tests.sqlfuzz.report import report
from tests.sqlfuzz.unsolved import UNSOLVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.running_servers import Database

_SEED: Final = 20261124
_EXPRESSIONS: Final = 1000
_QUERIES: Final = 40
_EQUAL_LEAST: Final = 100  # a fuzzer whose every query is refused proves nothing
_INVALID_MOST: Final = 3  # a random query may be one that PostgreSQL does not accept
_SECONDS: Final = 40.0


@pytest.fixture
def postgres(database: Database) -> Iterator[Postgres]:
    session = Postgres(database.dsn)
    yield session
    session.close()


@pytest.fixture
def views(quick: SparkSession, postgres: Postgres, tmp_path: Path) -> Views:
    return Views(quick, postgres, tmp_path)


def test_accepted_view_gives_postgresqls_rows(postgres: Postgres, views: Views) -> None:
    refused = refused_rules(views)
    fuzz = Fuzz(postgres, views, seed=_SEED, left_out=UNSOLVED, refused=refused)

    fuzz.run(expressions=_EXPRESSIONS, queries=_QUERIES, seconds=_SECONDS)

    assert not fuzz.differences.cases, report(fuzz, _SEED)
    assert fuzz.invalid.total() <= _INVALID_MOST, report(fuzz, _SEED)
    assert fuzz.expressions.results["equal"] >= _EQUAL_LEAST
