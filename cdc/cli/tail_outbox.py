"""`cdc tail --outbox`: prints outbox events, one per line. Payloads may be any bytes; text is shown, truncated."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import wait_notice
from cdc.cli.output import plain, waiting
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.errors import UsageError

if TYPE_CHECKING:
    from cdc.inspect.log_reading import Selection
    from cdc.kafka.log_reader import LogReader
    from cdc.model.log_record import LogRecord

_SHOWN_MAX: Final = 100


def topics_of(reader: LogReader, config: Config, types: Sequence[str]) -> dict[str, str]:
    """Return topic -> shown type, for the event topics of these aggregate types (default: all).

    Raises UsageError when there is no outbox, or no such type.
    """
    from cdc.model.progress_record import Identity
    from cdc.model.topic_names import progress_topic, refused_events_topic
    from cdc.progress.record_format import decode, identity_key
    from outbox.event_topics import EventTopics

    if config.outbox is None:
        raise UsageError("no outbox is configured", hint="add a section [outbox]")
    names, topic, key = (
        EventTopics.of(config.name, config.outbox),
        progress_topic(config.name),
        identity_key(config.name),
    )
    newest = reader.last_records(topic, keys=(key,)).get(key)
    recorded = decode(newest[1], Identity, topic).topic_ids if newest is not None else {}
    known = {name: kind for name in recorded if (kind := names.type_of(name)) is not None}
    refused = refused_events_topic(config.name)
    if refused in recorded:
        known[refused] = "REFUSED"
    found = {name: kind for name, kind in known.items() if not types or kind in types}
    missing = sorted(set(types) - set(found.values()))
    if missing or not found:
        there = ", ".join(sorted(known.values())) or "no types yet"
        raise UsageError(f"no events of type {missing[0]!r}" if missing else "no events", hint=f"available: {there}")
    return found


def print_events(
    reader: LogReader,
    selection: Selection,
    config: Config,
    topics: dict[str, str],
    *,
    count: int | None,
    follow: bool,
    as_json: bool,
    wait_s: float,
) -> None:
    """Print existing events from the selection's start on, then new ones; at most `count`.

    Raises BrokerUnreachable when the broker has not answered for `wait_s` seconds.
    """
    with waiting(wait_notice.kafka(config, wait_s)):
        offsets = selection.offsets(reader, config.name, list(topics))
        until = None if follow else {at: end for at, (_, end) in reader.end_offsets(topics).items() if at in offsets}
    batches: Iterator[list[LogRecord]] = reader.read(offsets, until)
    if follow:
        lost = f"Kafka does not answer; {wait_notice.kafka(config, wait_s)}"
        check = partial(reader.end_offsets, list(topics)[:1])
        batches = wait_notice.patient(batches, lambda s: check(timeout_s=s), lost, wait_s, SystemClock())
    left = count
    for record in _records(batches):
        if left == 0:
            return
        click.echo(document(record, topics[record.topic]) if as_json else line(record, topics[record.topic]))
        left = None if left is None else left - 1
    sys.stdout.flush()


def line(record: LogRecord, kind: str) -> str:
    """Return one line for people."""
    headers = dict(record.headers or [])
    moment = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).astimezone()
    reason = _text(headers.get("refused-reason", b""))
    parts = [
        f"{moment:%Y-%m-%d %H:%M:%S}",
        f"{kind} {_text(record.key or b'')}",
        f"{_text(headers.get('type', b'?'))} v{_text(headers.get('version', b'1'))}",
        _text(headers.get("id", b"")),
        "(no payload)" if record.value is None else _text(record.value),
    ]
    return plain("  ".join([*parts, *([f"refused: {reason}"] if reason else [])]))


def document(record: LogRecord, kind: str) -> str:
    """Return the record as JSON; bytes that are not text become ``{"base64": ...}``."""
    topic, partition, offset, timestamp, key, value, headers = record
    found: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "ts_ms": timestamp}
    found |= {"aggregate_type": kind, "key": _json(key), "headers": {n: _json(v) for n, v in headers or []}}
    return json.dumps({**found, "payload": _json(value)}, ensure_ascii=False)


def _records(batches: Iterator[list[LogRecord]]) -> Iterator[LogRecord]:
    for batch in batches:
        yield from batch
        sys.stdout.flush()


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"({len(data)} bytes)"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
