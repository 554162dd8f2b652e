"""The snapshot of `cdc views check --source`: what it refuses, and what it does about locks."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from cdc.errors import SourceRefused, SourceUnreachable
from cdc.replication import catalog_queries
from cdc.verify.source_snapshot import SourceSnapshot, _reading
from cdc.verify.view_delta import Undecided


class _Standby:
    def execute(self, _: str) -> Any:
        return self

    def fetchone(self) -> tuple[bool]:
        return (True,)


def test_a_standby_is_refused_with_the_reason() -> None:
    config: Any = None
    connection: Any = _Standby()

    with pytest.raises(SourceRefused, match="leads to a standby; views are compared with the primary") as refused:
        SourceSnapshot(config, connection)
    assert "target_session_attrs" in refused.value.hint


def test_a_lock_of_another_session_leaves_views_undecided() -> None:
    with pytest.raises(Undecided, match="another session holds a lock"), _reading("read"):
        raise psycopg.errors.LockNotAvailable
    with pytest.raises(SourceUnreachable), _reading("read"), catalog_queries.reading("look"):
        raise psycopg.errors.AdminShutdown
