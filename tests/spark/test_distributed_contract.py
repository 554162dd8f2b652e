"""The contract of every committer, held by the distributed one: the tests of the local one, with frames of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.test_lake_committer import *  # noqa: F403 - its tests run here again
from tests.contract.test_lake_history import *  # noqa: F403
from tests.contract.test_lake_storage import test_compaction_changes_files_and_no_row  # noqa: F401
from tests.fixtures.lake.framed import Framed, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.committer import Committer
    from sinks.warehouse.lake.location import Location


@pytest.fixture(params=["one task", "a task per file"])  # type: ignore[no-redef]
def lake(
    quick: SparkSession, location: Location, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Committer:
    if request.param != "one task":
        spread(monkeypatch)
    return Framed(quick, location)
