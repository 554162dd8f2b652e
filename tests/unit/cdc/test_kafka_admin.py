"""Topics are divided into requests that the controller accepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.kafka.admin import CREATE_RECORDS_MAX, _batches
from cdc.kafka.cluster_facts import TopicSpec


def _specs(partition_counts: list[int]) -> list[TopicSpec]:
    return [
        TopicSpec(topic=f"t{number}", partition_count=count, replication_factor=1, configs={"a": "1", "b": "2"})
        for number, count in enumerate(partition_counts)
    ]


@given(st.lists(st.integers(min_value=1, max_value=CREATE_RECORDS_MAX * 2), max_size=60))
def test_every_topic_is_in_one_request_and_no_request_is_too_large(partition_counts: list[int]) -> None:
    specs = _specs(partition_counts)

    batches = list(_batches(specs))

    assert [spec for batch in batches for spec in batch] == specs
    for batch in batches:
        assert batch
        # A topic that is too large by itself is for the broker to refuse.
        assert len(batch) == 1 or sum(3 + spec.partition_count for spec in batch) <= CREATE_RECORDS_MAX


def test_two_thousand_topics_are_a_few_requests() -> None:
    assert len(list(_batches(_specs([4] * 2_000)))) == 2
