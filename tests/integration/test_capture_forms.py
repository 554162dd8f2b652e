"""Every value form that can be configured agrees with the server: `extract`, `encode`, casts (B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from psycopg import sql

from tests.fixtures.capture.type_forms import ALL, URL, columns, made_domains
from tests.fixtures.capture.type_tables import create, exact, fill, set_up

if TYPE_CHECKING:
    from tests.fixtures.capture.type_tables import Columns, Session
    from tests.fixtures.servers.daemon import CaptureSite

# Not `extract(epoch from x)`: within 30 years of its end it has 16 digits only.
_MICROS: Final = (
    "((x::date - date '1970-01-01') * 86400000000::numeric + extract(epoch from x - date_trunc('day', x)) * 1000000)"
)
# What x must be in the log, in the server's words.
_SAID: Final = {
    "date": "case when isfinite(x) then to_jsonb(x - date '1970-01-01') else to_jsonb(x) end",
    "time": "to_jsonb(extract(epoch from x) * 1000000)",
    "timestamp": f"case when isfinite(x) and {_MICROS} < 2::numeric ^ 63 then to_jsonb({_MICROS}) else to_jsonb(x) end",
    "bytea": "to_jsonb(replace(encode(x, 'base64'), e'\\n', ''))",
    "interval": "case when isfinite(x) then jsonb_build_object("
    "'months', extract(year from x) * 12 + extract(month from x), 'days', extract(day from x),"
    "'micros', extract(epoch from x - date_trunc('day', x)) * 1000000) else to_jsonb(x) end",
    "json": "to_jsonb(x)",
    "jsonb": "x",
    "public.hstore": "public.hstore_to_jsonb(x)",
}
_URL_SAFE: Final = "to_jsonb(translate(replace(encode(x, 'base64'), e'\\n', ''), '+/', '-_'))"


@pytest.mark.parametrize("encode", [ALL, URL], ids=["all", "debezium"])
def test_chosen_forms_are_what_the_server_says(capture: CaptureSite, encode: dict[str, str]) -> None:
    wanted = columns()
    capture.sql("create extension hstore", *made_domains())
    with capture.connect() as session:
        create(session, wanted)
    daemon = capture.running({"encode": encode})
    with capture.connect() as session:
        row_count = fill(session, wanted)
        said = said_by_server(session, wanted, encode)
    events = capture.settled(daemon).events

    assert len(events) == row_count
    wrong = []
    for event in events:
        assert event.value is not None
        after = exact(event.value)["after"]
        for name in wanted:
            flat = leaves(after[name]) if name.endswith("[]") else after[name]
            if flat != said[after["id"]].get(name, flat):
                wrong.append(f"{name}: published {flat!r}, the server says {said[after['id']][name]!r}")
    assert wrong == []
    assert {name for row in said.values() for name in row} >= {"bytea[]", "my_date[]"}


def test_json_null_is_lost_by_choice_only(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, j jsonb)")
    daemon = capture.running({"encode": {"json": "value"}})

    capture.sql("""insert into t values (1, 'null'), (2, null), (3, '{"a": null}')""")

    assert [event.after["j"] for event in capture.settled(daemon).events] == [None, None, {"a": None}]


def test_form_of_a_key_is_not_changed_under_the_rows_that_have_it(capture: CaptureSite) -> None:
    """They would stay in the compacted topic for ever: `{"id":1}` beside `{"id":"1"}`."""
    capture.sql("create table t (id int8 primary key, n int8)")
    capture.running().stop()

    stopped = capture.daemon({"encode": {"int64": "string"}}).stopped_with()

    assert (stopped["exit_code"], stopped["state"]) == (3, "MISCONFIGURED")
    assert "key column 'id' of public.t would be written as integer_string now" in stopped["message"]


def said_by_server(session: Session, wanted: Columns, encode: dict[str, str]) -> dict[int, dict[str, Any]]:
    """id -> column -> JSON value, of an array its elements in order; only of columns that `encode` changes."""
    said = dict(_SAID)
    if encode is URL:
        said = {"bytea": _URL_SAFE, **{kind: said[kind] for kind in ("date", "time", "timestamp")}}
    set_up(session)
    found: dict[int, dict[str, Any]] = {}
    for name in wanted:
        kind = name.removeprefix("my_").removesuffix("[]")
        value = said.get(kind) or said.get(f"public.{kind}")
        if value is None:
            continue
        query = "select id, ({})::text from (select id, {} as x from public.t) r"
        if name.endswith("[]"):
            value = f"select coalesce(jsonb_agg({value} order by o), '[]') from unnest(a) with ordinality u (x, o)"
            query = "select id, case when a is not null then ({}) end::text from (select id, {} as a from public.t) r"
        rows = session.execute(sql.SQL(query).format(sql.SQL(value), sql.Identifier(name)), prepare=False)
        for number, text in rows.fetchall():
            found.setdefault(number, {})[name] = None if text is None else exact(text)
    return found


def leaves(value: Any) -> Any:
    """The elements of an array of any dimension in order; null stays null."""
    if not isinstance(value, list):
        return value
    return [leaf for element in value for leaf in (leaves(element) if isinstance(element, list) else [element])]
