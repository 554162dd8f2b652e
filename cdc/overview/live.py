"""The overview of a running pipeline: samples an hour of history, and builds the picture for those who look.

Without viewers, only the history takes time: the state of sinks that other processes run, and lakes, are
read when a picture is asked for, at most every few seconds, in a thread of their own. So a picture never waits for
Kafka or a store.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from cdc.config.sink_kinds import lakes
from cdc.errors import TailraceError
from cdc.inspect.lake_state import lake_document
from cdc.overview.attention import Attention, attention_of
from cdc.overview.history import EVERY_S, History, sampled
from cdc.overview.lake_facts import view_facts
from cdc.overview.picture import Seen, picture
from cdc.overview.places import Places
from cdc.overview.rates import Rates
from cdc.overview.sink_facts import SinkFacts, reported, supervised, unread, with_group
from cdc.telemetry import log

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.config.settings import Config
    from cdc.telemetry.exposition import Reported
    from sinks.operate.dead_letter_view import BlockedKeyReader

PICTURE_S: Final = 1.0
"""A picture is computed at most this often, for all viewers together."""

_SEEN_S: Final = 5.0  # between reads of Kafka and lakes while there are viewers
_UNSEEN_S: Final = 60.0  # without viewers, for the history
_LOOKS_S: Final = 10.0  # since the last picture
_END_S: Final = 5.0


class Overview:
    """Thread-safe. Use it as a context manager: it has threads of its own."""

    def __init__(self, config: Config, status: Reported, clock: Clock) -> None:
        """`status` is capture's own report, with its sinks if it supervises them."""
        self._config = config
        self._status = status
        self._clock = clock
        self._places = Places.of(config)
        self._history = History()
        self._rates = Rates()
        self._lock = threading.Lock()
        self._picture: tuple[float, dict[str, Any]] | None = None
        self._asked_s = -_LOOKS_S
        self._elsewhere: Sequence[SinkFacts] = [SinkFacts(name=name, state="STARTING") for name in self._places.sinks]
        self._blocked: Mapping[str, int] = {}
        self._views: Mapping[str, tuple[int, Mapping[str, str]]] = {}
        self._stop, self._looked = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._sample, name="history", daemon=True)]
        if config.sinks:
            self._threads.append(threading.Thread(target=self._read, name="overview", daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._looked.set()
        for thread in self._threads:
            thread.join(_END_S)

    def picture(self) -> dict[str, Any]:
        """Return the picture, at most a second old."""
        with self._lock:
            now_s = self._asked_s = self._clock.monotonic_s()
            self._looked.set()
            if self._picture is None or now_s - self._picture[0] >= PICTURE_S:
                self._picture = now_s, self._build(now_s)
            return self._picture[1]

    def history(self) -> dict[str, Any]:
        """Return the values of the last hour."""
        return self._history.document()

    def attention(self) -> list[Attention]:
        """Return what needs attention; unlike `picture`, without reading more often what other processes know."""
        status = self._status.snapshot()
        return attention_of(status, self._sinks(status), self._views)

    def sinks(self) -> list[SinkFacts]:
        """Return the newest facts of all sinks."""
        return self._sinks(self._status.snapshot())

    def _build(self, now_s: float) -> dict[str, Any]:
        status = self._status.snapshot()
        sinks = self._sinks(status)
        self._rates.add(now_s, sinks)
        return picture(Seen(self._now(), self._places, status, sinks, self._rates.now(now_s), self._views))

    def _sinks(self, status: Mapping[str, Any]) -> list[SinkFacts]:
        kept = status.get("sinks")
        if isinstance(kept, Mapping):
            read = {one.name: one for one in self._elsewhere}
            facts = [with_group(supervised(name, found), read.get(name)) for name, found in sorted(kept.items())]
        else:
            facts = list(self._elsewhere)
        return [replace(one, blocked_keys=self._blocked.get(one.name)) for one in facts]

    def _sample(self) -> None:
        """Append to the history until the end."""
        while not self._clock.wait(self._stop, EVERY_S):
            status, now_s = self._status.snapshot(), self._clock.monotonic_s()
            sinks = self._sinks(status)
            with self._lock:
                self._rates.add(now_s, sinks)
                rates = self._rates.now(now_s)
            values = {
                sink.name: {
                    "lag_records": sink.lag_records,
                    "lag_seconds": sink.lag_seconds,
                    "behind_bytes": sink.behind_bytes,
                    "records_per_second": rates.get(sink.name),
                }
                for sink in sinks
            }
            self._history.add(self._now(), sampled(status, values))

    def _read(self) -> None:
        """Read what other processes know until the end: sinks by way of Kafka, views in the lakes."""
        failing, blocked = "", _BlockedKeys(self._config)
        while not self._stop.is_set():
            self._looked.clear()
            supervises = isinstance(self._status.snapshot().get("sinks"), Mapping)
            looks = self._clock.monotonic_s() - self._asked_s < _LOOKS_S
            if looks or not supervises:
                failing = self._read_sinks(failing)
            self._blocked = blocked.counts()  # without viewers too: the notifier sends them
            self._views = self._read_views()
            if looks:
                self._clock.wait(self._stop, _SEEN_S)
            else:
                self._clock.wait(self._looked, _UNSEEN_S)
        blocked.close()

    def _read_sinks(self, failing: str) -> str:
        """Return why the sinks cannot be read; empty if they can. A reason is logged once."""
        from sinks.operate.sink_view import sink_documents

        try:
            found = sink_documents(self._config, self._clock, lake_document)
            self._elsewhere = [reported(one) for one in found]
        except (TailraceError, ImportError) as error:
            why = error.message if isinstance(error, TailraceError) else str(error)
            if why != failing:
                log.get().warning("sinks_not_read", error=log.origin(error), reason=why)
            self._elsewhere = [unread(name, f"its state in Kafka cannot be read: {why}") for name in self._places.sinks]
            return why
        return ""

    def _read_views(self) -> dict[str, tuple[int, Mapping[str, str]]]:
        found: dict[str, tuple[int, Mapping[str, str]]] = {}
        for name, settings in lakes(self._config).items():
            if settings.views:
                try:
                    found[name] = view_facts(settings)
                except (TailraceError, ImportError) as error:
                    log.get().debug("views_not_read", lake=name, error=log.origin(error))
        return found

    def _now(self) -> str:
        return (
            datetime.fromtimestamp(self._clock.wall_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )


class _BlockedKeys:
    """Counts the blocked keys of the sinks; each time, only new records are read."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._readers: dict[str, BlockedKeyReader] = {}

    def counts(self) -> dict[str, int]:
        """Return them by sink, without those that cannot be read now."""
        from sinks.operate.dead_letter_view import BlockedKeyReader, applied_sinks

        found: dict[str, int] = {}
        for name in applied_sinks(self._config):
            try:
                if name not in self._readers:
                    self._readers[name] = BlockedKeyReader(self._config, name)
                found[name] = self._readers[name].count()
            except TailraceError as error:
                log.get().debug("blocked_keys_not_read", sink=name, error=log.origin(error))
        return found

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
