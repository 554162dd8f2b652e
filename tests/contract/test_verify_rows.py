"""Rows that `cdc verify` reads from a table, page by page, on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.replication.connect import connect
from cdc.verify import source_rows
from cdc.verify.source_rows import KeyedRows
from cdc.verify.source_tables import SourceRows

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import Database

CONFIG: Final = """
name = "shop"
[source]
dsn = "{dsn}"
[kafka]
bootstrap = "nobody:9092"
"""
ROWS: Final = 1234
PAGE: Final = 100


@pytest.mark.parametrize("key", ["id", "part, id", "id, part", '"day"'])
def test_pages_have_every_row_once_in_the_order_of_the_key(
    database: Database, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Also where its values are in another order as text."""
    monkeypatch.setattr(source_rows, "PAGE_ROWS", PAGE)
    with connect(Secret(database.dsn), application_name="test") as connection:
        connection.execute(
            f"""create table public.t (id int, part numeric, "day" date, primary key ({key}));
            insert into public.t select n, n % 7 - 3, date '2026-01-01' - n from generate_series(-10, {ROWS - 11}) n;
            create publication cdc_shop for table public.t""".encode()
        )
        source = SourceRows(parse(CONFIG.format(dsn=database.dsn), {}), connection)
        (table,) = source.tables
        shape = source.shape(table)
        assert shape is not None

        pages = list(KeyedRows(connection, table, shape).pages())

        wanted = [row[0] for row in connection.execute(f"select id from public.t order by {key}".encode()).fetchall()]
        assert [len(page) for page in pages] == [PAGE] * (ROWS // PAGE) + [ROWS % PAGE]
        assert [row["id"] for page in pages for row in page.values()] == wanted
