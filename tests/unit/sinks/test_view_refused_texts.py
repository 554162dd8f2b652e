"""Texts that PostgreSQL refuses are refused as views, too; `tests/spark/meaning` shows that PostgreSQL does."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import bind, parse_view
from sinks.warehouse.views.meaning.queries import translated
from sinks.warehouse.views.meaning.refusal import NotProven
from tests.fixtures.views.pg_columns import types_of_ddl
from tests.spark.meaning.differ import sources
from tests.spark.meaning.refused_texts import DDL, TEXTS
from tests.spark.meaning.subquery_forms import REFUSED

TYPES = types_of_ddl(DDL)


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=[text for text, _ in TEXTS])
def test_a_text_that_postgresql_refuses_is_refused(text: str, message: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        bind([parse_view(Path("v.sql"), f"-- dialect: postgres\n{text}")], list(TYPES), TYPES)

    assert message
    assert message.lower() in refused.value.message.lower()
    assert refused.value.hint


def test_the_table_has_each_text_once() -> None:
    assert len({text for text, _ in TEXTS}) == len(TEXTS) >= 60


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_a_form_that_spark_cannot_compute_is_refused(text: str, message: str) -> None:
    query = sqlglot.parse_one(text, read="postgres")
    assert isinstance(query, exp.Query)

    with pytest.raises(NotProven) as refused:
        translated(query, sources(), c=False)

    assert message in refused.value.finding.message
    assert refused.value.finding.hint
