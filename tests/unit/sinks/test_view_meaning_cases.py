"""Every entry of the tables of known SQL is used by a case that tests/spark/meaning compares with PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from sinks.warehouse.views.meaning import (
    aggregates,
    casts,
    coercion,
    functions,
    known,
    known_aggregates,
    known_time,
    moments,
    percentiles,
    windows,
)
from sinks.warehouse.views.meaning.known_entry import Function
from tests.spark.meaning.cases import AREAS
from tests.spark.meaning.differ import alone, in_spark
from tests.spark.meaning.queries import queries

_Key = TypeVar("_Key")


class Used(dict[_Key, Any]):
    """A table that notes which of its entries are read."""

    def __init__(self, entries: Mapping[_Key, Any]) -> None:
        super().__init__(entries)
        self.used: set[_Key] = set()

    def __getitem__(self, key: _Key) -> Any:
        self.used.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        if found:
            self.used.add(key)  # type: ignore[arg-type]
        return found

    def get(self, key: _Key, default: Any = None) -> Any:
        if key in self:
            return self[key]
        return default

    @property
    def unused(self) -> set[_Key]:
        return set(self) - self.used


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Used[Any]]:
    """The tables, as the translation reads them."""
    by_type = {name: Used(kinds) for name, kinds in known.AGGREGATES.items()}
    found: dict[str, Used[Any]] = {
        **{f"aggregate {name}": kinds for name, kinds in by_type.items()},
        "casts": Used(known.CASTS),
        "fields": Used(known_time.FIELDS),
        "fields of a time": Used(known_time.TIME_FIELDS),
        "fields of a duration": Used(known_time.DURATION_FIELDS),
        "formats": Used(known_time.FORMATS),
        "units": Used(known_time.TRUNCATED_TO),
        "windows": Used(known.WINDOWS),
        "shifted": Used(dict.fromkeys(known.SHIFTED)),
        "picked": Used(dict.fromkeys(known.PICKED)),
        "by order": Used(dict.fromkeys(known_aggregates.PICKED_BY_ORDER)),
    }
    monkeypatch.setattr(aggregates, "AGGREGATES", by_type)
    for module in (casts, coercion):
        monkeypatch.setattr(module, "CASTS", found["casts"])
    for module, name, table in (
        (moments, "FIELDS", "fields"),
        (moments, "TIME_FIELDS", "fields of a time"),
        (moments, "DURATION_FIELDS", "fields of a duration"),
        (moments, "FORMATS", "formats"),
        (moments, "TRUNCATED_TO", "units"),
        (windows, "WINDOWS", "windows"),
        (windows, "SHIFTED", "shifted"),
        (windows, "PICKED", "picked"),
        (percentiles, "PICKED_BY_ORDER", "by order"),
    ):
        monkeypatch.setattr(module, name, found[table])
    return found


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Function]:
    """The entries of functions that the translation writes."""
    found: list[Function] = []
    original = functions._written

    def recording(entry: Function, arguments: Any) -> Any:
        found.append(entry)
        return original(entry, arguments)

    monkeypatch.setattr(functions, "_written", recording)
    return found


def test_every_entry_has_a_case(tables: dict[str, Used[Any]], written: list[Function]) -> None:
    for area in AREAS.values():
        for case in area():
            in_spark(alone(case))
    for _, query in queries():
        in_spark(query)

    unused = {name: left for name, used in tables.items() if (left := used.unused)}
    assert unused == {}
    entries = [(name, entry) for name, entries in known.FUNCTIONS.items() for entry in entries]
    assert [(name, entry.arguments) for name, entry in entries if entry not in written] == []
