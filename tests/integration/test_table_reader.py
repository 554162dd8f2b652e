"""A chunk's rows are read by name. They are those of the planned table, or of none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc.config.secret import Secret
from cdc.replication.catalog_queries import tables_matching
from cdc.replication.connect import connect
from snapshot.chunk import Chunk, ChunkSpec
from snapshot.table_reader import ReadLater, now, read_chunk, table_layouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.lsn import Lsn
    from cdc.model.visibility import PgSnapshot
    from cdc.replication.connect import Connection
    from snapshot.chunk import Form
    from tests.fixtures.servers.running_servers import Database

_MADE = """
create table public.mine (id int primary key);
create table public.other (id int primary key);
create table public.parted (id int primary key) partition by range (id);
create table public.part partition of public.parted for values from (0) to (10);
insert into public.mine values (1); insert into public.parted values (2); insert into public.other values (3);
create publication p for table public.mine, public.other, public.parted with (publish_via_partition_root = true);
"""


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with connect(Secret(database.dsn)) as connection:
        connection.execute(_MADE.encode())
        yield connection


def _planned(source: Connection, table: str) -> Chunk:
    tables = tables_matching(source, [f"public.{table}"])
    found = table_layouts(source, "p", tables)[f"public.{table}"]
    return Chunk(1, ChunkSpec(f"public.{table}", found.form, found.leaves[0]))


class _Taken:
    """Goes on if the leaf's file is the planned one, as `snapshot.chunks` does."""

    def __init__(self, chunk: Chunk) -> None:
        self.filenodes: list[int | None] = []
        self._leaf = chunk.spec.leaf

    def __call__(self, snapshot: PgSnapshot, l_hi: Lsn, filenode: int | None, form: Form) -> bool:
        self.filenodes.append(filenode)
        return self._leaf is not None and filenode == self._leaf.filenode


@pytest.mark.parametrize("table", ["mine", "parted"])
def test_chunk_has_the_rows_of_its_table(source: Connection, table: str) -> None:
    chunk = _planned(source, table)

    read = read_chunk(source, chunk, "p", now(source).started, _Taken(chunk))

    assert read is not None
    assert len(read[0]) == 1


def test_chunk_of_a_table_whose_name_went_to_another_one_is_planned_again(source: Connection) -> None:
    chunk = _planned(source, "mine")
    taken = _Taken(chunk)
    source.execute("alter table public.mine rename to old; alter table public.other rename to mine")

    with pytest.raises(ReadLater, match="another table has its name") as caught:
        read_chunk(source, chunk, "p", now(source).started, taken)

    assert caught.value.gone
    assert taken.filenodes == []


def test_chunk_of_a_partition_whose_name_went_to_another_table_is_given_up(source: Connection) -> None:
    chunk = _planned(source, "parted")
    taken = _Taken(chunk)
    source.execute("alter table public.part rename to old; alter table public.other rename to part")

    assert read_chunk(source, chunk, "p", now(source).started, taken) is None
    assert taken.filenodes == [None]
