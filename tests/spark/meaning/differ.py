"""Runs expressions on PostgreSQL and, translated, on Spark, and compares values and errors."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow as pa
import sqlglot
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.string import TextLoader
from sqlglot import exp

from cdc.encode.values import EncodeOptions, resolve
from sinks.warehouse.views.meaning.inputs_of import Source
from sinks.warehouse.views.meaning.pg_types import PgType, column_type
from sinks.warehouse.views.meaning.queries import translated
from sinks.warehouse.views.meaning.refusal import NotProven
from tests.spark.meaning.case import Case
from tests.spark.meaning.hostile import COLUMNS, DOMAINS, LAKE, VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_BATCH: Final = 40
_SOURCE: Final = "hostile"


@dataclass(frozen=True)
class Difference:
    """A case whose results differ, or that is refused or fails in one engine."""

    case: Case
    row: tuple[object, ...]
    wanted: object
    found: object

    def __str__(self) -> str:
        return f"{self.case.entry}: {self.case.sql} at {self.row}: PostgreSQL {self.wanted!r}, Spark {self.found!r}"


def sources() -> dict[str, Source]:
    """Return the tables of hostile values, as a view reads them."""
    return {
        name: Source({"n": PgType("int4"), name: column_type(*LAKE[kind])}, name=name) for kind, name in COLUMNS.items()
    }


class Differ:
    """One table of values per type in both engines. A row has a number, and one value of each type."""

    def __init__(self, spark: SparkSession, session: psycopg.Connection[Any]) -> None:
        self._spark = spark
        self._pg = session
        session.execute("set timezone = 'UTC'")
        session.execute("create extension citext")
        session.execute("set intervalstyle = 'iso_8601'")
        session.adapters.register_loader("float4", _Single)
        for name in _AS_TEXT:
            session.adapters.register_loader(name, TextLoader)
        for name, base in DOMAINS.items():
            session.execute(f"create domain {name} as {base}".encode())
        session.execute("create type mood as enum ('b', 'a', '')")
        for kind, values in VALUES.items():
            name = COLUMNS[kind]
            session.execute(f"create table {name} (n int, {name} {kind})".encode())
            with session.cursor() as cursor:
                cursor.executemany(f"insert into {name} values (%s, %s)", list(enumerate(values)))
            shown = name if LAKE[kind][0] in _AS_TEXT else f"{name}::text"
            rows = session.execute(f"select n, {shown} from {name} order by n".encode()).fetchall()
            texts = [None if text is None else _captured(kind, text) for _, text in rows]
            numbers = pa.array([n for n, _ in rows], pa.int32())
            frame = spark.createDataFrame(pa.table({"n": numbers, name: pa.array(texts, pa.string())}))
            frame.selectExpr("n", f"{_decoded(name, LAKE[kind][2])} as {name}").createOrReplaceTempView(name)
        self.sources = sources()

    def close(self) -> None:
        """Drop the temporary views."""
        for name in COLUMNS.values():
            self._spark.catalog.dropTempView(name)

    def refused(self, case: Case) -> NotProven | None:
        """Return why a case is refused; None if it is accepted."""
        try:
            self._translate([case])
        except NotProven as refused:
            return refused
        return None

    def differences(self, cases: Sequence[Case]) -> Iterator[Difference]:
        """Compare accepted cases."""
        groups: dict[tuple[str, str], list[Case]] = {}
        for case in cases:
            groups.setdefault((case.left, case.right), []).append(case)
        for group in groups.values():
            for start in range(0, len(group), _BATCH):
                yield from self._batch(group[start : start + _BATCH])

    def rows(self, query: str) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
        """Return the rows of a query in PostgreSQL and in Spark."""
        wanted = Counter(tuple(_shown(value) for value in row) for row in self._rows(query))
        table = self._spark.sql(in_spark(query)).toArrow()
        found = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return wanted, Counter(tuple(_shown(value) for value in row) for row in found)

    def fails(self, query: str) -> tuple[bool, bool]:
        """Return whether a query fails when it runs, in PostgreSQL and in Spark."""
        parsed = sqlglot.parse_one(query, read="postgres")
        assert isinstance(parsed, exp.Query)
        text, found = translated(parsed, self.sources, c=False).sql, []
        for run in (lambda: self._rows(query), lambda: self._spark.sql(text).toArrow()):
            try:
                run()
                found.append(False)
            except Exception:  # noqa: BLE001  any error is a result here
                found.append(True)
        return found[0], found[1]

    def _batch(self, cases: Sequence[Case]) -> Iterator[Difference]:
        wanted = [self._asked(case) for case in cases]
        failing = [
            (index, row) for index, found in enumerate(wanted) for row, value in found.items() if value is _ERROR
        ]
        found = self._computed(cases, wanted)
        for index, case in enumerate(cases):
            for row, value in wanted[index].items():
                if value is not _ERROR and _shown(value) != _shown(found[index].get(row)):
                    yield Difference(case, row, value, found[index].get(row))
        # One failing row of each case: each costs a query.
        tried: set[int] = set()
        for index, row in failing:
            if index in tried:
                continue
            tried.add(index)
            value = self._alone(cases[index], row)
            if value is not _ERROR:
                yield Difference(cases[index], row, "an error", value)

    def _asked(self, case: Case) -> dict[tuple[object, ...], object]:
        """Return PostgreSQL's values by row."""
        text = _query(case, f"({case.sql}) as v")
        try:
            return {tuple(row[:-1]): _bounded(case, row[-1]) for row in self._rows(text)}
        except psycopg.Error:
            pass
        rows = self._rows(_query(case, "0 as v"))
        found: dict[tuple[object, ...], object] = {}
        for row in rows:
            key = tuple(row[:-1])
            try:
                found[key] = _bounded(case, self._rows(text + _at(case, key))[0][-1])
            except psycopg.Error:
                found[key] = _ERROR
        return found

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        with self._pg.transaction():
            return self._pg.execute(sql.SQL(text)).fetchall()

    def _computed(
        self, cases: Sequence[Case], wanted: Sequence[dict[tuple[object, ...], object]]
    ) -> list[dict[tuple[object, ...], object]]:
        """Return Spark's values by row; of cases that fail in PostgreSQL, only rows that do not."""
        plain = [index for index, found in enumerate(wanted) if _ERROR not in found.values()]
        result: list[dict[tuple[object, ...], object]] = [{} for _ in cases]
        if plain:
            try:
                for row in self._collect([cases[index] for index in plain], ""):
                    keys = tuple(row[: len(row) - len(plain)])
                    for index, value in zip(plain, row[len(keys) :], strict=True):
                        result[index][keys] = value
            except Exception as error:  # noqa: BLE001  any error of Spark is a result here
                if len(plain) == 1:
                    result[plain[0]] = dict.fromkeys(wanted[plain[0]], str(error)[:200])
                else:
                    for index in plain:
                        result[index] = self._computed([cases[index]], [wanted[index]])[0]
        for index, case in enumerate(cases):
            if index in plain:
                continue
            good = [key for key, value in wanted[index].items() if value is not _ERROR]
            if not good:
                continue
            where = " or ".join(f"({_at(case, key).removeprefix(' where ')})" for key in good)
            try:
                for row in self._collect([case], f" where {where}"):
                    result[index][tuple(row[:-1])] = row[-1]
            except Exception as error:  # noqa: BLE001  as above
                result[index] = dict.fromkeys(good, str(error)[:200])
        return result

    def _alone(self, case: Case, row: tuple[object, ...]) -> object:
        try:
            return self._collect([case], _at(case, row))[0][-1]
        except Exception:  # noqa: BLE001  PostgreSQL fails as well
            return _ERROR

    def _collect(self, cases: Sequence[Case], where: str) -> list[tuple[Any, ...]]:
        table = self._spark.sql(self._translate(cases, where)).toArrow()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def _translate(self, cases: Sequence[Case], where: str = "") -> str:
        items = ", ".join(f"({case.sql}) as v{number}" for number, case in enumerate(cases))
        return in_spark(_query(cases[0], items) + where)


_ERROR: Final = "<an error>"
_SOURCES: Final = {
    name: Source({"n": PgType("int4"), name: column_type(*LAKE[kind])}, name=name) for kind, name in COLUMNS.items()
}


def in_spark(query: str) -> str:
    """Return a query over the tables of hostile values in Spark's SQL. Raises NotProven."""
    parsed = sqlglot.parse_one(query, read="postgres")
    assert isinstance(parsed, exp.Query)
    return translated(parsed, _SOURCES, c=False, zones=True).sql


def alone(case: Case) -> str:
    """Return the query of one case."""
    return _query(case, f"({case.sql}) as v")


class _Single(Loader):
    """Reads a float4 as the double of the same value."""

    def load(self, data: Buffer) -> float:
        return float(struct.unpack("f", struct.pack("f", float(bytes(data))))[0])


_AS_TEXT: Final = (
    *("time", "timetz", "interval", "inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "money"),
    *("int4range", "int8range", "daterange", "tsrange", "tstzrange", "oid", "xid8", "pg_lsn"),
    *("int4multirange", "int8multirange", "datemultirange", "tsmultirange", "tstzmultirange"),
)


def _captured(kind: str, text: str) -> str:
    """Return the text of a value as the lake's column has it."""
    if kind.endswith("[]"):
        encode = resolve(_ARRAYS[kind], {}, EncodeOptions()).encode
        assert encode is not None
        return encode(text.encode()).decode()
    return text.ljust(5) if kind == "char(5)" else text


_ARRAYS: Final = {"int2[]": 1005, "int4[]": 1007, "int8[]": 1016, "bool[]": 1000, "uuid[]": 2951, "text[]": 1009}


def _bounded(case: Case, value: object) -> object:
    """Return a value; one that Spark cannot compute must be an error there.

    A quotient may need more digits than Spark's decimals have, a text may be unclear, an array of several dimensions is
    none of those that are known, and times end with the years 1 and 9999.
    """
    if isinstance(value, str) and "interval" in case.sql and _OTHER_YEAR.search(value):
        return _ERROR
    if case.left in {"unclear_text", "int2[]", "old_time"} and value is not None:
        return _ERROR
    if "/" in case.sql and isinstance(value, Decimal) and value and not _LEAST <= abs(value) < _MOST:
        return _ERROR
    return value


_OTHER_YEAR: Final = re.compile(r" BC$|^\d{5}-")
_LEAST: Final = Decimal("1e-8")
_MOST: Final = Decimal("1e12")


def _query(case: Case, items: str) -> str:
    left = f"{COLUMNS[case.left]} as l"
    if not case.right:
        return f"select l.n, {items} from {left}"
    return f"select l.n, r.n as n2, {items} from {left} cross join {COLUMNS[case.right]} as r"


def _at(case: Case, row: tuple[object, ...]) -> str:
    return f" where l.n = {row[0]}" + (f" and r.n = {row[1]}" if case.right else "")


def _decoded(name: str, kind: str) -> str:
    if kind == "binary":
        return f"unhex(substr({name}, 3))"
    return f"cast({name} as {kind})"


def _shown(value: object) -> str:
    """Return a value in one form for both engines. A numeric is its value: the lake's decimals have one scale."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, Decimal):
        return f"n{value.normalize():f}" if value else "n0"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, memoryview | bytearray | bytes):
        return bytes(value).hex()
    if isinstance(value, list):
        return f"[{', '.join(_shown(one) for one in value)}]"
    return str(value)
