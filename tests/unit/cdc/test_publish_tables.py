"""A start that finds a captured table no longer published: a gap only if the table still exists."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any, cast

import pytest
from msgspec import structs

from cdc.config.settings import Config
from cdc.errors import SourceGap
from cdc.lsn import Lsn
from cdc.model.progress_record import Progress
from cdc.progress.restore import Restored
from cdc.startup.source_identity import Source, publish_tables
from tests.fixtures.capture.source_builders import table
from tests.fixtures.servers.identities import identity
from tests.simulation.source import Postgres, ServerDoor
from tests.simulation.world import World


class _Server(ServerDoor):
    """A server on which some tables were dropped after their names were read."""

    gone: frozenset[int] = frozenset()

    def existing(self, oids: Collection[int]) -> frozenset[int]:
        return frozenset(oids) - self.gone


class _Names:
    """The one part of the configuration that is read."""

    publication = "p"


@pytest.mark.parametrize("dropped", [True, False])
def test_table_dropped_while_a_start_reads_the_catalog_is_no_gap(dropped: bool) -> None:
    orders, kept = table("orders"), table("kept")
    postgres = Postgres(World(random.Random(0)))
    postgres.publication_oid, postgres.members = 1, {kept.oid: 8}
    server = _Server(postgres)
    server.gone = frozenset({orders.oid}) if dropped else frozenset()
    tables = {orders.table: (orders.oid, 7), kept.table: (kept.oid, 8)}
    recorded = structs.replace(identity(), tables=tables)
    restored = Restored(Progress(epoch=1, end_lsn=1000), recorded, {}, Lsn(0), None)
    source = Source(cast("Any", None), cast("Any", identity()), [orders, kept])

    def publish() -> object:
        return publish_tables(cast("Config", _Names()), source, server, restored)

    if dropped:
        publish()
    else:
        with pytest.raises(SourceGap, match=r"no longer has public\.orders"):
            publish()
