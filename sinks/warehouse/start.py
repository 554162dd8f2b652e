"""Puts a lake's driver together: Spark, Kafka, the lake's place, the fence.

A folder is locked as well, which keeps two drivers of one machine apart. An object store has no such lock: there the
fence alone does, which is asked before every manifest.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.clock import Clock
from cdc.config.settings import Config, Warehouse
from cdc.config.sink_kinds import lake_of
from cdc.errors import LakeUnready
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import cuts_topic, sink_group
from cdc.publish.topic_rules import message_bytes_max
from cdc.telemetry import log
from sinks.state.capture_start import waiting_for_capture
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.driver import LakeDriver
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.fence import Fence
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import Manifest, ManifestStore, check_owner
from sinks.warehouse.lake_observer import LakeObserver, Unobserved, published_cut
from sinks.warehouse.log.java_kafka_options import PREFIX, spark_options
from sinks.warehouse.parts import LakeParts
from sinks.warehouse.read.lake_reader import At, Lake
from sinks.warehouse.read.view_check import ViewReport, check_views
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session
from sinks.warehouse.spark.storage_options import check_connector
from sinks.warehouse.topics.view_topics import ViewTopics
from sinks.warehouse.verify.mirror_check import MirrorReport, Verification, verify_mirrors
from sinks.warehouse.views.definition import View, views_of
from sinks.warehouse.views.generations import TextStore
from sinks.warehouse.warm_up import warm_up

_LOCK_FILE: Final = "lock"


def start(
    config: Config,
    sink: str,
    clock: Clock,
    *,
    machine: Machine,
    progress: Progress,
    observer: LakeObserver | None = None,
) -> LakeDriver:
    """A driver that has the lake to itself. Raises what forbids it, with everything closed again."""
    observer = observer or Unobserved()
    settings = lake_of(config, sink)
    location = Location.configured(settings)
    with ExitStack() as closing:
        if location.folder is not None:
            closing.enter_context(_locked(location.folder))
        store = ManifestStore(location)
        check_owner(store.current(), config.name, location)
        views = views_of(settings)
        reader = closing.enter_context(LogReader(config.kafka, client_id=f"{config.name}.sink.{sink}.reader"))
        if store.current() is None:
            with waiting_for_capture(reader, config.name, lambda: False):
                reader.partitions([cuts_topic(config.name)])
        record_bytes_max = message_bytes_max(config.capture.row_bytes_max)
        fence = Fence(config.kafka, sink_group(config.name, sink), clock, message_bytes_max=record_bytes_max)
        closing.callback(fence.close)
        fence.take()  # before Spark, which takes long to start and is of no use while Kafka is away
        spark = open_session(_options(settings, machine), machine=machine, progress=progress)
        until_error = closing.enter_context(ExitStack())
        until_error.callback(close_session, spark)
        check_connector(spark, location)
        warm_up(spark)
        current = store.current()
        observer.opened(published_cut(current, {}) if current else None)
        log.get().info("lake_opened", path=str(location), cut=current.cut if current else 0, views=len(views))
        return LakeDriver(
            LakeParts(
                name=config.name,
                location=location,
                settings=settings,
                spark=spark,
                kafka_options=spark_options(config.kafka, _revealed(settings)),
                reader=reader,
                store=store,
                committer=DeltaRs(location),
                fence=fence,
                views=views,
                texts=TextStore(location),
                topics=ViewTopics(
                    config.name,
                    sink,
                    config.kafka,
                    row_bytes_max=config.capture.row_bytes_max,
                    reader=reader,
                    sender=fence,
                    location=location,
                ),
                clock=clock,
                observer=observer,
                keep_spark=until_error.pop_all,
                closing=closing.pop_all(),
            )
        )
    raise AssertionError("unreachable")


def verify(
    config: Config, settings: Warehouse, tables: Sequence[str], *, machine: Machine, progress: Progress
) -> tuple[Manifest, list[MirrorReport]]:
    """Compare the lake with the topics at the cut it is at. Raises SinkBehind when it has none."""
    location = Location.configured(settings)
    manifest = Lake(location).manifest()
    with LogReader(config.kafka, client_id=f"{config.name}.verify") as reader, ExitStack() as closing:
        spark = open_session(_options(settings, machine), machine=machine, progress=progress)
        closing.callback(close_session, spark)
        wanted = Verification(
            spark=spark,
            location=location,
            name=config.name,
            kafka_options=spark_options(config.kafka, _revealed(settings)),
            tables=tables or ("*.*",),
            types=settings.types,
        )
        return manifest, verify_mirrors(wanted, manifest, reader)
    raise AssertionError("unreachable")


def check(
    location: Location, views: Sequence[View], names: Sequence[str], *, at: At, machine: Machine, progress: Progress
) -> tuple[int, list[ViewReport]]:
    """Compare views with their queries as of a cut; all of them for no names. Raises UsageError, SinkBehind."""
    lake = Lake(location)
    manifest = lake.manifest(at)
    with ExitStack() as closing:
        spark = open_session(SparkOptions(scratch=machine.cache / "spark"), machine=machine, progress=progress)
        closing.callback(close_session, spark)
        check_connector(spark, location)
        return manifest.cut, check_views(spark, lake, manifest, views, names)
    raise AssertionError("unreachable")


def _options(settings: Warehouse, machine: Machine) -> SparkOptions:
    return SparkOptions(
        master=settings.master,
        memory=settings.memory,
        options={name: value for name, value in _revealed(settings).items() if not name.startswith(PREFIX)},
        scratch=machine.cache / "spark",
    )


def _revealed(settings: Warehouse) -> dict[str, str]:
    """Spark's settings, which may hold secrets, as Spark takes them."""
    return {name: value.reveal() for name, value in settings.spark.items()}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One driver on this machine; the fence in Kafka is for those on others. It goes with the process."""
    folder = path / layout.CUTS_FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LakeUnready(f"the lake's folder {path} cannot be written: {error.strerror}", path=str(path)) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LakeUnready(
                f"another process keeps the lake in {path}",
                hint="it is waited for; the lock goes with that process",
                command=f"fuser -v {folder / _LOCK_FILE}",
                path=str(path),
            ) from error
        yield
    finally:
        os.close(handle)
