"""Names of a lake's tables as a person writes them, and what is suggested for a mistyped one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdc.errors import UsageError
from sinks.warehouse.read.lake_reader import Lake
from tests.fixtures.lake.small_lakes import SmallLake


def test_unknown_table_of_a_history_is_answered_with_names_that_the_command_accepts(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    rows = pa.table({"id": [7]})
    for table in ("archive/shop.public.orders", "mirror/public.orders", "mirror/public.others"):
        lake.write(table, rows)
    manifest = lake.publish()

    with pytest.raises(UsageError) as caught:
        Lake(tmp_path).table("ordres", manifest, kinds=("archive",))

    assert caught.value.hint == "did you mean public.orders? known names: public.orders"
    assert Lake(tmp_path).table("public.orders", manifest, kinds=("archive",)) == "archive/shop.public.orders"
