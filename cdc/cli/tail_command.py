"""`cdc tail`: prints events as they are published, or from a given point on."""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli import event_text, output, tail_ordered, tail_outbox, wait_notice
from cdc.cli.command_options import config_option, configuration
from cdc.cli.tail_checks import check_key, check_start
from cdc.cli.wait_notice import WAIT_DEFAULT_S
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.config.sink_kinds import view_lakes
from cdc.errors import EXIT_OK, UsageError
from cdc.lsn import Lsn

if TYPE_CHECKING:
    from cdc.cutindex.log_start import Start
    from cdc.inspect.log_reading import Event, Selection, Table
    from cdc.kafka.log_reader import LogReader

_OPS: Final = {"c": "insert", "u": "update", "d": "delete", "r": "snapshot read"}
_AGO: Final = re.compile(r"(\d{1,9})\s*(s|m|min|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
FROM: Final = "beginning, now, an LSN (0/1B014F8), a time (2026-11-21T16:45, 10m), or offset:TOPIC:PARTITION:N"


@click.command("tail")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@click.option("--op", "ops", help="Only these operations: c, u, d, r, separated by commas  [default: all].")
@click.option("--key", help="""Only this key: JSON, e.g. '{"id": 7}', or the value of a one-column key.""")
@click.option(
    "--from",
    "start",
    metavar="START",
    help=f"Where to start: {FROM}; with --ordered: beginning, an LSN or a token  [default: now; with --ordered: "
    "beginning].",
)
@click.option("--ordered", is_flag=True, help="Print all tables in the order of the source, and a resume token.")
@click.option("--until", metavar="CUT", help="Where an ordered read ends: now, or everything committed before an LSN.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many events  [default: never].")
@click.option(
    "-f/ ", "--follow/--no-follow", default=True, help="Wait for new events at the end, or stop  [default: wait]."
)
@click.option("--topic", "with_topic", is_flag=True, help="Also show topic, partition and offset.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line: the record as in Kafka.")
@click.option("--outbox", is_flag=True, help="Print outbox events; TABLE is then an aggregate type.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=1),
    default=WAIT_DEFAULT_S,
    show_default=True,
    help="Seconds to wait for Kafka, at the start and later.",
    metavar="SECONDS",
)
@config_option
def command(
    tables: Sequence[str],
    ops: str | None,
    key: str | None,
    start: str | None,
    ordered: bool,
    until: str | None,
    count: int | None,
    follow: bool,
    with_topic: bool,
    as_json: bool,
    outbox: bool,
    wait_s: float,
    config_path: Path | None,
) -> int:
    """Print events as they are published.

    TABLE: schema.table, a table name, or a shell pattern (default: all tables). Events of a partition are in commit
    order. Events of several partitions are merged by position as far as they arrive together. With --ordered the order
    is exact, and the token on stderr, or in each document of --json, resumes at the next event.
    """
    from cdc.cutindex.log_start import Now
    from cdc.inspect.log_reading import Selection
    from cdc.inspect.log_reading import tables as tables_of

    tail_ordered.check_options(ordered=ordered, until=until, outbox=outbox)
    config = configuration(config_path)
    if ordered:
        everything = Selection(parse_start("beginning"), ops=parse_ops(ops), key=parse_key(key))
        reading = tail_ordered.Reading(tables, start or "beginning", until or "now", count)
        with _ends_quietly():
            tail_ordered.print_ordered(
                config, everything, reading, with_topic=with_topic, as_json=as_json, wait_s=wait_s
            )
        return EXIT_OK
    start_at = parse_start(start or "now")
    selection = Selection(start_at, ops=parse_ops(ops), key=parse_key(key))
    if outbox:
        if ops or key:
            raise UsageError("--op and --key cannot be combined with --outbox", hint="omit them")
        with _ends_quietly(), _reader(config, wait_s, follow=follow) as reader:
            with output.waiting(wait_notice.kafka(config, wait_s)):
                topics = tail_outbox.topics_of(reader, config, tables)
            tail_outbox.print_events(
                reader, selection, config, topics, count=count, follow=follow, as_json=as_json, wait_s=wait_s
            )
        return EXIT_OK
    with _ends_quietly(), _reader(config, wait_s, follow=follow) as reader:
        with output.waiting(wait_notice.kafka(config, wait_s)):
            known = tables_of(reader, config.name, view_lakes(config, tables))
            wanted = choose(known, tables, start_at)
            _readable(wanted)
            check_key(selection.key, wanted)
            check_start(reader, config.name, start_at, follow_s=wait_s if follow else 0.0)
        if follow and isinstance(start_at, Now):
            output.note(f"waiting for changes of {_names(wanted)}; use --from beginning for existing events")
        events = _events(reader, selection, config, wanted, follow=follow, wait_s=wait_s)
        if as_json:
            _print_json(events, count)
        else:
            _print_lines(events, count, wanted, with_topic=with_topic)
    return EXIT_OK


def _reader(config: Config, wait_s: float, *, follow: bool) -> LogReader:
    from cdc.kafka.log_reader import LogReader

    return LogReader(config.kafka, client_id="tailrace-tail", follows=follow, answer_s=wait_s)


def parse_start(text: str) -> Start:
    """Parse the value of --from. Raises UsageError."""
    from cdc.cutindex.log_start import AtLsn, AtOffset, AtTime, Beginning, Now

    if text in {"beginning", "now"}:
        return Beginning() if text == "beginning" else Now()
    if text.startswith("offset:"):
        topic, _, rest = text.removeprefix("offset:").partition(":")
        partition, _, offset = rest.partition(":")
        if topic and partition.isdecimal() and offset.isdecimal():
            return AtOffset((topic, int(partition)), int(offset))
    elif re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text):
        return AtLsn(Lsn.parse(text))
    elif match := _AGO.fullmatch(text):
        return AtTime(int((SystemClock().wall_s() - int(match[1]) * _SECONDS[match[2]]) * 1000))
    else:
        try:
            # A time without an offset is local time.
            return AtTime(int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000))
        except (ValueError, OverflowError):
            pass
    raise UsageError(f"invalid --from {text!r}", hint=f"expected {FROM}", command="cdc tail --help")


def parse_ops(text: str | None) -> frozenset[str]:
    """Parse the value of --op; empty for all. Raises UsageError."""
    ops = frozenset(part.strip() for part in (text or "").split(",") if part.strip())
    unknown = sorted(ops - _OPS.keys())
    if unknown or (text is not None and not ops):
        meaning = ", ".join(f"{op} = {word}" for op, word in _OPS.items())
        raise UsageError(f"invalid --op {text!r}", hint=f"expected a list of {meaning}", command="cdc tail --op c,u,d")
    return ops


def parse_key(text: str | None) -> object:
    """Parse the value of --key: JSON, else the text itself; None for any key. Raises UsageError."""
    if text is None:
        return None
    try:
        key: object = json.loads(text)
    except (ValueError, RecursionError):
        if text[:1] not in ("{", "[", '"'):
            return text
        key = None
    if key is None or isinstance(key, list) or key == {}:
        raise UsageError(
            f"invalid --key {text!r}",
            hint="expected a JSON object or one value",
            command="""cdc tail --key '{"id": 7}'""",
        )
    return key


def choose(known: Sequence[Table], names: Sequence[str], start: Start) -> list[Table]:
    """Return the tables with these names. Raises UsageError for an unknown name, with the known ones."""
    from cdc.cutindex.log_start import AtOffset
    from cdc.inspect.table_choice import chosen_tables

    if isinstance(start, AtOffset):
        return _of_topic(known, names, start.partition[0])
    return chosen_tables(known, names)


def _of_topic(known: Sequence[Table], names: Sequence[str], topic: str) -> list[Table]:
    from cdc.inspect.table_choice import unknown_name

    if names:
        raise UsageError("--from offset already names the topic", hint="omit the tables")
    found = [table for table in known if table.topic == topic]
    if not found:
        raise unknown_name(f"no captured table has the topic {topic!r}", topic, [table.topic for table in known])
    return found


def _readable(tables: Sequence[Table]) -> None:
    binary = [table for table in tables if table.format == "avro"]
    if binary:
        raise UsageError(
            f'{binary[0].name} is published with encode.format = "avro"; cdc tail shows JSON only',
            hint="use a reader that has the schema registry",
            command=f"kafka-avro-console-consumer --topic {binary[0].topic}",
        )


def _names(tables: Sequence[Table]) -> str:
    return tables[0].name if len(tables) == 1 else f"{len(tables)} tables"


def _events(
    reader: LogReader, selection: Selection, config: Config, tables: Sequence[Table], *, follow: bool, wait_s: float
) -> Iterator[list[Event]]:
    """Yield lists of wanted events: first the existing ones, then new ones."""
    from cdc.inspect.log_reading import follow as following
    from cdc.inspect.log_reading import history

    topics = list(dict.fromkeys(table.topic for table in tables))
    with output.waiting(wait_notice.kafka(config, wait_s)):
        offsets = selection.offsets(reader, config.name, topics)
        ends = {partition: end for partition, (_, end) in reader.end_offsets(topics).items() if partition in offsets}
    batches: Iterator[list[Event]] = history(reader, offsets, ends)
    if follow:
        lost = f"Kafka does not answer; {wait_notice.kafka(config, wait_s)}"
        coming, check = following(reader, ends, SystemClock()), partial(_answers, reader, topics[0])
        batches = chain(batches, wait_notice.patient(coming, check, lost, wait_s, SystemClock()))
    for batch in batches:
        yield [event for event in batch if selection.wants(event)]


def _answers(reader: LogReader, topic: str, timeout_s: float) -> None:
    """Raise BrokerUnreachable unless the broker answers in time."""
    reader.end_offsets([topic], timeout_s=timeout_s)


def _print_json(batches: Iterator[list[Event]], count: int | None) -> None:
    out = sys.stdout.buffer
    for batch in _first(batches, count):
        out.write(b"".join(map(event_text.document, batch)))
        out.flush()
        _check_reader()


def _print_lines(
    batches: Iterator[list[Event]], count: int | None, tables: Sequence[Table], *, with_topic: bool
) -> None:
    terminal = sys.stdout.isatty()
    shape = event_text.layout(tables, width=output.console().width if terminal else 0, with_offset=with_topic)
    today = f"{datetime.now(UTC).astimezone():%Y-%m-%d}" if terminal else ""
    shown = ([event for event in batch if event.envelope is not None] for batch in batches)
    for batch in _first(shown, count):
        for event in batch:
            click.echo(event_text.line(event, shape, today))
        sys.stdout.flush()
        _check_reader()


def _first(batches: Iterator[list[Event]], count: int | None) -> Iterator[list[Event]]:
    """Yield batches until `count` events have come; None: all."""
    left = count
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch[:left]
        left -= len(batch)
        if left <= 0:
            return


def _check_reader() -> None:
    """Raise BrokenPipeError when the reader has closed our output; otherwise only the next event would notice it."""
    waiting = select.poll()
    waiting.register(sys.stdout.fileno(), 0)
    if any(happened & select.POLLERR for _, happened in waiting.poll(0)):
        raise BrokenPipeError


@contextmanager
def _ends_quietly() -> Iterator[None]:
    """Treat Ctrl-C and a closed pipe (`cdc tail | head`) as the normal end of the command."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\n" if sys.stderr.isatty() else "")
    except BrokenPipeError:
        # Nothing more may be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
