"""Builds the runner of a sink that applies one key at a time: the store by kind, the group, the start of a replay.

Part of the composition root beside `cdc.run.app`: it names concrete classes. It imports the package of a store only
when a sink of that kind runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from msgspec import structs

from cdc.clock import Clock
from cdc.config.settings import Applied, Cache, Config, Plugin, Search
from cdc.config.sink_kinds import applied_of, view_lakes
from cdc.cutindex.log_start import AtLsn, AtOffset, AtTime, Beginning, Now, Start
from cdc.cutindex.lookup import cut_before
from cdc.errors import UsageError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.group_member import GroupConsumer
from cdc.kafka.group_offsets import GroupAssignmentReader
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group
from cdc.telemetry.spans import SinkTracing
from sinks.contract import Target, TopicPartition
from sinks.deadletters.queue_setup import dead_letters
from sinks.runner.applied_spans import AppliedSpans
from sinks.runner.orphaned_partitions import OrphanDetector
from sinks.runner.runner import SinkRunner
from sinks.runner.runner_contracts import RunnerParts, Starts
from sinks.runner.runner_observer import RunnerObserver
from sinks.state.capture_start import waiting_for_capture
from sinks.state.offset_metadata import SinkNames
from sinks.state.pause_records import WorkerPause
from sinks.state.read_topics import ReadPartitions, has_read
from sinks.state.schema_follower import SchemaFollower
from sinks.state.state_topic import StateTopic
from sinks.state.table_match import TableCheck

WATCH_S: Final = 60.0
"""Between checks for recreated topics and for new tables."""

_KINDS: Final[Mapping[type[Applied], str]] = {
    Search: "sinks.search.start",
    Cache: "sinks.cache.start",
    Plugin: "sinks.plugin.start",
}


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay into another target under its own name, from `start` on."""

    start: Start
    name: str


def replayed(config: Config, name: str, replay: Replay | None) -> tuple[Config, str]:
    """Return the configuration with a sink of the replay's name. Raises UsageError when the name is taken."""
    if replay is None:
        return config, name
    if replay.name in config.sinks:
        raise UsageError(
            f"--as {replay.name!r} is already a sink in the configuration",
            hint="choose another name: the replay has its own group and its own target",
        )
    return structs.replace(config, sinks={**config.sinks, replay.name: applied_of(config, name)}), replay.name


def target_of(config: Config, name: str, settings: Applied) -> Target:
    """Return the store of a sink; no connection is made yet."""
    module = import_module(_KINDS[type(settings)])
    return cast("Target", module.target(config, name, settings))  # each of these modules has this function


def start_applied(
    config: Config,
    name: str,
    clock: Clock,
    *,
    observer: RunnerObserver,
    replay: Replay | None = None,
    instance: str = "",
    target: Target | None = None,
    watch_s: float = WATCH_S,
    tracing: SinkTracing | None = None,
) -> SinkRunner:
    """Return a runner that has joined its group. On an error everything that was opened is closed again."""
    settings, group = applied_of(config, name), sink_group(config.name, name)
    with ExitStack() as closing:
        reader = closing.enter_context(LogReader(config.kafka, client_id=f"{group}.reader"))
        schemas = SchemaFollower(reader, config.name, settings.tables, clock, lakes=view_lakes(config, settings.tables))
        with waiting_for_capture(reader, config.name, lambda: has_read(config, name)):
            schemas.look()
        state = StateTopic(config, name)
        closing.callback(state.close)
        state_of_places = StateTopic(config, name)
        closing.callback(state_of_places.close)
        letters = dead_letters(config, name, settings, clock)
        closing.callback(letters.close)
        store = target or target_of(config, name, settings)
        closing.callback(store.close)
        directory = TopicAdmin(config.kafka, client_id=f"{group}.admin")
        unowned = (
            OrphanDetector(GroupAssignmentReader(config.kafka, group), directory.describe, clock) if instance else None
        )
        runner = SinkRunner(
            RunnerParts(
                why=SinkNames(name, group),
                settings=settings,
                target=store,
                letters=letters,
                directory=directory,
                schemas=schemas,
                control=WorkerPause(state, clock),
                places=ReadPartitions(state_of_places),
                clock=clock,
                observer=observer,
                watch_s=watch_s,
                spans=None if tracing is None else AppliedSpans(tracing),
                unowned=unowned,
                tables=TableCheck(
                    name, settings.tables, schemas, observer, clock, settings=_settings_of_tables(settings)
                ),
                starts=None if replay is None else starts_of(reader, config.name, replay.start),
                closing=closing.pop_all(),
            )
        )
        runner.join(GroupConsumer(config.kafka, group, runner, instance=instance, clock=clock))
        return runner
    raise AssertionError("unreachable")


def _settings_of_tables(settings: Applied) -> Mapping[str, Sequence[str]]:
    """Return the other settings of the section that name tables."""
    if isinstance(settings, Search):
        return {"fields": list(settings.fields)}
    return {"keys": list(settings.keys)} if isinstance(settings, Cache) else {}


def starts_of(reader: LogReader, name: str, start: Start) -> Starts:
    """Return the function that finds where a replay begins, for partitions without a committed offset."""

    def starts(places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        match start:
            case AtLsn(lsn):
                found = cut_before(reader, name, lsn)
                return {} if found is None else found.offsets
            case AtTime(timestamp_ms):
                at = reader.offsets_for_time(places, timestamp_ms)
                ends = reader.end_offsets({topic for topic, _ in places})
                return {place: ends[place][1] if offset is None else offset for place, offset in at.items()}
            case AtOffset(partition, offset):
                return {partition: offset}
            case Now():
                ends = reader.end_offsets({topic for topic, _ in places})
                return {place: ends[place][1] for place in places}
            case Beginning():
                return {}

    return starts
