"""`cdc tail --ordered`: prints the events of all tables in the order of the source, and a token to resume from."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self

import click

from cdc.cli import event_text, output, wait_notice
from cdc.cli.tail_checks import check_key
from cdc.config.settings import Config
from cdc.errors import TailraceError, UsageError

if TYPE_CHECKING:
    from cdc.inspect.log_reading import Selection
    from cdc.inspect.ordered_read import OrderedRead
    from cdc.inspect.ordered_reader import OrderedEvent
    from cdc.inspect.resume_token import Place

FLUSH_EVENTS: Final = 500


def check_options(*, ordered: bool, until: str | None, outbox: bool) -> None:
    """Raise UsageError for options that do not belong together."""
    if until is not None and not ordered:
        raise UsageError("--until is an option of --ordered", hint="add --ordered, or use --no-follow to stop")
    if ordered and until is None:
        raise UsageError(
            "--ordered needs --until: where the read ends",
            hint="--until now is the newest cut; an LSN is everything committed before it",
            command="cdc tail --ordered --until now",
        )
    if ordered and outbox:
        raise UsageError("--ordered reads tables and cannot be combined with --outbox", hint="omit one of them")


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read: names of tables, start and end as given, and after how many events to stop."""

    tables: Sequence[str]
    start: str
    until: str
    count: int | None


def print_ordered(
    config: Config, selection: Selection, reading: Reading, *, with_topic: bool, as_json: bool, wait_s: float
) -> None:
    """Print the events, and the token on stderr at the end, after an error and at Ctrl-C."""
    from cdc.inspect.ordered_read import OrderedRead

    with output.waiting(wait_notice.kafka(config, wait_s)):
        events = OrderedRead(config, start=reading.start, until=reading.until, tables=reading.tables, wait_s=wait_s)
    with events:
        check_key(selection.key, events.tables)
        printer = _Printer(events, as_json=as_json, with_topic=with_topic)
        try:
            printer.print(selection, reading.count)
        except (KeyboardInterrupt, TailraceError):
            printer.show_token()
            raise
        printer.show_token()


class _Printer:
    """Prints events. `done`: the place after the last one, which is not lost at Ctrl-C."""

    def __init__(self, reading: OrderedRead, *, as_json: bool, with_topic: bool) -> None:
        self._reading = reading
        self._as_json = as_json
        self._token = reading.token
        self._done: Place | None = None
        self._terminal = terminal = sys.stdout.isatty()
        width = output.console().width if terminal else 0
        self._shape = event_text.layout(reading.tables, width=width, with_offset=with_topic)
        self._today = f"{datetime.now(UTC).astimezone():%Y-%m-%d}" if terminal else ""
        self._flushes = 1 if terminal else FLUSH_EVENTS

    def print(self, selection: Selection, count: int | None) -> None:
        """Print the wanted events, at most `count`."""
        printed = 0
        with _Interrupts() as interrupts:
            for event in self._reading:
                interrupts.hold()
                if selection.wants(event.event):
                    self._write(event)
                    printed += 1
                    if printed % self._flushes == 0:
                        sys.stdout.flush()
                self._done = event.place
                interrupts.release()
                if printed == count:
                    return
        self._done, self._token = None, self._reading.token

    def show_token(self) -> None:
        """Print the token on stderr, behind everything that was printed."""
        sys.stdout.flush()
        click.echo(f"token: {self._done.token() if self._done is not None else self._token}", err=True)

    def _write(self, event: OrderedEvent) -> None:
        if self._as_json:
            token = json.dumps(event.token)
            document = event_text.document(event.event).rstrip().removesuffix(b"}")
            sys.stdout.buffer.write(document + b',"token":' + token.encode() + b"}\n")
        else:
            line = event_text.line(event.event, self._shape, self._today)
            sys.stdout.write(f"{line if self._terminal else click.unstyle(line)}\n")  # click.echo flushes each line


class _Interrupts:
    """Delays Ctrl-C while an event is printed, so that the token and the output agree."""

    def __init__(self) -> None:
        self._held = self._due = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def hold(self) -> None:
        """Delay it from now on."""
        self._held = True

    def release(self) -> None:
        """Raise KeyboardInterrupt if it came meanwhile."""
        self._held = False
        if self._due:
            raise KeyboardInterrupt

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        self._due = True
        if not self._held:
            raise KeyboardInterrupt
