"""Field ids of Iceberg columns, the snapshots that cuts show, and the error without pyiceberg."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError
from sinks.warehouse.iceberg.column_types import FieldIds, schema_of
from sinks.warehouse.iceberg.table_metadata import _shown
from sinks.warehouse.lake.location import Location
from sinks.warehouse.start import _iceberg


def columns(**types: Any) -> dict[str, Any]:
    return {"fields": [{"name": name, "type": kind} for name, kind in types.items()]}


ARRAY = {"type": "array", "elementType": "string", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": ARRAY, "valueContainsNull": True}
STRUCT = {"type": "struct", **columns(one="long", two=ARRAY)}


def test_column_keeps_its_id_though_it_is_dropped_and_returns_with_another_type() -> None:
    ids = FieldIds()
    first = schema_of(columns(a="long", b=ARRAY, c="decimal(12,2)"), ids, 0)
    without = schema_of(columns(c="string", d="date"), again := FieldIds(ids.mapping()), 1)
    back = schema_of(columns(d="date", a="string", b=STRUCT), FieldIds(again.mapping()), 2)

    of = [{field.name: field.field_id for field in schema.fields} for schema in (first, without, back)]
    assert of[0]["a"] == of[2]["a"]
    assert of[0]["b"] == of[2]["b"]
    assert of[0]["c"] == of[1]["c"]
    assert of[1]["d"] == of[2]["d"]
    assert len({*of[0].values(), *of[1].values(), *of[2].values()}) == 4


def test_no_two_columns_or_parts_share_an_id() -> None:
    ids = FieldIds()
    schema = schema_of(columns(element="long", a=ARRAY, b=MAP, c=STRUCT, d={**ARRAY, "elementType": STRUCT}), ids, 0)

    assert len(schema.field_ids) == ids.last == 16
    assert FieldIds(ids.mapping()).mapping() == ids.mapping()


@pytest.mark.parametrize("kind", ["void", "interval day to second", "variant", {"type": "udt"}])
def test_type_that_iceberg_lacks_is_refused_with_the_column(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"column c\.one has the type"):
        schema_of(columns(c={"type": "struct", **columns(one=kind)}), FieldIds(), 0)


@given(st.sets(st.integers(1, 40), min_size=1), st.sets(st.integers(1, 40)))
def test_each_kept_cut_shows_its_newest_snapshot_and_no_other_one_is_kept(snapshots: set[int], kept: set[int]) -> None:
    wanted = {max(one for one in snapshots if one <= cut) for cut in kept if min(snapshots) <= cut}

    assert _shown(sorted(snapshots), sorted(kept)) == wanted


def test_without_pyiceberg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyiceberg", "sinks.warehouse.iceberg"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)

    with pytest.raises(ConfigError, match="`iceberg` is on, but") as raised:
        _iceberg(Location.of("lake"))

    assert raised.value.command == "pip install 'tailrace[capture,warehouse,iceberg]'"
