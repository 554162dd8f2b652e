"""Views of a distributed lake, kept by the same plans as on one machine: their tests, with all rows in the executors."""

from __future__ import annotations

import pytest

from tests.fixtures.lake.running_lake import COMMITTER
from tests.spark.test_kept_views import (  # noqa: F401 - they run here again
    test_every_view_is_what_its_query_gives_after_each_cut,
    test_view_is_right_whatever_the_attempt_after_a_kill_does,
)


@pytest.fixture(autouse=True)
def distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMITTER, "distributed")
