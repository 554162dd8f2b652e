"""The parts of a lake's driver: `sinks.warehouse.start` creates them, the driver uses them, tests replace them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.clock import Clock
from cdc.config.settings import Warehouse
from cdc.errors import ViewRefused
from cdc.kafka.log_reader import LogReader
from sinks.warehouse.cut_spans import CutSpans
from sinks.warehouse.lake.committer import Committer, TableLoads
from sinks.warehouse.lake.fence import Fence
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.lake_observer import LakeObserver, Unobserved
from sinks.warehouse.topics.view_topics import ViewTopics
from sinks.warehouse.views.definition import View
from sinks.warehouse.views.generations import TextStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.iceberg.follower import IcebergFollower


@dataclass(slots=True, kw_only=True)
class LakeParts:
    """What a driver consists of. `closing` closes what was opened for it.

    `views` and `refused` are those of the files (`ViewFiles`). `keep_spark` leaves the Spark session open for the next
    driver of this process. `loads` writes new tables. With `in_frames` the committer gets rows as frames of Spark.
    """

    name: str
    location: Location
    settings: Warehouse
    spark: SparkSession
    kafka_options: Callable[[], Mapping[str, str]] = field(repr=False)
    reader: LogReader
    store: ManifestStore
    committer: Committer
    loads: TableLoads
    in_frames: bool = False
    fence: Fence
    views: Sequence[View]
    refused: Mapping[str, ViewRefused] = field(default_factory=dict)
    clock: Clock
    texts: TextStore
    topics: ViewTopics | None = None
    iceberg: IcebergFollower | None = None
    observer: LakeObserver = field(default_factory=Unobserved)
    spans: CutSpans | None = None
    keep_spark: Callable[[], object] = lambda: None
    closing: ExitStack = field(default_factory=ExitStack)
