"""One Spark session for the whole tier. Servers, and the fixture `capture`, come from tests/fixtures as everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from cdc.artifacts.machine import Machine
from cdc.artifacts.progress import Silent
from sinks.warehouse.session import SparkOptions, close_session, open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A JVM that lives for a minute: without its second compiler, start and first batch take half the time.
SHORT_LIVED: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def spark_options(tmp_path_factory: pytest.TempPathFactory) -> SparkOptions:
    """What the session of the run is opened with."""
    scratch = tmp_path_factory.mktemp("spark")
    return SparkOptions(master="local[2]", memory="2g", options=SHORT_LIVED, scratch=scratch)


@pytest.fixture(scope="session")
def spark(spark_options: SparkOptions) -> Iterator[SparkSession]:
    """The session of the run. A test that closes a session does so in a process of its own."""
    session = open_session(spark_options, machine=Machine.here(), progress=Silent())
    try:
        yield session
    finally:
        close_session(session)
