"""`encode.compatibility = "debezium"` writes forms that sinks and `cdc verify` do not read, so both refuse them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from cdc.clock import SystemClock
from cdc.config.debezium_options import MODES
from cdc.config.load import parse
from cdc.encode.builtin_types import ARRAYS, SCALARS
from cdc.encode.values import EncodeOptions, resolve
from cdc.errors import SinkUnfit, UsageError
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import SchemaRecord
from cdc.verify.key_states import Sample
from cdc.verify.source_tables import open_source
from cdc.verify.topic_comparison import verify_source
from sinks.state.schema_follower import SchemaFollower
from sinks.state.topic_format import check_encodings
from sinks.warehouse.log.lake_columns import form_of
from tests.fixtures.lake.lake_events import ID, column, schema
from tests.fixtures.servers.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from cdc.progress.restore import Partition

USUAL: Final = [
    EncodeOptions(),
    EncodeOptions(numeric="number", int64="string", time="micros", bytea="base64", interval="parts", json="value"),
    EncodeOptions(bytea="base64url"),
]
COMPATIBLE: Final = [
    EncodeOptions(compatibility="debezium", debezium=((key, value),))
    for key, values in MODES.values()
    for value in values
]
CONFIG: Final = """
name = "shop"
[source]
dsn = "postgresql://nobody@127.0.0.1:1/x"
tables = ["public.*"]
[kafka]
bootstrap = "127.0.0.1:1"
[encode]
compatibility = "debezium"
"""


class _Log:
    """The schema topic with one record."""

    def __init__(self, record: SchemaRecord) -> None:
        self._value = msgspec.json.encode(record)

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        return {(topic, 0): (0, 1) for topic in topics}

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Generator[list[LogRecord], None, None]:
        del until
        yield [
            LogRecord(topic, index, offset, 0, b"", self._value, None) for (topic, index), offset in assignments.items()
        ]

    def last_records(self, topic: str, *, keys: object = None) -> dict[bytes, tuple[int, bytes]]:
        del keys
        return {topic.encode(): (0, self._value)}

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 1)

    def close(self) -> None:
        pass


def _record(encoding: str) -> SchemaRecord:
    return schema(ID, column("at", "timestamp", encoding))


@pytest.mark.parametrize("options", COMPATIBLE, ids=lambda one: "-".join(one.debezium[0]))
def test_a_form_is_one_that_sinks_read_or_is_refused(options: EncodeOptions) -> None:
    modifiers = (-1, 1, 3, ((10 << 16) | 2) + 4)
    oids = sorted({*SCALARS, *ARRAYS})
    usual = {resolve(oid, {}, one).encoding for oid, one in itertools.product(oids, USUAL)}
    foreign = {
        resolve(oid, {}, options, modifier).encoding for oid, modifier in itertools.product(oids, modifiers)
    } - usual
    assert "debezium_point" in foreign
    for encoding in foreign:
        with pytest.raises(SinkUnfit):
            check_encodings(_record(encoding))


@pytest.mark.parametrize("encoding", ["debezium_timestamp_micros", "array<debezium_decimal(2)>"])
def test_sinks_and_lake_refuse_a_topic_that_another_configuration_wrote(encoding: str) -> None:
    record = _record(encoding)
    book = SchemaFollower(_Log(record), "shop", ["public.*"], ManualClock())
    book.look()
    for ask in (book.tables, lambda: book.find(record.topic, record.schema_id), lambda: form_of(record, {})):
        with pytest.raises(SinkUnfit, match="sinks do not support its encoding of column 'at'") as refused:
            ask()
        assert refused.value.state == "MISCONFIGURED"
        assert "another `name` without encode.compatibility" in refused.value.hint
    elsewhere = SchemaFollower(_Log(record), "shop", ["other.*"], ManualClock())
    elsewhere.look()
    assert elsewhere.tables() == {}


def test_usual_forms_of_a_compatible_topic_are_read() -> None:
    record = schema(ID, column("day", "date", "epoch_days"))

    check_encodings(record)
    assert form_of(record, {}).columns[1].type == "date"


def test_verify_refuses_to_compare_with_the_tables_before_it_connects() -> None:
    config = parse(CONFIG, {})

    with pytest.raises(UsageError, match="cannot compare topics with encode") as refused:
        verify_source(config, (), clock=SystemClock(), sample=Sample(), repair=False)
    assert (refused.value.command, "another `name`" in refused.value.hint) == ("cdc audit", True)
    with pytest.raises(UsageError, match="cannot compare topics"), open_source(config):
        raise AssertionError("opened")
