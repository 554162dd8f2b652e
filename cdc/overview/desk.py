"""Answers everything that the page asks for; each method returns one JSON document."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from cdc import __version__
from cdc.config.sink_kinds import lake_of
from cdc.errors import UsageError
from cdc.overview.attention import Attention
from cdc.overview.dead_letters import dead_letters
from cdc.overview.event_tail import OPS, Wanted, key_events, newest_events
from cdc.overview.known_tables import KnownTables
from cdc.overview.lake_pages import LakePages
from cdc.overview.levels import level_of
from cdc.overview.live import Overview
from cdc.overview.log_access import LogAccess
from cdc.overview.places import Places
from cdc.overview.topic_list import topic_page
from cdc.why.diagnosis import diagnosis

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.config.settings import Config
    from cdc.model.left_out import LeftOut
    from cdc.telemetry.exposition import Reported

Settings = Callable[[], list[dict[str, str]]]
"""Returns the settings with their origins (`cdc.config.shown`)."""

_WHY_S: Final = 3.0  # a diagnosis has connections to every server: viewers share one


class Desk:
    """Thread-safe. Use it as a context manager. Methods raise TailraceError; those that read Kafka take time."""

    def __init__(
        self,
        config: Config,
        status: Reported,
        clock: Clock,
        *,
        left_out: Callable[[], Sequence[LeftOut]],
        settings: Settings,
        file: Path | None,
        pending: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """`left_out` returns all tables that capture leaves out; `file` is the configuration file.

        `pending` says which settings a reload would change now.
        """
        self._config = config
        self._status = status
        self._clock = clock
        self._settings = settings
        self._file = file
        self._pending = pending
        self._places = Places.of(config)
        self._overview = Overview(config, status, clock)
        self._log = LogAccess(config, clock)
        self._tables = KnownTables(config, self._log, clock, left_out)
        self._lakes = LakePages(config)
        self._diagnosing = threading.Lock()
        self._diagnosed: tuple[float, dict[str, Any]] | None = None
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        self._closing.callback(self._log.close)
        self._closing.enter_context(self._overview)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def adopt(self, config: Config) -> None:
        """Use other limits in diagnoses."""
        self._config = config

    def session(self) -> dict[str, Any]:
        """Return name and version."""
        return {"name": self._config.name, "version": __version__}

    def picture(self) -> dict[str, Any]:
        """Return the picture of the flow."""
        return self._overview.picture()

    def history(self) -> dict[str, Any]:
        """Return the values of the last hour."""
        return self._overview.history()

    def tables(self, search: str, state: str, offset: int, limit: int) -> dict[str, Any]:
        """Return a page of the list of tables."""
        return self._tables.page(self._snapshots(), search=search, state=state, offset=offset, limit=limit)

    def table(self, name: str) -> dict[str, Any]:
        """Return one table with its columns, schemas and findings."""
        return self._tables.table(name, self._snapshots())

    def topics(self, search: str, offset: int, limit: int) -> dict[str, Any]:
        """Return a page of the list of topics."""
        tables = self._tables.topics()
        return topic_page(self._config, self._log, tables, search=search, offset=offset, limit=limit)

    def sinks(self) -> dict[str, Any]:
        """Return all sinks with kind, address and level."""
        found = []
        objectives = {one["sink"]: one for one in self._status.snapshot().get("objectives") or ()}
        for sink in self._overview.sinks():
            place = self._places.sinks.get(sink.name)
            kind, address = (place.kind, place.address) if place else ("", "")
            shown = {"kind": kind, "detail": address, "level": level_of(sink.state)}
            found.append({**shown, **sink.document, "objective": objectives.get(sink.name)})
        return {"sinks": found}

    def lakes(self) -> dict[str, Any]:
        """Return all lakes with cuts, views and their costs."""
        return self._lakes.lakes()

    def lineage(self, lake: str, view: str) -> dict[str, Any]:
        """Return where the columns of a view come from."""
        settings = lake_of(self._config, lake)
        if not settings.views:
            raise UsageError(f"the lake {lake} has no views", hint=f"set sinks.{lake}.views to a folder of SQL files")
        try:
            from sinks.warehouse.read.lineage import view_lineage
        except ImportError:
            raise UsageError("the extra warehouse is not installed where capture runs") from None
        columns = {name: [column.name for column in record.columns] for name, record in self._tables.schemas().items()}
        return view_lineage(Path(settings.views), view, columns)

    def dead_letters(self, sink: str, *, authorised: bool) -> dict[str, Any]:
        """Return the blocked keys by table and error, and if authorised the keys themselves."""
        return dead_letters(self._config, sink, with_keys=authorised)

    def events(self, tables: str, ops: str, key: str, cursor: str, limit: int, *, authorised: bool) -> dict[str, Any]:
        """Return the newest events. A filter by key needs the token, because its answer shows whether a key exists."""
        names = tuple(part for part in (part.strip() for part in tables.split(",")) if part)
        wanted = Wanted(tables=names, ops=_ops(ops), key=_key(key) if key else None, limit=limit)
        if key and not authorised:
            raise UsageError("a filter by key needs the bearer token", hint="set http.token, and enter it in the page")
        if cursor and not (cursor.isascii() and cursor.isdigit()):
            raise UsageError(f"invalid cursor {cursor[:40]!r}")
        topics = self._tables.topics()
        with self._log.reader() as reader:
            at = int(cursor) if cursor else None
            return newest_events(reader, self._config.name, topics, wanted, at, values=authorised)

    def key(self, table: str, key: str) -> dict[str, Any]:
        """Return the events of one key."""
        topic = next((topic for topic, name in self._tables.topics().items() if name == table), None)
        if topic is None:
            raise UsageError(f"no captured table is named {table!r}", hint="write schema.table")
        with self._log.reader() as reader:
            return key_events(reader, topic, table, _key(key))

    def findings(self) -> dict[str, Any]:
        """Return all open DDL findings."""
        return {"findings": self._tables.findings()}

    def attention(self) -> list[Attention]:
        """Return what needs attention, for the notifier."""
        return self._overview.attention()

    def alarms(self) -> dict[str, Any]:
        """Return what needs attention, with the page of the documentation about it."""
        return {"alarms": self.picture()["attention"]}

    def why(self) -> dict[str, Any]:
        """Return the causes of what is wrong, as `cdc why` names them; takes up to ten seconds."""
        with self._diagnosing:
            now_s = self._clock.monotonic_s()
            if self._diagnosed is None or now_s - self._diagnosed[0] >= _WHY_S:
                found = diagnosis(self._config, clock=self._clock, status=self._status.snapshot)
                self._diagnosed = self._clock.monotonic_s(), found
            return self._diagnosed[1]

    def config(self) -> dict[str, Any]:
        """Return all settings without secrets."""
        return {
            "name": self._config.name,
            "file": None if self._file is None else str(self._file),
            "settings": self._settings(),
            "pending": self._pending(),
        }

    def _snapshots(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._status.snapshot().get("snapshots") or ()
        return found


def _ops(text: str) -> frozenset[str]:
    ops = frozenset(part for part in text.replace(" ", "").split(",") if part)
    if ops - OPS:
        raise UsageError(f"invalid operations {text[:40]!r}", hint="expected c, u, d or r, separated by commas")
    return ops


def _key(text: str) -> object:
    """Return a key filter: a JSON object or value, else the text itself."""
    try:
        found: object = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        if text[:1] in {"{", "[", '"'}:
            raise UsageError("invalid key", hint='expected JSON, for example {"id": 7}') from None
        return text
    if found is None or isinstance(found, list):
        raise UsageError("invalid key", hint='expected a JSON object or one value, for example {"id": 7}')
    return found
