"""Opens an ordered read of a pipeline: its two readers of Kafka, its tables and its range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config
from cdc.cutindex.log_start import AtLsn, Beginning
from cdc.errors import BrokerRefused, TopicMismatch, UsageError
from cdc.inspect.log_reading import Table
from cdc.inspect.log_reading import tables as tables_of
from cdc.inspect.ordered_range import OrderedStart, RangeFinder
from cdc.inspect.ordered_reader import OrderedEvent, OrderedReader
from cdc.inspect.resume_token import LogIdentity, decode_token, encode_token, is_token
from cdc.inspect.table_choice import chosen_tables
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.client_options import READ_QUEUE_BYTES
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.topic_names import cuts_topic
from cdc.progress.restore import recorded_position

WAIT_S: Final = 30.0
_INDEX_BYTES: Final = 2 << 20  # of the cut index fetched ahead; the rest of memory is for the topics
_SHOWN_MAX: Final = 40
STARTS: Final = "beginning, an LSN (0/1B014F8), or a resume token"
UNTILS: Final = "now, or an LSN (0/1B014F8)"


class OrderedRead:
    """An iterator over the events of a pipeline in the order of the source. Used by one thread; close it at the end.

    Attributes:
        tables: the tables that are read.
        log: what its tokens belong to.
        until_lsn: where it ends: it has every transaction that committed before this LSN.
    """

    def __init__(
        self,
        config: Config,
        *,
        start: str = "beginning",
        until: str = "now",
        tables: Sequence[str] = (),
        wait_s: float = WAIT_S,
        clock: Clock | None = None,
    ) -> None:
        """Find the range, and check that the log has it. See `cdc.client.ordered` for arguments and errors."""
        begin, until_lsn = parse_ordered_start(start), parse_until(until)
        clock = clock or SystemClock()
        self._closing = ExitStack()
        try:
            index = self._reader(config, wait_s, clock, _INDEX_BYTES)
            finder = RangeFinder(index, config.name, clock)
            tables_of(index, config.name)  # say first if nothing was ever captured
            target = finder.target(until_lsn, wait_s)
            # Schemas are in the log no later than their first row, so now every table up to the target is known.
            self.tables = readable(tables_of(index, config.name), tables)
            topics = sorted({table.topic for table in self.tables})
            self.log = LogIdentity(config.name, _checked_id(config, index, topics), tuple(tables))
            state: OrderedStart = decode_token(begin, self.log) if isinstance(begin, str) else begin
            reading = finder.range(state, target, topics, until_lsn)
            data = self._reader(config, wait_s, clock, READ_QUEUE_BYTES)
            self._events = OrderedReader(index, data, self.log, reading)
            self._closing.callback(self._events.close)
            self.until_lsn = Lsn(target.end_lsn) if until_lsn is None else until_lsn
        except BaseException:
            self._closing.close()
            raise

    def __iter__(self) -> Iterator[OrderedEvent]:
        return self

    def __next__(self) -> OrderedEvent:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def token(self) -> str:
        """The token of the last event that was returned; at the end, of the end of the read."""
        place = self._events.place
        return encode_token(self.log, place.state())

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._closing.close()

    def _reader(self, config: Config, wait_s: float, clock: Clock, ahead_bytes: int) -> LogReader:
        reader = LogReader(
            config.kafka, client_id="tailrace-ordered", clock=clock, ahead_bytes=ahead_bytes, answer_s=wait_s
        )
        self._closing.callback(reader.close)
        return reader


def parse_ordered_start(text: str) -> Beginning | AtLsn | str:
    """Parse where an ordered read begins; a token is returned as it is. Raises UsageError."""
    if text == "beginning":
        return Beginning()
    if is_token(text):
        return text
    try:
        return AtLsn(Lsn.parse(text))
    except ValueError:
        raise UsageError(f"invalid start {_short(text)} of an ordered read", hint=f"expected {STARTS}") from None


def parse_until(text: str) -> Lsn | None:
    """Parse where an ordered read ends; None: at the newest cut. Raises UsageError."""
    if text == "now":
        return None
    try:
        return Lsn.parse(text).before_header()
    except ValueError:
        raise UsageError(f"invalid end {_short(text)} of an ordered read", hint=f"expected {UNTILS}") from None


def readable(known: Sequence[Table], names: Sequence[str]) -> list[Table]:
    """Return the chosen tables. Raises UsageError if one has a format whose records cannot be ordered."""
    chosen = chosen_tables(known, names)
    binary = [table.name for table in chosen if table.format == "avro"]
    if binary:
        raise UsageError(
            f"an ordered read needs the position of every event; that of {binary[0]} is inside its Avro value",
            hint='name tables whose encode.format is "json" or "flat"',
        )
    return chosen


def _checked_id(config: Config, reader: LogReader, topics: Sequence[str]) -> str:
    """Return Kafka's id of the cut index, empty if it may not be read. Raises TopicMismatch for a recreated topic."""
    cuts = cuts_topic(config.name)
    try:
        described = TopicAdmin(config.kafka, client_id="tailrace-ordered").describe([cuts, *topics])
    except BrokerRefused:
        return ""
    identity = recorded_position(reader, config.name).identity
    recorded = {} if identity is None else identity.topic_ids
    for topic in topics:
        facts = described.get(topic)
        if facts is not None and recorded.get(topic, facts.topic_id) != facts.topic_id:
            raise TopicMismatch(
                f"topic {topic!r} was recreated: its events from before are gone, and its offsets began again",
                hint="let capture repair the log first, or name the other tables",
                command="cdc slot recreate --resnapshot",
                topic=topic,
            )
    index = described.get(cuts)
    return "" if index is None else index.topic_id


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")
