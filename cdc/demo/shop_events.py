"""Shows some of the shop's events, one line each, as a consumer of the topics sees them.

Hundreds of events arrive per second. Every half second one is shown, of the kind that was not shown for the longest
time.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from cdc.config.settings import Config
from cdc.errors import TailraceError
from cdc.kafka.log_reader import LogReader
from cdc.model.log_record import LogRecord

_EVERY_S: Final = 0.5
_KEPT: Final = 12
_TEXT_MAX: Final = 28
_VERBS: Final = {"c": "insert", "u": "update", "d": "delete"}


@dataclass(frozen=True, slots=True)
class Line:
    """An event in one line. `verb` is ``insert``, ``update`` or ``delete``."""

    table: str
    verb: str
    key: str
    text: str


class ShopEvents:
    """A thread that updates `lines`, the newest last. `close` it."""

    def __init__(self, config: Config, topics: list[str]) -> None:
        self.lines: tuple[Line, ...] = ()
        self._config = config
        self._topics = topics
        self._kept: deque[Line] = deque(maxlen=_KEPT)
        self._shown_s: dict[tuple[str, str], float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with LogReader(self._config.kafka, client_id="demo-events", follows=True) as reader:
                ends = {partition: high for partition, (_, high) in reader.end_offsets(self._topics).items()}
                self._follow(reader, ends)
        except TailraceError:
            return  # only the picture: the proof reports errors

    def _follow(self, reader: LogReader, ends: dict[tuple[str, int], int]) -> None:
        waiting: dict[tuple[str, str], LogRecord] = {}
        shown_s = 0.0
        for batch in reader.read(ends):
            for record in batch:
                if record.value is not None and record.key is not None:
                    waiting[(record.topic, _op(record.value))] = record
            now_s = time.monotonic()
            if waiting and now_s - shown_s >= _EVERY_S:
                shown_s = now_s
                kind = min(waiting, key=lambda kind: self._shown_s.get(kind, 0.0))
                self._shown_s[kind] = now_s
                self._kept.append(line_of(waiting[kind]))
                self.lines = tuple(self._kept)
                waiting.clear()
            if self._stopping.is_set():
                return


def line_of(record: LogRecord) -> Line:
    """Describe an event: the changed columns if the old row is known, else the row."""
    topic, _, _, _, key, value, headers = record
    assert key is not None
    assert value is not None
    event = json.loads(value)
    before, after = event["before"] or {}, event["after"] or {}
    moved = [json.loads(text) for name, text in headers or () if name.startswith("__debezium.")]
    keys = json.loads(key)
    if moved:
        arrow = "was" if after else "is now"
        text = f"key changed: {arrow} {_pairs(moved[0])}"
    elif event["op"] == "u" and before:
        text = "  ".join(
            f"{name}: {_short(before.get(name))} → {_short(new)}"
            for name, new in after.items()
            if before.get(name) != new
        )
    else:
        text = _pairs({name: new for name, new in after.items() if name not in keys})
    table = ".".join(topic.split(".")[1:])
    return Line(table, _VERBS.get(event["op"], event["op"]), _pairs(keys), text)


def _op(value: bytes) -> str:
    """Return the operation without decoding the event: it follows `source`."""
    at = value.rfind(b'"op":"')
    return chr(value[at + 6])


def _pairs(row: dict[str, Any]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in row.items())


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"
