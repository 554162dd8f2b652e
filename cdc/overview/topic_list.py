"""Lists the topics of a pipeline with partitions, number of records and policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cdc.config.sink_kinds import lakes
from cdc.kafka.admin import TopicAdmin
from cdc.model import topic_names
from cdc.overview.log_access import ANSWER_S, LogAccess

if TYPE_CHECKING:
    from cdc.config.settings import Config

_OWN: Final = (
    topic_names.progress_topic,
    topic_names.cuts_topic,
    topic_names.schema_topic,
    topic_names.signals_topic,
    topic_names.actions_topic,
    topic_names.transaction_topic,
    topic_names.message_topic,
    topic_names.heartbeat_topic,
    topic_names.refused_events_topic,
    topic_names.matches_topic,
)
_OF_SINKS: Final = (topic_names.sink_state_topic, topic_names.dead_letters_topic)
_OF_LAKES: Final = (topic_names.view_cuts_topic, topic_names.view_schema_topic)


def topic_page(
    config: Config, log: LogAccess, tables: Mapping[str, str], *, search: str, offset: int, limit: int
) -> dict[str, Any]:
    """Return the topics whose name contains `search`. `tables`: topic -> table.

    `records` is the difference of the offsets, so an upper bound in a compacted topic. Topics that do not exist are
    left out of the page, but not of the count. Raises BrokerUnreachable, BrokerRefused.
    """
    known = _names(config) | {topic: ("table", table) for topic, table in tables.items()}
    wanted = search.casefold()
    shown = sorted(topic for topic in known if wanted in topic.casefold())
    names = shown[offset : offset + limit]
    facts = TopicAdmin(config.kafka).describe(names, timeout_s=ANSWER_S) if names else {}
    there = [name for name in names if facts.get(name) is not None]
    with log.reader() as reader:
        ends = reader.end_offsets(there) if there else {}
    records: dict[str, int] = {}
    for (topic, _), (low, high) in ends.items():
        records[topic] = records.get(topic, 0) + high - low
    rows = []
    for name in there:
        fact = facts[name]
        assert fact is not None
        what, table = known[name]
        rows.append(
            {
                "topic": name,
                "what": what,
                "table": table or None,
                "partitions": fact.partition_count,
                "replication_factor": fact.replication_factor,
                "offline": fact.offline,
                "records": records.get(name, 0),
                "cleanup_policy": fact.configs.get("cleanup.policy"),
            }
        )
    return {"count": len(shown), "offset": offset, "topics": rows}


def _names(config: Config) -> dict[str, tuple[str, str]]:
    """Return the topics besides those of tables -> (what it is, the sink or lake it belongs to)."""
    name = config.name
    found = {topic(name): ("own", "") for topic in _OWN}
    found |= {topic(name, sink): ("own", "") for sink in config.sinks for topic in _OF_SINKS}
    return found | {topic(name, lake): ("own", "") for lake in lakes(config) for topic in _OF_LAKES}
