"""Assembles a lake's driver: Spark, Kafka, the lake's location and the fence.

In a local folder a file lock keeps two drivers of one machine apart, too. The fence alone would not: a driver that
froze behind it could still rename a manifest later. An object store has no such lock. There a frozen driver could
write an old pointer, and the next cut would stop on it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config, Warehouse
from cdc.config.sink_kinds import lake_of
from cdc.errors import ConfigError, LakeUnready
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import cuts_topic, sink_group
from cdc.publish.topic_rules import message_bytes_max
from cdc.telemetry import log
from cdc.telemetry.spans import SinkTracing
from sinks.state.capture_start import waiting_for_capture
from sinks.warehouse.cut_spans import CutSpans
from sinks.warehouse.distributed.choice import committer_of, is_distributed, loads_of
from sinks.warehouse.distributed.node_check import check_nodes
from sinks.warehouse.driver import LakeDriver
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.fence import Fence
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import Manifest, ManifestStore, check_owner
from sinks.warehouse.lake_observer import LakeObserver, Unobserved, published_cut
from sinks.warehouse.log.java_kafka_options import PREFIX
from sinks.warehouse.log.kafka_access import kafka_access
from sinks.warehouse.parts import LakeParts
from sinks.warehouse.read.lake_reader import At, Lake
from sinks.warehouse.read.view_check import ViewReport, check_views, without_rows
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, is_local, open_session
from sinks.warehouse.spark.storage_options import check_connector
from sinks.warehouse.topics.view_topics import ViewTopics
from sinks.warehouse.verify.mirror_check import MirrorReport, Verification, verify_mirrors
from sinks.warehouse.views.definition import ViewFiles, ordered, views_of
from sinks.warehouse.views.generations import TextStore, usable
from sinks.warehouse.warm_up import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.warehouse.iceberg.follower import IcebergFollower

_LOCK_FILE: Final = "lock"


def start(
    config: Config,
    sink: str,
    clock: Clock,
    *,
    machine: Machine,
    progress: Progress,
    observer: LakeObserver | None = None,
    tracing: SinkTracing | None = None,
) -> LakeDriver:
    """Return a driver that owns the lake. On failure everything is closed again and the cause is raised."""
    observer = observer or Unobserved()
    settings = lake_of(config, sink)
    location = Location.configured(settings)
    iceberg = _iceberg(location) if settings.iceberg else None  # before Spark: its package may be missing
    with ExitStack() as closing:
        if location.folder is not None:
            closing.enter_context(_locked(location.folder))
        store = ManifestStore(location)
        check_owner(store.current(), config.name, location)
        files = views_of(settings)
        reader = closing.enter_context(LogReader(config.kafka, client_id=f"{config.name}.sink.{sink}.reader"))
        if store.current() is None:
            with waiting_for_capture(reader, config.name, lambda: False):
                reader.partitions([cuts_topic(config.name)])
        record_bytes_max = message_bytes_max(config.capture.row_bytes_max)
        fence = Fence(config.kafka, sink_group(config.name, sink), clock, message_bytes_max=record_bytes_max)
        closing.callback(fence.close)
        access = closing.enter_context(
            kafka_access(config.kafka, _revealed(settings), clock, group=fence.name, master=settings.master)
        )
        fence.take()  # before Spark, which starts slowly and is useless without Kafka
        spark = open_session(_options(settings, machine), machine=machine, progress=progress)
        until_error = closing.enter_context(ExitStack())
        until_error.callback(close_session, spark)
        check_connector(spark, location)
        if not is_local(spark.sparkContext.master or ""):
            check_nodes(spark)
        warm_up(spark)
        current, committer = store.current(), committer_of(settings, spark, location)
        observer.opened(published_cut(current, files.refused) if current else None)
        log.get().info("lake_opened", path=str(location), cut=current.cut if current else 0, views=len(files.views))
        return LakeDriver(
            LakeParts(
                name=config.name,
                location=location,
                settings=settings,
                spark=spark,
                kafka_options=access.options,
                reader=reader,
                store=store,
                committer=committer,
                loads=loads_of(committer, spark, location),
                in_frames=is_distributed(settings, spark.sparkContext.master or ""),
                fence=fence,
                views=files.views,
                refused=files.refused,
                texts=TextStore(location),
                topics=_view_topics(config, sink, reader, fence, location, spark),
                iceberg=iceberg,
                clock=clock,
                observer=observer,
                spans=None if tracing is None else CutSpans(tracing),
                keep_spark=until_error.pop_all,
                closing=closing.pop_all(),
            )
        )
    raise AssertionError("unreachable")


def _iceberg(location: Location) -> IcebergFollower:
    """Raises ConfigError without pyiceberg, which is in an extra of its own."""
    try:
        from sinks.warehouse.iceberg.follower import IcebergFollower
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"`iceberg` is on, but the package {error.name!r} is not installed",
            hint="it is part of the extra 'iceberg'",
            command="pip install 'tailrace[capture,warehouse,iceberg]'",
        ) from error
    return IcebergFollower(location)


def _view_topics(
    config: Config, sink: str, reader: LogReader, fence: Fence, location: Location, spark: SparkSession
) -> ViewTopics:
    return ViewTopics(
        config.name,
        sink,
        config.kafka,
        row_bytes_max=config.capture.row_bytes_max,
        reader=reader,
        sender=fence,
        location=location,
        spark=spark,
        in_frames=is_distributed(lake_of(config, sink), spark.sparkContext.master or ""),
    )


def verify(
    config: Config, settings: Warehouse, tables: Sequence[str], *, machine: Machine, progress: Progress
) -> tuple[Manifest, list[MirrorReport]]:
    """Compare the lake with the topics at its newest cut. Raises SinkBehind if there is none."""
    location = Location.configured(settings)
    manifest = Lake(location).manifest()
    with LogReader(config.kafka, client_id=f"{config.name}.verify") as reader, ExitStack() as closing:
        access = closing.enter_context(
            kafka_access(
                config.kafka, _revealed(settings), SystemClock(), group=f"{config.name}.verify", master=settings.master
            )
        )
        spark = open_session(_options(settings, machine), machine=machine, progress=progress)
        closing.callback(close_session, spark)
        wanted = Verification(
            spark=spark,
            location=location,
            name=config.name,
            kafka_options=access.options,
            tables=tables or ("*.*",),
            types=settings.types,
        )
        return manifest, verify_mirrors(wanted, manifest, reader)
    raise AssertionError("unreachable")


def check(
    location: Location, files: ViewFiles, names: Sequence[str], *, at: At, machine: Machine, progress: Progress
) -> tuple[int, list[ViewReport]]:
    """Compare views with their queries at a cut; all views if `names` is empty. Raises UsageError, SinkBehind."""
    lake = Lake(location)
    manifest = lake.manifest(at)
    found = usable(files, manifest.views, TextStore(location))
    views, cycles = ordered(found.views)
    problems = found.problems(manifest.views) | {name: error.reason for name, error in cycles.items()}
    without_rows(manifest, names, problems)  # before Spark, which starts slowly
    with ExitStack() as closing:
        spark = open_session(SparkOptions(scratch=machine.cache / "spark"), machine=machine, progress=progress)
        closing.callback(close_session, spark)
        check_connector(spark, location)
        return manifest.cut, check_views(spark, lake, manifest, views, names, problems)
    raise AssertionError("unreachable")


def _options(settings: Warehouse, machine: Machine) -> SparkOptions:
    return SparkOptions(
        master=settings.master,
        memory=settings.memory,
        options={name: value for name, value in _revealed(settings).items() if not name.startswith(PREFIX)},
        scratch=machine.cache / "spark",
    )


def _revealed(settings: Warehouse) -> dict[str, str]:
    """Return Spark's settings in plain text; they may hold secrets."""
    return {name: value.reveal() for name, value in settings.spark.items()}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the folder against other drivers on this machine. The lock ends with the process."""
    folder = path / layout.CUTS_FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LakeUnready(f"cannot write to the lake's folder {path}: {error.strerror}", path=str(path)) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LakeUnready(
                f"another process uses the lake in {path}",
                hint="this sink waits for it; the lock ends with that process",
                command=f"fuser -v {folder / _LOCK_FILE}",
                path=str(path),
            ) from error
        yield
    finally:
        os.close(handle)
