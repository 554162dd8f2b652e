"""The rights that the doctor asks the broker about, for the user of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cdc.config.load import parse
from cdc.config.settings import Warehouse
from cdc.doctor.sink_rights import missing_lake_rights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.kafka.admin import TopicAdmin


class _Broker:
    """Allows nothing on any topic."""

    def operations(self, topics: Sequence[str], *, timeout_s: float) -> dict[str, frozenset[str]]:
        assert timeout_s > 0
        return dict.fromkeys(topics, frozenset())


def test_user_of_a_lake_needs_the_state_topic_and_without_published_views_no_topic_of_views() -> None:
    text = 'name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "k:9092"\n'
    config = parse(text + '[sinks.lake]\nkind = "warehouse"\npath = "/lake"\n', {})
    settings = config.sinks["lake"]
    assert isinstance(settings, Warehouse)

    found = missing_lake_rights(config, "lake", settings, [], cast("TopicAdmin", _Broker()), timeout_s=1.0)

    assert {one.what: one.operations for one in found} == {
        "topic shop.__cuts": ("READ",),
        "topic shop.__schema": ("READ",),
        "topic shop.__blocked.lake": ("DESCRIBE_CONFIGS", "READ", "WRITE"),
    }
