"""The store of a cache as its runner has it: `CacheTarget`, a `sinks.contract.Target`.

A row is one key in the store, which applications read with one ordinary command (`naming.Names`); beside it stands a
mark with the version it is as of. Both are written by one script or not at all (`scripts`). A mark outlives its row,
so whatever comes late finds that it is late.

What is acknowledged may be lost: to a crash between two syncs, to a fail-over. So positions are kept in the store
itself, behind the rows they cover, and asked back in each life of the server (`store.Life`). Whatever tail of its
writes a store loses, it loses a position before the rows behind it.
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
"""Keys in one run of a script, for which nobody else is served: 128 rows take half a millisecond."""

CHUNK_BYTES: Final = 1 << 20
_SWAPS_MAX: Final = 5  # a row changes under us only while another worker has the same partition
_SCAN_KEYS: Final = 1000
_OLDEST: Final = 7
_DONE, _OVERTAKEN = Outcome(Verdict.DONE), Outcome(Verdict.OVERTAKEN)
_FULL: Final = Outcome(Verdict.LATER, "OOM", "the store is full (maxmemory)")
_BUSY: Final = Outcome(Verdict.LATER, "", "another worker writes the same row")
_READS: Final = {"hash": "HGETALL", "invalidate": "EXISTS"}
_FLAGS: Final = {"value": cached_rows.ROW, "hash": cached_rows.ROW, "invalidate": cached_rows.UNSTORED}


class _Table(NamedTuple):
    topic: Topic
    names: Names
    tag: str


class _Form(msgspec.Struct, frozen=True):
    """What the store remembers of a table: whose rows it has, and how."""

    topic_id: str
    mode: str
    head: str


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
        for (name, form), there in zip(forms.items(), self._store.commands("read what it holds", asked), strict=True):
            if there is None:
                new += [name, form]
            elif there != form:
                raise self._other_form(tables[name], there)
        if new:
            self._store.command("note what it holds", "HSET", self._forms_key, *new)
        self._tables = tables

    def prepare(self, schema: SchemaRecord) -> None:
        """See `Target`. A store of keys holds any row."""

    def apply(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """See `Target`."""
        outcomes: list[Outcome | None] = [None] * len(changes)
        gone, whole, partial, hidden = [], [], [], []
        for index, change in enumerate(changes):
            if change.row is None or self._settings.mode == "invalidate":
                gone.append(index)
            elif change.lacks and self._loses_rows:
                hidden.append(index)  # a missing row is a miss; readers would take one that lacks a column for whole
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

    def keep(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Target`. A store that is full notes nothing: it then has older positions, which is safe."""
        arguments: list[bytes | str] = [str(self._store.life)]
        for place, offset in positions.items():
            before = self._kept.get(place)
            arguments += [
                _place_text(place),
                b"" if before is None else cached_rows.digits(before),
                cached_rows.digits(offset),
            ]
        (answer,) = self._store.run("note positions", [Call(scripts.KEEP, [self._positions_key], arguments)])
        if answer == b"L":
            raise SinkUnreachable(
                f"the store at {self._store.where} lost what it had acknowledged",
                hint="what it may have lost is applied again",
            )
        if answer is not None:
            self._kept.update(positions)

    def positions(self) -> Mapping[TopicPartition, int]:
        """See `Target`. From here on the server that answers is the one that is written to."""
        self._store.reconnect()
        found = self._store.command("read positions", "HGETALL", self._positions_key)
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        self._kept = {_place(place): int(offset) for place, offset in pairs}
        return dict(self._kept)

    def refresh(self, topics: Iterable[str]) -> None:
        """See `Target`. What is written is seen at once by whoever reads the primary."""

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

    def held(self, topic: str) -> Iterator[StoredKey]:
        """See `Target`. Of a row that was evicted, or is past its time to live, there may be a mark."""
        head = self._tables[topic].names.head
        for names in self._scan(mark(head)[:-1]):
            values = [value_of(name) for name in names]
            yield from (one for one in self._held(values) if one is not None)
        if self._settings.mode == "invalidate":
            return  # rows there are the application's
        for names in self._scan(head):
            marks = self._store.command("read marks", "MGET", *map(mark, names))
            strange = [name for name, there in zip(names, marks, strict=True) if cached_rows.parsed_mark(there) is None]
            yield from (one for one in self._held(strange) if one is not None and one.key is None)

    def look(self, topic: str, keys: Sequence[bytes]) -> Sequence[StoredKey | None]:
        """See `Target`."""
        names = self._tables[topic].names
        return self._held([names.value(key) for key in keys])

    def allowed_difference(
        self, change: Change | None, held: StoredKey | None, now_ms: int
    ) -> AllowedDifference | None:
        """See `Lossy`: rows that expire or are evicted, and in mode `invalidate` all that are not there."""
        if self._settings.mode == "invalidate":
            return self._excuse_unstored(change, held, now_ms)
        if not self._loses_rows or change is None or change.row is None:
            return None
        if held is None:
            # Without a limit marks stay for as long as nobody evicts them.
            lapsed = self._settings.evictable or now_ms - change.ts_ms > int(self._mark_ms)
            return AllowedDifference.EXPIRED if lapsed else None
        if held.content is None:
            return AllowedDifference.EXPIRED if held.version == change.offset else None
        wanted = self.content(change) or {}
        same = all(held.content.get(name) == value for name, value in wanted.items() if name not in change.kept)
        return AllowedDifference.FINE if self._settings.evictable and held.key is None and same else None

    def _excuse_unstored(self, change: Change | None, held: StoredKey | None, now_ms: int) -> AllowedDifference | None:
        """A row that the application filled may be there if the mark says that it was taken away before."""
        if held is None or held.content is None:
            return AllowedDifference.FINE
        if change is None:
            return None
        if held.key is not None:
            return AllowedDifference.FINE if held.version == change.offset else None
        return AllowedDifference.UNTOLD if now_ms - change.ts_ms > int(self._gone_ms) else None

    def remove(self, topic: str, held: Sequence[StoredKey]) -> None:
        """See `Target`. The version stays, so that nothing older comes back."""
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

    def mend(self, changes: Sequence[Change], seen: Sequence[StoredKey | None]) -> None:
        """See `Target`. What is wrong goes with its version; whoever reads in between finds no row."""
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
        """Take away every row and mark of these tables, whatever topics they are of, and the positions.

        The next run begins anew. Nobody may write meanwhile.
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
        """Raises SinkUnfit for a server that cannot be a cache of ours."""
        where = self._store.where
        if self._store.info("cluster").get("cluster_enabled") == "1":
            raise cluster(where)
        version = self._store.info("server").get("redis_version", "")
        if not version.partition(".")[0].isdigit() or int(version.partition(".")[0]) < _OLDEST:
            raise SinkUnfit(f"the store at {where} is Redis {version}", hint=f"take {_OLDEST} or later, or Valkey")
        policy = self._store.info("memory").get("maxmemory_policy", "")
        if policy != "noeviction" and not self._settings.evictable:
            raise SinkUnfit(
                f"the store at {where} may evict keys (maxmemory-policy {policy}): a version that is evicted no "
                "longer keeps an older row from coming back",
                hint=f"set it to noeviction, or say sinks.{self._sink}.evictable = true if readers can bear that",
                command="CONFIG SET maxmemory-policy noeviction",
            )

    def _other_form(self, table: _Table, there: bytes) -> SinkStale | SinkUnfit:
        head = table.names.head
        again = f"take another name for the sink, or remove its keys: {head}* and {mark(head)[:-1]}*"
        try:
            form = msgspec.json.decode(there, type=_Form)
        except msgspec.MsgspecError:
            return SinkUnfit(f"{self._forms_key} in the store at {self._store.where} is not ours", hint=again)
        if form.topic_id != table.topic.topic_id:
            return self._stale(table.topic.topic)
        return SinkUnfit(
            f"the store at {self._store.where} has rows of {table.topic.table} in mode {form.mode!r} under "
            f"{form.head!r}, and the configuration says {self._settings.mode!r} under {head!r}",
            hint=again,
            table=table.topic.table,
        )

    def _stale(self, topic: str) -> SinkStale:
        return SinkStale(
            f"the store at {self._store.where} has rows of another topic {topic!r}, one that was deleted since",
            hint="take its rows away, and it is filled anew; or take another name for the sink",
            command=f"cdc sink rebuild {self._sink}",
            topic=topic,
        )

    def _gone(self, changes: Sequence[Change]) -> Call:
        names = self._names(changes)
        packed = msgspec.msgpack.encode([self._mark(change) for change in changes])
        return Call(scripts.GONE, names, [self._gone_ms, packed])

    def _hidden(self, changes: Sequence[Change]) -> Call:
        """Remove rows and leave their versions, which stay for as long as those of rows."""
        packed = msgspec.msgpack.encode([self._mark(change) for change in changes])
        return Call(scripts.GONE, self._names(changes), [self._mark_ms, packed])

    def _rows(self, changes: Sequence[Change]) -> Call:
        packed: list[object] = []  # as texts, for the server's MessagePack knows no others
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
        """Of the rows and of their marks, in turn."""
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
        """Whether a row may be missing although its mark is there."""
        return self._settings.evictable or self._settings.ttl_s > 0

    def _complete(self, change: Change) -> Outcome:
        """A row that lacks values of its own: take them from the store, and write it if that has not changed since."""
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
                value = []  # a row that is not there is a miss; one that lacks a column would be taken for whole
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
        """Names that begin so. One may come twice while the server grows its table, as SCAN has it."""
        cursor = b"0"
        while True:
            words = ("SCAN", cursor, "MATCH", f"{begin}*", "COUNT", _SCAN_KEYS)
            cursor, found = self._store.command("look through the keys", *words)
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
        return row  # what is there is no row of ours


def _chunks(indexes: Sequence[int], changes: Sequence[Change]) -> Iterator[list[int]]:
    """Parts of at most CHUNK_KEYS, and of CHUNK_BYTES but for a larger row, which goes alone."""
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
