"""One Spark session for the whole tier. Servers, and the fixture `capture`, come from tests/fixtures as everywhere.

It has Hadoop's connector for S3, as a user's session would (``s3a.lock``): of the AWS SDK only the modules that are
used, 13 MB instead of the 600 MB bundle, and nothing that Spark has itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A JVM that lives for a minute: without its second compiler, start and first batch take half the time.
SHORT_LIVED: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
# Plans of fifty small queries: Spark's optimisations for large queries take longer than these queries.
QUICK: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
_LOCK: Final = Path(__file__).with_name("s3a.lock")


@pytest.fixture(scope="session")
def spark_options(tmp_path_factory: pytest.TempPathFactory) -> SparkOptions:
    """The options of the run's session."""
    scratch, machine = tmp_path_factory.mktemp("spark"), Machine.here()
    connector = fetch(
        parse_lock(_LOCK.read_text(), name=_LOCK.name), machine=machine, progress=NoProgress(), label="S3A"
    )
    options = {**SHORT_LIVED, "spark.jars": ",".join(map(str, connector))}
    return SparkOptions(master="local[2]", memory="2g", options=options, scratch=scratch)


@pytest.fixture(scope="session")
def spark(spark_options: SparkOptions) -> Iterator[SparkSession]:
    """The session of the run. A test that closes a session uses its own process."""
    session = open_session(spark_options, machine=Machine.here(), progress=NoProgress())
    try:
        yield session
    finally:
        close_session(session)


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The run's session; its settings are restored afterwards."""
    before = {name: spark.conf.get(name) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        spark.conf.set(name, str(old))
