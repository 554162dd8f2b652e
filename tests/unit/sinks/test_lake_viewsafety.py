"""A user's SQL only reads tables of the lake; anything else is refused in the file, before Spark sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import UsageError, ViewRefused
from sinks.warehouse.read.cut_query import _parsed
from sinks.warehouse.spark.sql_guard import check_analysed
from sinks.warehouse.views.definition import bind_query, parse_view
from tests.fixtures.views.file_attacks import CALLS, PLACES, READS, STATEMENTS

TABLES = ["mirror/public.t", "archive/shop.public.t", "history/public.t"]
DIALECTS = ("", "-- dialect: postgres\n")
FILES = {"file": "/etc/passwd", "folder": "/tmp/stolen"}


def refused(sql: str) -> ViewRefused:
    with pytest.raises(ViewRefused) as found:
        bind_query(parse_view(Path("v.sql"), sql), ["v"], TABLES)
    return found.value


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("read", READS)
def test_view_cannot_read_a_file_from_any_place_of_its_query(place: str, read: str, dialect: str) -> None:
    refused(dialect + place.replace("{read}", read).format(**FILES))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("call", CALLS)
def test_view_cannot_call_what_is_more_than_sql(call: str, dialect: str) -> None:
    refused(dialect + f"select id, {call.format(**FILES)} as x from t")
    refused(dialect + f"with a as (select {call.format(**FILES)} as x from t) select x from a")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_view_is_one_select_and_nothing_else(statement: str, dialect: str) -> None:
    refused(dialect + statement.format(**FILES))


@pytest.mark.parametrize("place", PLACES[:8])
@pytest.mark.parametrize("read", ["read_csv('/etc/passwd')", "glob('/etc/*')", "pg_read_file('/etc/passwd')"])
def test_query_over_a_cut_cannot_read_a_function_in_from(place: str, read: str) -> None:
    with pytest.raises(UsageError, match=r"not a table of the lake|not valid SQL"):
        _parsed(place.replace("{read}", read))


@pytest.mark.parametrize(
    "sql",
    [
        "select * from range(3)",
        "select id, e from t lateral view explode(array(1, 2)) x as e",
        "select from_csv(name, 'a int').a as a, from_json(name, 'b int').b as b, from_xml(name, 'c int').c as c from t",
        "select transform(array(id), x -> x + 1) as more from t",
        "select id, identifier from t",
        "with a as (select id from t) select * from a where id in (select id from history.t)",
        "select * from values (1, 2) as v(a, b)",
    ],
)
def test_ordinary_queries_are_taken(sql: str) -> None:
    bind_query(parse_view(Path("v.sql"), sql), [], [*TABLES, "mirror/public.identifier"])


@given(st.data())
def test_attempt_that_is_nested_at_random_is_refused(data: st.DataObject) -> None:
    sql = data.draw(st.sampled_from(PLACES)).replace("{read}", data.draw(st.sampled_from(READS))).format(**FILES)
    for _ in range(data.draw(st.integers(0, 4))):
        sql = data.draw(
            st.sampled_from(
                [
                    f"select * from ({sql}) as n{len(sql)}",
                    f"with c{len(sql)} as ({sql}) select * from c{len(sql)}",
                    f"select id from t where exists ({sql})",
                    f"select id, (select count(*) from ({sql}) as m{len(sql)}) as k from t",
                    f"select id from t union all ({sql})",
                ]
            )
        )

    refused(data.draw(st.sampled_from(DIALECTS)) + sql)


LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
FILE = '{"class":"org.apache.spark.sql.execution.datasources.LogicalRelation","num-children":0}'


def node(name: str, children: int, more: str = "") -> str:
    return f'{{"class":"{LOGICAL}{name}","num-children":{children}{more}}}'


def test_source_that_is_not_below_a_temporary_view_is_refused_wherever_it_stands() -> None:
    view = node("View", 1, ',"isTempView":true')

    check_analysed(f"[{node('Project', 1)},{view},{FILE}]", "")
    check_analysed(f"[{node('Join', 2)},{view},{node('Project', 1)},{FILE},{node('OneRowRelation', 0)}]", "")
    for plan in (
        f"[{node('Project', 1)},{FILE}]",
        f"[{node('Join', 2)},{view},{node('Project', 1)},{FILE},{FILE}]",
        "[" + node("Project", 1, f',"list":[[{FILE}]]') + "," + node("OneRowRelation", 0) + "]",
        "[" + node("Project", 1) + "," + node("View", 1, ',"isTempView":false') + f",{FILE}]",
        f"[{node('ScriptTransformation', 0)}]",
        f"[{node('InsertIntoDir', 0)}]",
    ):
        with pytest.raises(ViewRefused, match="does more than read tables"):
            check_analysed(plan, "")
