"""Spark does not compute what it knows to be never null; such a test or count is refused, because errors were lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ViewRefused
from sinks.warehouse.views.definition import bind, parse_view
from tests.fixtures.views.pg_columns import types_of_ddl

TYPES = types_of_ddl("create table t (id int primary key, big bigint, name text)")


def spark(item: str) -> str:
    return bind([parse_view(Path("v.sql"), f"-- dialect: postgres\nselect {item} as x from t")], list(TYPES), TYPES)[
        0
    ].sql


@pytest.mark.parametrize(
    "item",
    [
        "cast(7 as smallint) is not null",
        "(case when 1 / id > 0 then 1 else 2 end) is null",
        "coalesce(name, 'a') is null",
        "not (case when 1 / id > 0 then 'a' || 'b' else 'c' end is null)",
        "(id is null) is null",
        "count(case when 1 / id > 0 then 1 else 0 end)",
    ],
)
def test_what_is_never_null_is_not_tested(item: str) -> None:
    with pytest.raises(ViewRefused, match="a value that is never null"):
        spark(item)


@pytest.mark.parametrize(
    "item",
    [
        "id + 1 is null",
        "(case when id > 0 then 1 end) is null",
        "(case when id > 0 then name else 'a' end) is not null",
        "coalesce(name, name) is null",
        "nullif('a', 'b') is null",
        "(select max(id) from t) is null",
        "max(1) is null",
        "count(1)",
        "count(case when id > 0 then 1 end)",
        "count(distinct case when id > 0 then 1 else 2 end)",
    ],
)
def test_what_may_be_null_is_tested(item: str) -> None:
    assert spark(item)
