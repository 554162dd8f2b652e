"""Readings of only what is new find the same catalog as a reading of the whole topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.model.table_facts import AcceptedFindings, TableRecord
from cdc.model.topic_names import progress_topic
from cdc.progress.record_format import accepted_key, encode, progress_key, table_key
from cdc.progress.recorded_catalog import CatalogFollower, recorded_catalog
from tests.fixtures.capture.memory_log import MemoryLog, _Slot

_NAME = "shop"
_AT = (progress_topic(_NAME), 0)
_RECORD = encode(TableRecord(facts=None))
_TABLES = st.sampled_from(["public.a", "public.b"])
_WRITES = st.one_of(
    st.tuples(
        _TABLES.map(lambda table: table_key(_NAME, table)), st.sampled_from([encode(TableRecord(facts=None)), None])
    ),
    st.tuples(
        _TABLES.map(lambda table: accepted_key(_NAME, table)),
        st.integers(1, 3).map(lambda lsn: encode(AcceptedFindings(epoch=1, lsn=lsn))) | st.none(),
    ),
    st.just((progress_key(_NAME), b"not a record of the catalog")),
    st.just((table_key("another", "public.a"), b"of another pipeline")),
)


@given(st.lists(st.one_of(_WRITES, st.sampled_from(["read", "made again"])), max_size=30))
def test_followed_catalog_is_the_recorded_one(
    steps: list[tuple[bytes, bytes | None] | str],
) -> None:
    log, follower = MemoryLog(committed={0}), CatalogFollower(_NAME)
    for step in [*steps, "read"]:
        if step == "made again":
            log.partitions[_AT] = []
            assert follower.read(log).tables == {}
        elif isinstance(step, str):
            assert follower.read(log) == recorded_catalog(log, _NAME)
        else:
            log.partitions.setdefault(_AT, []).append(_Slot((*step, None), 0))
