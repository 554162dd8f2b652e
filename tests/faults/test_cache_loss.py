"""A cache whose server loses acknowledged writes: the loss is detected, and the rows are applied again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis

from cdc.config.secret import Secret
from cdc.errors import SinkUnreachable
from cdc.local.valkey_server import Valkey
from cdc.model.log_record import LogRecord
from sinks.cache.start import target as target_of
from sinks.cache.target import CacheTarget
from sinks.contract import Verdict
from tests.fixtures.servers.valkey import MakeValkey, cache_settings, client_of, config, sentinel
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_logs import TABLE, TOPIC, LogBook, changes, live

PLACE = (TOPIC, 0)
PIECE = 20


class Worker:
    """The least of a runner: goes on behind what is kept, and begins there again whenever the store was away."""

    def __init__(self, target: CacheTarget, book: LogBook) -> None:
        self.target = target
        self.book = book
        self.target.open([TABLE])
        self.at = self.kept()
        self.rewound: list[tuple[int, int]] = []

    def kept(self) -> int:
        return self.target.saved_positions().get(PLACE, 0)

    def run(self, end: int, *, wait_s: float = 60.0) -> None:
        """Apply what lies below `end`, however often it has to begin again."""
        ends_s = time.monotonic() + wait_s
        while self.at < end:
            try:
                self.step(end)
            except SinkUnreachable:
                assert time.monotonic() < ends_s
                self.begin_again()

    def step(self, end: int) -> None:
        records = self.book.records[self.at : min(self.at + PIECE, end)]
        outcomes = self.target.apply(changes(records))
        assert {one.verdict for one in outcomes} <= {Verdict.DONE, Verdict.OVERTAKEN}
        self.target.save_positions({PLACE: self.at + len(records)})
        self.at += len(records)

    def begin_again(self) -> None:
        try:
            before, self.at = self.at, self.kept()
            self.rewound.append((before, self.at))
        except SinkUnreachable:
            time.sleep(0.1)


def log(records: int, seed: int = 5) -> LogBook:
    """Offsets are places in the list: no markers."""
    random, book = Random(seed), LogBook()
    while len(book.records) < records:
        key = random.randrange(60)
        if random.random() < 0.2 and f'{{"id":{key}}}'.encode() in book.rows:
            book.delete(key)
        else:
            book.put(key, {"id": key, "v": len(book.records), "text": "x" * random.randrange(200)})
    return book


def target_on(server: Valkey, **how: Any) -> CacheTarget:
    return target_of(config("shop"), "cache", cache_settings(server, **how))


def folded(records: list[LogRecord]) -> dict[bytes, int]:
    """The offset of each key's last record."""
    return {record[4] or b"": record[2] for record in records}


def test_server_without_persistence_that_was_killed_is_filled_from_the_beginning(make_valkey: MakeValkey) -> None:
    server = make_valkey(appendonly="no")
    book = log(400)
    worker = Worker(target_on(server), book)
    worker.run(300)
    server.kill()
    server.start()

    worker.run(len(book.records))

    assert worker.rewound == [(300, 0)]
    assert live(worker.target.stored_keys(TOPIC)) == book.rows
    worker.target.close()


def test_positions_after_a_crash_never_cover_a_row_that_was_lost(make_valkey: MakeValkey) -> None:
    """The end of the append-only file is cut off where a power failure may cut it: anywhere."""
    server = make_valkey()
    book = log(600)
    worker = Worker(target_on(server), book)
    worker.run(len(book.records))
    worker.target.close()
    server.stop()
    (file,) = (server.home / "data" / "appendonlydir").glob("*.incr.aof")
    whole, random = file.read_bytes(), Random(8)
    kept = []

    for size in [0, *(random.randrange(len(whole)) for _ in range(6)), len(whole)]:
        file.write_bytes(whole[:size])
        server.start()
        again = Worker(target_on(server), book)
        kept.append(again.at)
        versions = {one.key: one.version for one in again.target.stored_keys(TOPIC)}
        missing = [key for key, last in folded(book.records[: again.at]).items() if versions.get(key, -1) < last]
        assert missing == []
        again.run(len(book.records))
        assert live(again.target.stored_keys(TOPIC)) == book.rows
        again.target.close()
        server.stop()

    assert kept[0] == 0
    assert kept[-1] == len(book.records)
    assert len(set(kept)) > 4


def test_everything_taken_away_under_a_running_worker_is_noticed_when_it_notes_how_far_it_is(
    make_valkey: MakeValkey,
) -> None:
    server, book = make_valkey(), log(400)
    worker = Worker(target_on(server), book)
    worker.run(200)
    with client_of(server) as other:
        other.flushall()

    worker.run(len(book.records))

    assert worker.rewound == [(200, 0)]
    assert live(worker.target.stored_keys(TOPIC)) == book.rows
    worker.target.close()


def test_worker_that_missed_a_restart_can_neither_write_nor_note_before_it_asks_what_is_there(
    make_valkey: MakeValkey,
) -> None:
    server, book = make_valkey(), log(40)
    target = target_on(server)
    target.open([TABLE])
    target.saved_positions()
    target.apply(changes(book.records[:20]))
    server.restart("kill")

    with pytest.raises(SinkUnreachable):
        target.save_positions({PLACE: 20})
    with pytest.raises(SinkUnreachable, match="was restarted or promoted since"):
        target.apply(changes(book.records[20:]))
    with pytest.raises(SinkUnreachable, match="was restarted or promoted since"):
        target.save_positions({PLACE: 20})
    assert target.saved_positions() == {}
    target.close()


def test_server_that_was_a_replica_in_between_is_noticed_on_the_same_connection(make_valkey: MakeValkey) -> None:
    """It took over what another one has, and the process and its connections are the same."""
    server, other, book = make_valkey(), make_valkey(), log(40)
    target = target_on(server)
    target.open([TABLE])
    target.saved_positions()
    target.apply(changes(book.records))
    target.save_positions({PLACE: 10})
    with client_of(server) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", other.port)
        until(lambda: _synced(server), "it has what the other has")
        admin.execute_command("REPLICAOF", "NO", "ONE")
        admin.hset("cdc:positions:shop:cache", f"{TOPIC}-0", f"{10:019d}")

    with pytest.raises(SinkUnreachable, match="lost acknowledged writes"):
        target.save_positions({PLACE: 40})
    assert target.saved_positions() == {PLACE: 10}
    target.close()


def test_evicted_rows_are_misses_and_no_row_is_stale_or_half(make_valkey: MakeValkey) -> None:
    server = make_valkey(maxmemory="3mb", maxmemory_policy="allkeys-lru", maxmemory_samples="10")
    target = target_on(server, evictable=True)
    target.open([TABLE])
    book = LogBook()
    for key in range(2000):
        book.put(key, {"id": key, "v": 1, "big": "x" * 2000})
    for begin in range(0, 2000, 100):
        target.apply(changes(book.records[begin : begin + 100]))
    for key in range(2000):
        book.put(key, {"id": key, "v": 2, "big": "x" * 2000}, unchanged=["big"])
    for begin in range(2000, 4000, 100):
        target.apply(changes(book.records[begin : begin + 100]))

    with client_of(server) as reader:
        found = {name: reader.get(name) for name in reader.scan_iter("shop:*")}
        assert reader.info("stats")["evicted_keys"] > 1000
    rows = {f"shop:cache:public.t:{row['id']}".encode(): row for row in book.rows.values()}
    assert 0 < len(found) < 2000
    assert [name for name, text in found.items() if json.loads(text or b"{}") != rows[name]] == []
    target.close()


def test_sentinel_fail_over_that_loses_writes_is_rewound_and_ends_exact(
    make_valkey: MakeValkey, tmp_path: Path
) -> None:
    primary = make_valkey(repl_diskless_sync_delay="0")
    replica = make_valkey(replicaof=f"127.0.0.1 {primary.port}", repl_diskless_sync_delay="0")
    book = log(600)
    with sentinel(primary, tmp_path) as port:
        until(lambda: _synced(replica) and _knows_replica(port), "sentinel to know the replica", within_s=60)
        options = {"sentinel": Secret("shop")}
        worker = Worker(target_on(primary, url=f"redis://127.0.0.1:{port}/0", options=options), book)
        worker.run(200)
        with client_of(primary) as admin:
            assert admin.execute_command("WAIT", 1, 20_000) == 1
            replica.pause()
            admin.execute_command("CLIENT", "KILL", "TYPE", "replica")
        worker.run(400)
        primary.kill()
        replica.resume()

        worker.run(len(book.records), wait_s=120)

        with client_of(replica) as promoted:
            assert promoted.info("replication")["role"] == "master"
        assert worker.rewound[0] == (400, 200)
        assert live(worker.target.stored_keys(TOPIC)) == book.rows
        worker.target.close()


def _synced(replica: Valkey) -> bool:
    with client_of(replica) as client:
        return bool(client.info("replication")["master_link_status"] == "up")


def _knows_replica(port: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=5) as client:
            return len(client.sentinel_slaves("shop")) == 1
    except redis.RedisError:
        return False
