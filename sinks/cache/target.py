"""Writes rows to Redis or Valkey: `CacheTarget`, a `sinks.contract.Target`.

A row is one key in the store, which applications read with one ordinary command (`row_names.Names`). Beside it is a
version mark. One script writes both or neither (`scripts`). A mark outlives its row, so a late change of a deleted row
is still recognised as old.

Redis can lose acknowledged writes, in a crash between two syncs or in a failover. So positions are kept in the store
itself, written after the rows that they cover, and read again for each run of the server
(`server_connection.ServerRun`). A store loses its newest writes first, so it loses a position before the rows that the
position covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cdc.config.settings import Cache
from cdc.errors import SinkStale, SinkUnfit, SinkUnreachable
from cdc.model.topic_names import parse_partition
from cdc.patterns import chosen
from sinks.cache import cached_rows, scripts
from sinks.cache.cache_errors import cluster
from sinks.cache.row_names import DEFAULT, Names, check_apart, mark, value_of
from sinks.cache.server_connection import Call, Store
from sinks.contract import AllowedDifference, Change, Content, Outcome, StoredKey, Topic, TopicPartition, Verdict
from sinks.runner.key_fold import merged

if TYPE_CHECKING:
    from cdc.model.progress_record import SchemaRecord

CHUNK_KEYS: Final = 128
"""Keys in one script call, which blocks all other clients: 128 rows take half a millisecond."""

CHUNK_BYTES: Final = 1 << 20
_SWAPS_MAX: Final = 5  # the row changes concurrently only while another worker has the same partition
_SCAN_KEYS: Final = 1000
FORM_VERSION: Final = 1
_OLDEST: Final = 7
_DONE, _OVERTAKEN = Outcome(Verdict.DONE), Outcome(Verdict.OVERTAKEN)
_FULL: Final = Outcome(Verdict.LATER, "OOM", "the store is full (maxmemory)")
_BUSY: Final = Outcome(Verdict.LATER, "", "another worker is writing the same row")
_READS: Final = {"hash": "HGETALL", "invalidate": "EXISTS"}
_FLAGS: Final = {"value": cached_rows.ROW, "hash": cached_rows.ROW, "invalidate": cached_rows.UNSTORED}


class _Table(NamedTuple):
    topic: Topic
    names: Names
    tag: str


class _Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the store records about a table: the topic of its rows, and their form. `version` is left out for 1."""

    topic_id: str
    mode: str
    head: str
    version: int = 1


class CacheTarget:
    """See `Target`."""

    def __init__(self, store: Store, name: str, sink: str, settings: Cache) -> None:
        self._store = store
        self._name = name
        self._sink = sink
        self._settings = settings
        self._tables: dict[str, _Table] = {}
        self._kept: dict[TopicPartition, int] = {}
        self._row_ms = str(int(settings.ttl_s * 1000))
        self._mark_ms = str(int(max(settings.ttl_s, settings.tombstone_s) * 1000)) if settings.ttl_s else "0"
        self._gone_ms = str(int(settings.tombstone_s * 1000))

    def open(self, topics: Sequence[Topic]) -> None:
        """See `Target`."""
        tables = {topic.topic: self._table(topic) for topic in topics}
        check_apart((table.topic.table, table.names.head) for table in tables.values())
        if self._store.life is None:
            self._store.reconnect()
        self.check_server()
        forms = {
            name: msgspec.json.encode(_Form(table.topic.topic_id, self._settings.mode, table.names.head))
            for name, table in tables.items()
        }
        asked = [("HGET", self._forms_key, name) for name in forms]
        new: list[str | bytes] = []
        for (name, form), there in zip(
            forms.items(), self._store.commands("read the tables that it holds", asked), strict=True
        ):
            if there is None:
                new += [name, form]
            elif there != form:
                raise self._other_form(tables[name], there)
        if new:
            self._store.command("record the tables that it holds", "HSET", self._forms_key, *new)
        self._tables = tables

    def prepare(self, schema: SchemaRecord) -> None:
        """See `Target`. The store holds any row."""

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """See `Target`."""
        outcomes: list[Outcome | None] = [None] * len(changes)
        gone, whole, partial, hidden = [], [], [], []
        for index, change in enumerate(changes):
            if change.row is None or self._settings.mode == "invalidate":
                gone.append(index)
            elif change.lacks and self._loses_rows:
                hidden.append(
                    index
                )  # a missing row is a miss, but readers would take an incomplete row for a whole one
            elif change.kept and self._settings.mode == "value":
                partial.append(index)
            else:
                whole.append(index)
        calls, members = [], []
        for indexes, build in ((gone, self._gone), (hidden, self._hidden), (whole, self._rows)):
            for chunk in _chunks(indexes, changes):
                calls.append(build([changes[index] for index in chunk]))
                members.append(chunk)
        for chunk, answer in zip(members, self._store.run("write rows", calls) if calls else [], strict=True):
            for position, index in enumerate(chunk):
                outcomes[index] = self._outcome(changes[index], answer, position)
        for index in partial:
            outcomes[index] = self._complete(changes[index])
        return [outcome for outcome in outcomes if outcome is not None]

    def save_positions(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Target`. A full store refuses new positions and keeps older ones, which is safe."""
        arguments: list[bytes | str] = [str(self._store.life)]
        for place, offset in positions.items():
            before = self._kept.get(place)
            arguments += [
                _place_text(place),
                b"" if before is None else cached_rows.digits(before),
                cached_rows.digits(offset),
            ]
        (answer,) = self._store.run("store positions", [Call(scripts.KEEP, [self._positions_key], arguments)])
        if answer == b"L":
            raise SinkUnreachable(
                f"the store at {self._store.where} lost acknowledged writes",
                hint="the sink applies again what the store may have lost",
            )
        if answer is not None:
            self._kept.update(positions)

    def saved_positions(self) -> Mapping[TopicPartition, int]:
        """See `Target`. Connects to the current server, which all later writes go to."""
        self._store.reconnect()
        found = self._store.command("read positions", "HGETALL", self._positions_key)
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        self._kept = {_place(place): int(offset) for place, offset in pairs}
        return dict(self._kept)

    def refresh(self, topics: Iterable[str]) -> None:
        """See `Target`. Readers of the primary see writes at once."""

    def content(self, change: Change) -> Content | None:
        """See `Target`."""
        if change.row is None:
            return None
        if self._settings.mode == "invalidate":
            return {}
        if self._settings.mode == "hash":
            fields = cached_rows.fields_of(change.row)
            return dict(zip(fields[::2], fields[1::2], strict=True))
        return cached_rows.content_of_value(change.row)

    def stored_keys(self, topic: str) -> Iterator[StoredKey]:
        """See `Target`. An evicted or expired row may still have a mark."""
        head = self._tables[topic].names.head
        for names in self._scan(mark(head)[:-1]):
            values = [value_of(name) for name in names]
            yield from (one for one in self._held(values) if one is not None)
        if self._settings.mode == "invalidate":
            return  # the application writes the rows
        for names in self._scan(head):
            marks = self._store.command("read marks", "MGET", *map(mark, names))
            strange = [name for name, there in zip(names, marks, strict=True) if cached_rows.parsed_mark(there) is None]
            yield from (one for one in self._held(strange) if one is not None and one.key is None)

    def read_keys(self, topic: str, keys: Sequence[bytes]) -> Sequence[StoredKey | None]:
        """See `Target`."""
        names = self._tables[topic].names
        return self._held([names.value(key) for key in keys])

    def allowed_difference(
        self, change: Change | None, held: StoredKey | None, now_ms: int
    ) -> AllowedDifference | None:
        """See `Lossy`: expired and evicted rows may be missing, and in mode `invalidate` all rows."""
        if self._settings.mode == "invalidate":
            return self._excuse_unstored(change, held, now_ms)
        if not self._loses_rows or change is None or change.row is None:
            return None
        if held is None:
            # Without `ttl_s` a mark stays until it is evicted.
            lapsed = self._settings.evictable or now_ms - change.ts_ms > int(self._mark_ms)
            return AllowedDifference.EXPIRED if lapsed else None
        if held.content is None:
            return AllowedDifference.EXPIRED if held.version == change.offset else None
        wanted = self.content(change) or {}
        same = all(held.content.get(name) == value for name, value in wanted.items() if name not in change.kept)
        return AllowedDifference.ACCEPTED if self._settings.evictable and held.key is None and same else None

    def _excuse_unstored(self, change: Change | None, held: StoredKey | None, now_ms: int) -> AllowedDifference | None:
        """A row filled by the application may be there if its mark shows that it was deleted before."""
        if held is None or held.content is None:
            return AllowedDifference.ACCEPTED
        if change is None:
            return None
        if held.key is not None:
            return AllowedDifference.ACCEPTED if held.version == change.offset else None
        return AllowedDifference.UNKNOWN if now_ms - change.ts_ms > int(self._gone_ms) else None

    def remove(self, topic: str, held: Sequence[StoredKey]) -> None:
        """See `Target`. The version mark stays, so that no older row is restored."""
        tag, calls = self._tables[topic].tag, []
        for part in _slices(held, CHUNK_KEYS):
            keys: list[str] = []
            arguments: list[bytes | str] = [self._gone_ms]
            for one in part:
                keys += [one.name, mark(one.name)]
                ours = one.key is not None
                stays = cached_rows.mark_text(one.version, cached_rows.GONE, tag, one.key or b"") if ours else ""
                arguments += [cached_rows.digits(one.version) if ours else b"", stays]
            calls.append(Call(scripts.REMOVE, keys, arguments))
        self._store.run("remove rows", calls)

    def repair_keys(self, changes: Sequence[Change], seen: Sequence[StoredKey | None]) -> None:
        """See `Target`. Wrong rows are removed with their marks first; readers get a miss in between."""
        names = [self._tables[change.topic].names.value(change.key) for change in changes]
        there = [one._replace(name=name) for name, one in zip(names, seen, strict=True) if one is not None]
        calls = [
            Call(
                scripts.FORGET,
                [key for one in part for key in (one.name, mark(one.name))],
                [cached_rows.digits(one.version) for one in part],
            )
            for part in _slices(there, CHUNK_KEYS)
        ]
        if calls:
            self._store.run("remove rows", calls)
        self.apply([change._replace(kept=()) for change in changes])

    def forget(self, topics: Sequence[Topic]) -> None:
        """Delete every row and mark of these tables, of any topic, and the positions.

        The next run starts from the beginning. No worker may write at the same time.
        """
        self._store.reconnect()
        for head in (self._table(topic).names.head for topic in topics):
            for begin in (head, mark(head)[:-1]):
                for names in self._scan(begin):
                    self._store.command("remove rows", "UNLINK", *names)
        self._store.command("remove positions", "UNLINK", self._positions_key, self._forms_key)
        self._kept = {}

    def close(self) -> None:
        """See `Target`."""
        self._store.close()

    @property
    def store(self) -> Store:
        """The connections."""
        return self._store

    @property
    def _positions_key(self) -> str:
        return f"cdc:positions:{self._name}:{self._sink}"

    @property
    def _forms_key(self) -> str:
        return f"cdc:tables:{self._name}:{self._sink}"

    def _table(self, topic: Topic) -> _Table:
        template = chosen(topic.table, self._settings.keys, DEFAULT)
        return _Table(topic, Names(topic, self._name, self._sink, template), cached_rows.tag_of(topic.topic_id))

    def check_server(self) -> None:
        """Raise SinkUnfit when the server cannot be used as a cache."""
        where = self._store.where
        if self._store.info("cluster").get("cluster_enabled") == "1":
            raise cluster(where)
        version = self._store.info("server").get("redis_version", "")
        if not version.partition(".")[0].isdigit() or int(version.partition(".")[0]) < _OLDEST:
            raise SinkUnfit(f"the store at {where} is Redis {version}", hint=f"use Redis {_OLDEST} or later, or Valkey")
        policy = self._store.info("memory").get("maxmemory_policy", "")
        if policy != "noeviction" and not self._settings.evictable:
            raise SinkUnfit(
                f"the store at {where} may evict keys (maxmemory-policy {policy}): without its version mark an older "
                "row could be restored",
                hint=f"set it to noeviction, or set sinks.{self._sink}.evictable = true if readers can handle that",
                command="CONFIG SET maxmemory-policy noeviction",
            )

    def _other_form(self, table: _Table, there: bytes) -> SinkStale | SinkUnfit:
        head = table.names.head
        again = f"rename the sink, or delete its keys: {head}* and {mark(head)[:-1]}*"
        try:
            form = msgspec.json.decode(there, type=_Form)
        except msgspec.MsgspecError:
            return SinkUnfit(f"another program wrote {self._forms_key} in the store at {self._store.where}", hint=again)
        if form.version != FORM_VERSION:
            record = f"table {table.topic.table} in the store at {self._store.where}"
            return SinkUnfit.of_newer_release(record, form.version, FORM_VERSION)
        if form.topic_id != table.topic.topic_id:
            return self._stale(table.topic.topic)
        return SinkUnfit(
            f"the store at {self._store.where} has rows of {table.topic.table} in mode {form.mode!r} under "
            f"{form.head!r}, but the configuration has mode {self._settings.mode!r} under {head!r}",
            hint=again,
            table=table.topic.table,
        )

    def _stale(self, topic: str) -> SinkStale:
        return SinkStale(
            f"the store at {self._store.where} has rows of an earlier topic {topic!r}, which was deleted",
            hint="rebuild the sink, which deletes its rows; or rename the sink",
            command=f"cdc sink rebuild {self._sink}",
            topic=topic,
        )

    def _gone(self, changes: Sequence[Change]) -> Call:
        names = self._names(changes)
        packed = msgspec.msgpack.encode([self._mark(change) for change in changes])
        return Call(scripts.GONE, names, [self._gone_ms, packed])

    def _hidden(self, changes: Sequence[Change]) -> Call:
        """Remove rows and keep their version marks, which last as long as those of rows."""
        packed = msgspec.msgpack.encode([self._mark(change) for change in changes])
        return Call(scripts.GONE, self._names(changes), [self._mark_ms, packed])

    def _rows(self, changes: Sequence[Change]) -> Call:
        packed: list[object] = []  # as texts: the server's MessagePack has no bytes
        names, times = self._names(changes), [self._row_ms, self._mark_ms]
        if self._settings.mode == "value":
            for change in changes:
                packed += (self._mark(change), (change.row or b"").decode())
            return Call(scripts.VALUES, names, [*times, msgspec.msgpack.encode(packed)])
        for change in changes:
            row = change.row or b""
            unknown = len(cached_rows.columns_missing(row, change.kept)) if change.kept else 0
            packed += (self._mark(change), cached_rows.fields_of(row), change.kept, unknown)
        incomplete = "1" if self._loses_rows else "0"
        return Call(scripts.HASHES, names, [*times, incomplete, msgspec.msgpack.encode(packed)])

    def _names(self, changes: Sequence[Change]) -> list[str]:
        """Return the names of the rows and of their marks, alternating."""
        tables = self._tables
        found: list[str] = []
        for change in changes:
            name = tables[change.topic].names.value(change.key)
            found += (name, mark(name))
        return found

    def _mark(self, change: Change) -> str:
        flag = cached_rows.GONE if change.row is None else _FLAGS[self._settings.mode]
        return cached_rows.mark_text(change.offset, flag, self._tables[change.topic].tag, change.key)

    def _outcome(self, change: Change, answer: bytes | None, position: int) -> Outcome:
        if answer is None:
            return _FULL
        letter = answer[position : position + 1]
        if letter == b"S":
            raise self._stale(change.topic)
        return _DONE if letter == b"D" else _OVERTAKEN

    @property
    def _loses_rows(self) -> bool:
        """Whether a row may be missing while its mark is there."""
        return self._settings.evictable or self._settings.ttl_s > 0

    def _complete(self, change: Change) -> Outcome:
        """Complete a row with values from the store, and write it unless the store has changed in between."""
        table, row = self._tables[change.topic], change.row or b""
        name = table.names.value(change.key)
        keys = [name, mark(name)]
        for _ in range(_SWAPS_MAX):
            text, there = self._store.commands("read a row", [("GET", name), ("GET", keys[1])])
            seen = cached_rows.parsed_mark(there)
            if seen is not None and seen.tag != table.tag:
                raise self._stale(change.topic)
            if seen is not None and self._has(seen, text, change.offset):
                return _OVERTAKEN
            state = (there or b"")[: scripts.STATE]
            value: list[bytes] = [row] if text is None else [_merged(row, change.kept, text)]
            if text is None and self._loses_rows and cached_rows.columns_missing(row, change.kept):
                value = []  # a missing row is a miss, but readers would take an incomplete row for a whole one
            arguments: list[bytes | str] = [self._row_ms, self._mark_ms, state, self._mark(change), *value]
            (answer,) = self._store.run("write rows", [Call(scripts.SWAP, keys, arguments)])
            if answer is None:
                return _FULL
            if answer == b"D":
                return _DONE
        return _BUSY

    def _has(self, seen: cached_rows.Mark, text: bytes | None, offset: int) -> bool:
        same = seen.version == offset and seen.flag == cached_rows.ROW
        return seen.version > offset or (same and (text is not None or self._loses_rows))

    def _scan(self, begin: str) -> Iterator[list[str]]:
        """Yield names with this prefix. SCAN may return a name twice while the server resizes its table."""
        cursor = b"0"
        while True:
            words = ("SCAN", cursor, "MATCH", f"{begin}*", "COUNT", _SCAN_KEYS)
            cursor, found = self._store.command("scan the keys", *words)
            if found:
                yield [name.decode() for name in found]
            if int(cursor) == 0:
                return

    def _held(self, names: Sequence[str]) -> list[StoredKey | None]:
        if not names:
            return []
        if self._settings.mode == "value":
            found = self._store.command("read rows", "MGET", *map(mark, names), *names)
            return [_held_row(*one) for one in zip(names, found[: len(names)], found[len(names) :], strict=True)]
        read = _READS[self._settings.mode]
        asked = [words for name in names for words in (("GET", mark(name)), (read, name))]
        answers = self._store.commands("read rows", asked)
        triples = zip(names, answers[::2], answers[1::2], strict=True)
        if self._settings.mode == "invalidate":
            return [_held_content(name, there, {} if stored else None) for name, there, stored in triples]
        return [_held_row(name, there, stored) for name, there, stored in triples]


def _held_row(name: str, there: bytes | None, stored: bytes | dict[bytes, bytes] | None) -> StoredKey | None:
    content: Content | None = None
    if stored:
        content = (
            cached_rows.content_of_hash(stored) if isinstance(stored, dict) else cached_rows.content_of_value(stored)
        )
    return _held_content(name, there, content)


def _held_content(name: str, there: bytes | None, content: Content | None) -> StoredKey | None:
    seen = cached_rows.parsed_mark(there)
    if seen is None:
        return None if content is None else StoredKey(None, name, -1, content)
    return StoredKey(seen.key, name, seen.version, content)


def _merged(row: bytes, kept: Sequence[str], before: bytes) -> bytes:
    try:
        return merged(row, kept, before)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return row  # another program wrote the stored value


def _chunks(indexes: Sequence[int], changes: Sequence[Change]) -> Iterator[list[int]]:
    """Yield chunks of at most CHUNK_KEYS and CHUNK_BYTES; a larger row goes alone."""
    chunk: list[int] = []
    size = 0
    for index in indexes:
        bytes_of = len(changes[index].row or b"") + len(changes[index].key)
        if chunk and (len(chunk) >= CHUNK_KEYS or size + bytes_of > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(index)
        size += bytes_of
    if chunk:
        yield chunk


def _slices(held: Sequence[StoredKey], count: int) -> Iterator[list[StoredKey]]:
    rest = iter(held)
    while part := list(islice(rest, count)):
        yield part


def _place_text(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def _place(text: bytes) -> TopicPartition:
    return parse_partition(text.decode())
