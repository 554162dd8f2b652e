"""Starts the two sides outside pytest: a PostgreSQL of its own, and a Spark session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from cdc.local.local_server import ServerOptions
from cdc.local.stack import Stack
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session
from tests.sqlfuzz.as_view import Views
from tests.sqlfuzz.on_postgres import Postgres

_OPTIONS: Final = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}


@contextmanager
def sides() -> Iterator[tuple[Postgres, Views]]:
    """Yield both sides with their tables; everything is gone afterwards."""
    with ExitStack() as cleanup:
        options = {"postgres": ServerOptions(fast_start=True, settings={"fsync": "off"})}
        stack = Stack(f"sqlfuzz-{os.getpid()}", ("postgres",), options=options)
        cleanup.callback(lambda: stack.down("kill", wipe=True))
        stack.up()
        postgres = Postgres(stack.postgres.dsn)
        cleanup.callback(postgres.close)
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        spark = open_session(
            SparkOptions(master="local[1]", memory="2g", options=_OPTIONS, scratch=folder / "spark"),
            machine=Machine.here(),
            progress=NoProgress(),
        )
        cleanup.callback(close_session, spark)
        yield postgres, Views(spark, postgres, folder / "tables")
