"""Caches on a real Valkey converge under repetition and reordering, and readers see only rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.config.secret import Secret
from cdc.errors import ConfigError, SinkStale, SinkUnfit, SinkUnreachable
from cdc.local.valkey_server import Valkey
from sinks.cache.start import target as target_of
from sinks.cache.target import CacheTarget
from sinks.contract import Change, StoredKey, Topic, Verdict, Verifiable
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.valkey import MakeValkey, cache_settings, client_of
from tests.fixtures.servers.valkey import config as configured
from tests.fixtures.sinks import target_contract
from tests.fixtures.sinks.sink_logs import TABLE, LogBook, changes, live

NUMBERS = itertools.count()
DOCUMENT = Path(__file__).parents[2] / "docs/howto/cache.md"
CHECKS: Sequence[Callable[[Verifiable, Topic], None]] = (
    target_contract.older_record_never_wins,
    target_contract.delete_of_what_never_was_is_done,
    target_contract.what_was_looked_at_is_removed_and_nothing_newer,
)


class Typed(CacheTarget):
    """A hash has texts alone; the suite compares values."""

    def stored_keys(self, topic: str) -> Iterator[StoredKey]:
        return (_typed(one) for one in super().stored_keys(topic))

    def read_keys(self, topic: str, keys: Sequence[bytes]) -> Sequence[StoredKey | None]:
        return [None if one is None else _typed(one) for one in super().read_keys(topic, keys)]


def _typed(held: StoredKey) -> StoredKey:
    if held.content is None or held.key is None:
        return held
    content: dict[str, object] = dict(held.content) | json.loads(held.key)
    return held._replace(content=content | {"v": _number(content["v"])} if "v" in content else content)


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def opened(server: Valkey, topic: Topic = TABLE, **how: Any) -> CacheTarget:
    """A target on the run's server; another sink of the same pipeline each time, so that it is empty."""
    sink = how.pop("sink", f"s{next(NUMBERS)}")
    target: CacheTarget = target_of(configured("shop"), sink, cache_settings(server, **how))
    if how.get("mode") == "hash":
        target.__class__ = Typed
    try:
        target.open([topic])
    except BaseException:
        target.close()
        raise
    return target


@pytest.mark.parametrize("mode", ["value", "hash"])
@pytest.mark.parametrize("partial", [False, True])
def test_cache_converges_whatever_was_repeated_reordered_or_lacked_values(
    valkey: Valkey, mode: str, partial: bool
) -> None:
    @settings(max_examples=40)
    @given(st.data())
    def converge(data: st.DataObject) -> None:
        target = opened(valkey, mode=mode)
        target_contract.converges(data, target, TABLE, partial=partial)
        target.close()

    converge()


@pytest.mark.parametrize("mode", ["value", "hash"])
@pytest.mark.parametrize("check", CHECKS)
def test_cache_is_guarded(valkey: Valkey, check: Callable[[Verifiable, Topic], None], mode: str) -> None:
    target = opened(valkey, mode=mode)

    check(target, TABLE)

    target.close()


def test_reader_gets_the_row_by_one_command_and_sees_no_bookkeeping_beside_it(valkey: Valkey) -> None:
    target, book = opened(valkey, sink="cache"), LogBook()
    book.put(7, {"id": 7, "name": "Zoe", "big": 2**63 - 1, "n": None})
    target.apply(changes(book.records))

    with client_of(valkey) as reader:
        assert reader.get("shop:cache:public.t:7") == b'{"id":7,"name":"Zoe","big":9223372036854775807,"n":null}'
        assert list(reader.scan_iter("shop:*")) == [b"shop:cache:public.t:7"]
    target.close()


def test_hash_has_texts_as_they_are_and_no_field_for_null(valkey: Valkey) -> None:
    target, book = opened(valkey, sink="cache", mode="hash"), LogBook()
    book.put("a:b", {"id": "a:b", "name": 'Zoë "x"', "n": None, "tags": [1, 2], "yes": True})
    book.put("a:b", {"id": "a:b", "name": "short", "yes": False})
    first, second = changes(book.records[:1]), changes(book.records[1:])

    with client_of(valkey) as reader:
        target.apply(first)
        assert reader.hgetall("shop:cache:public.t:a%3Ab") == {
            b"id": b"a:b",
            b"name": 'Zoë "x"'.encode(),
            b"tags": b"[1,2]",
            b"yes": b"true",
        }
        target.apply(second)
        assert reader.hgetall("shop:cache:public.t:a%3Ab") == {b"id": b"a:b", b"name": b"short", b"yes": b"false"}
    target.close()


def test_key_template_names_rows_and_two_tables_that_would_share_names_are_refused(valkey: Valkey) -> None:
    orders = TABLE._replace(topic="shop.public.orders", table="public.orders", key=("tenant", "id"))
    target = opened(valkey, orders, keys={"public.*": "order:{tenant}/{id}:v1"})
    key = b'{"tenant":"a/b","id":12}'
    target.apply([Change(orders.topic, 0, 5, key, b'{"x":1}', (), "s", 1, 1, 1)])

    with client_of(valkey) as reader:
        assert reader.get("order:a%2Fb/12:v1") == b'{"x":1}'
    with pytest.raises(ConfigError, match=r"rows of public\.\w+ and public\.\w+ could have the same name"):
        target.open([orders, orders._replace(topic="shop.public.o2", table="public.o2")])
    target.close()


def test_replay_mends_a_value_that_is_gone_or_was_altered(valkey: Valkey) -> None:
    target, book = opened(valkey, sink="cache"), LogBook()
    book.put(1, {"id": 1})
    book.put(2, {"id": 2})
    target.apply(changes(book.records))
    with client_of(valkey) as reader:
        reader.delete("shop:cache:public.t:1")
        reader.set("shop:cache:public.t:2", "by hand")

    assert [one.verdict for one in target.apply(changes(book.records))] == [Verdict.DONE] * 2
    assert live(target.stored_keys(TABLE.topic)) == book.rows
    target.close()


def test_foreign_rows_are_shown_and_can_be_removed_and_repaired(valkey: Valkey) -> None:
    target, book = opened(valkey, sink="cache"), LogBook()
    book.put(1, {"id": 1})
    target.apply(changes(book.records))
    with client_of(valkey) as other:
        other.set("shop:cache:public.t:1", '{"id":1,"x":"altered"}')
        other.set("shop:cache:public.t:99", "no row at all")

    held = {one.name: one for one in target.stored_keys(TABLE.topic)}
    altered, foreign = held["shop:cache:public.t:1"], held["shop:cache:public.t:99"]
    assert (altered.key, altered.content) == (b'{"id":1}', {"id": 1, "x": "altered"})
    assert (foreign.key, foreign.content) == (None, {"": b"no row at all"})
    target.remove(TABLE.topic, list(held.values()))
    assert live(target.stored_keys(TABLE.topic)) == {}
    assert [one.verdict for one in target.apply(changes(book.records))] == [Verdict.DONE]
    assert live(target.stored_keys(TABLE.topic)) == book.rows
    target.close()


def test_mode_invalidate_takes_the_key_away_and_no_late_fill_survives(valkey: Valkey) -> None:
    target, book = opened(valkey, sink="cache", mode="invalidate"), LogBook()
    key = "shop:cache:public.t:1"
    for n in range(3):
        book.put(1, {"id": 1, "v": n})
    first, second, third = ([change] for change in map(_alone, book.records))

    with client_of(valkey) as reader:
        target.apply(first)
        assert filled(reader, key, lambda: "v0")
        assert reader.get(key) == b"v0"
        target.apply(second)
        assert reader.get(key) is None

        def change_comes() -> str:
            target.apply(third)  # between reading the database and writing the cache
            return "v1"

        assert not filled(reader, key, change_comes)
        assert reader.get(key) is None
        assert filled(reader, key, lambda: "v2")
        assert [one.verdict for one in target.apply(second)] == [Verdict.OVERTAKEN]
        assert reader.get(key) == b"v2", "an old change takes nothing away"
    assert live(target.stored_keys(TABLE.topic)) == {b'{"id":1}': {}}
    target.close()


def filled(reader: Any, key: str, load: Callable[[], str]) -> bool:
    """Cache-aside by the function of docs/howto/cache.md; whether it wrote what it loaded."""
    names: dict[str, Any] = {"redis": redis}
    exec(DOCUMENT.read_text().split("```python\n")[1].split("```")[0], names)
    loaded = names["cached"](reader, key, load)
    return bool(reader.get(key) == loaded.encode())


def _alone(record: Any) -> Change:
    return changes([record])[0]


def test_rows_and_versions_of_deleted_rows_have_their_times_to_live(valkey: Valkey) -> None:
    forever, book = opened(valkey, sink="a"), LogBook()
    passing = opened(valkey, sink="b", ttl_s=100, tombstone_s=1000)
    book.put(1, {"id": 1})
    book.put(2, {"id": 2})
    book.delete(2)
    for target in (forever, passing):
        target.apply(changes(book.records))
        target.close()

    with client_of(valkey) as reader:
        times = [reader.ttl(f"cdc:{{shop:{sink}:public.t:{key}}}") for sink in "ab" for key in (1, 2)]
        assert (times[0], reader.ttl("shop:a:public.t:1")) == (-1, -1)
        assert 99 <= reader.ttl("shop:b:public.t:1") <= 100
    assert times[1] > 691_000
    assert all(990 <= time <= 1000 for time in times[2:])


@pytest.mark.parametrize("mode", ["value", "hash"])
def test_row_that_begins_without_a_value_takes_none_from_the_row_before(valkey: Valkey, mode: str) -> None:
    """And where rows may be missing it is a miss, because readers would take it for whole."""
    book = LogBook()
    book.put(1, {"id": 1, "v": "old", "big": "of a deleted row"})
    book.delete(1)
    book.put(1, {"id": 1, "v": "new", "big": "of the other key"}, unchanged=["big"])
    batches = {"all": [book.records], "two": [book.records[:1], book.records[1:]], "compacted": [
        book.records[:1], book.records[-1:]
    ]}  # fmt: skip
    for name, parts in batches.items():
        lasting, expiring = opened(valkey, sink=f"{name}1{mode}", mode=mode), opened(
            valkey, sink=f"{name}2{mode}", mode=mode, ttl_s=100
        )  # fmt: skip
        for target, content in ((lasting, {"id": 1, "v": "new"}), (expiring, None)):
            for records in parts:
                target.apply(changes(records))
            (held,) = target.read_keys(TABLE.topic, [b'{"id":1}'])
            assert held is not None
            assert (held.content, held.version) == (content, book.records[-1][2]), name
            target.close()


def test_versions_that_are_one_number_to_lua_are_two_to_the_cache(valkey: Valkey) -> None:
    target, book = opened(valkey), LogBook(first=2**53)
    book.put(1, {"id": 1, "v": "old"})
    book.put(1, {"id": 1, "v": "new"})
    old, new = map(_alone, book.records)

    assert float(old.offset) == float(new.offset)
    assert [target.apply([change])[0].verdict for change in (new, old)] == [Verdict.DONE, Verdict.OVERTAKEN]
    target.close()


def test_row_completed_from_what_the_store_had_never_covers_one_that_came_meanwhile(valkey: Valkey) -> None:
    """A worker reads the row, is frozen, and goes on when another has written newer ones."""
    slow, fast, book = opened(valkey, sink="cache"), opened(valkey, sink="cache"), LogBook()
    book.put(1, {"id": 1, "v": 1, "big": "a"})
    book.put(1, {"id": 1, "v": 2, "big": "a"}, unchanged=["big"])
    book.put(1, {"id": 1, "v": 3, "big": "b"})
    first, second, third = map(_alone, book.records)
    slow.apply([first])
    read = slow._store.commands

    def frozen_behind(doing: str, commands: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
        found = read(doing, commands)
        fast.apply([third])
        return found

    slow._store.commands = frozen_behind  # type: ignore[method-assign]

    assert [one.verdict for one in slow.apply([second])] == [Verdict.OVERTAKEN]
    slow._store.commands = read  # type: ignore[method-assign]
    assert live(slow.stored_keys(TABLE.topic)) == book.rows
    slow.close()
    fast.close()


def test_flushed_scripts_are_sent_again(valkey: Valkey) -> None:
    target, book = opened(valkey), LogBook()
    for key in range(300):
        book.put(key, {"id": key})
    target.apply(changes(book.records[:1]))
    with client_of(valkey) as other:
        other.script_flush()

    assert {one.verdict for one in target.apply(changes(book.records[1:]))} == {Verdict.DONE}
    assert live(target.stored_keys(TABLE.topic)) == book.rows
    target.close()


def test_topic_that_was_made_again_is_stale_even_if_the_store_forgot_which_it_has(valkey: Valkey) -> None:
    target, book = opened(valkey, sink="cache"), LogBook()
    book.put(1, {"id": 1})
    target.apply(changes(book.records))
    again = TABLE._replace(topic_id="topic-id-2")

    with pytest.raises(SinkStale, match="an earlier topic"):
        opened(valkey, again, sink="cache")
    with client_of(valkey) as other:
        other.delete("cdc:tables:shop:cache")
    other_target = opened(valkey, again, sink="cache")
    with pytest.raises(SinkStale, match="an earlier topic"):
        other_target.apply(changes(book.records))
    other_target.forget([TABLE])
    other_target.close()
    fresh = opened(valkey, again, sink="cache")
    assert [one.verdict for one in fresh.apply(changes(book.records))] == [Verdict.DONE]
    fresh.close()
    target.close()


def test_rows_in_another_mode_or_under_other_names_are_not_mixed_with_new_ones(valkey: Valkey) -> None:
    opened(valkey, sink="cache").close()

    for how in ({"mode": "hash"}, {"keys": {"public.t": "t:{id}"}}):
        with pytest.raises(SinkUnfit, match=r"has rows of public\.t in mode 'value'"):
            opened(valkey, sink="cache", **how)


def test_store_that_may_evict_keys_is_refused_unless_readers_bear_missing_rows(make_valkey: MakeValkey) -> None:
    server = make_valkey(maxmemory_policy="allkeys-lru")

    with pytest.raises(SinkUnfit, match="may evict keys") as refused:
        opened(server, sink="cache")
    opened(server, sink="cache", evictable=True).close()

    assert refused.value.command == "CONFIG SET maxmemory-policy noeviction"


def test_cluster_is_refused_by_name(make_valkey: MakeValkey) -> None:
    # By default its bus takes the port 10,000 above, which may be somebody's.
    (bus,) = free_ports(1)
    server = make_valkey(cluster_enabled="yes", cluster_port=str(bus))

    with pytest.raises(SinkUnfit, match="is a Redis Cluster"):
        opened(server)


def test_wrong_password_and_missing_rights_need_an_operator_and_no_secret_is_shown(make_valkey: MakeValkey) -> None:
    server = make_valkey(requirepass="correct-horse")
    with pytest.raises(SinkUnfit, match="rejected the user name and password") as refused:
        opened(server, options={"password": Secret("battery-staple")})
    target = opened(server, options={"password": Secret("correct-horse")})
    target._store.command("test", "ACL", "SETUSER", "reader", "on", ">pw-of-reader", "~*", "+@read", "+info", "+ping")
    with pytest.raises(SinkUnfit, match="does not permit the sink's user to record the tables") as limited:
        opened(server, options={"username": Secret("reader"), "password": Secret("pw-of-reader")})
    target.close()

    told = f"{refused.value!r} {refused.value.facts} {limited.value!r} {refused.value.__cause__!r}"
    assert not any(secret in told for secret in ("battery-staple", "correct-horse", "pw-of-reader"))


def test_rights_in_the_documents_are_enough(valkey: Valkey) -> None:
    rights = next(line for line in DOCUMENT.read_text().splitlines() if "ACL SETUSER" in line)
    with client_of(valkey) as admin:
        admin.execute_command(*rights.strip().split())
    book = LogBook()
    book.put(1, {"id": 1, "big": "x"})
    book.put(1, {"id": 1, "big": "x", "v": 1}, unchanged=["big"])
    options = {"username": Secret("tailrace"), "password": Secret("secret")}

    for mode in ("value", "hash", "invalidate"):
        target = opened(valkey, sink="cache" if mode == "value" else f"cache{mode}", mode=mode, options=options)
        for record in book.records:
            assert [one.verdict for one in target.apply(changes([record]))] == [Verdict.DONE]
        target.save_positions({(TABLE.topic, 0): 2})
        assert target.saved_positions() == {(TABLE.topic, 0): 2}
        target.remove(TABLE.topic, list(target.stored_keys(TABLE.topic)))
        target.close()
    with client_of(valkey) as admin:
        admin.execute_command("ACL", "DELUSER", "tailrace")


def test_full_store_asks_for_patience_and_takes_deletes_all_the_same(make_valkey: MakeValkey) -> None:
    server = make_valkey(maxmemory="5mb")
    target, book = opened(server), LogBook()
    for key in range(120):
        book.put(key, {"id": key, "big": "x" * 50_000})

    def verdict(record: Any) -> Verdict:
        return target.apply(changes([record]))[0].verdict

    full = next(number for number, record in enumerate(book.records) if verdict(record) is Verdict.LATER)
    with client_of(server) as other:
        # Buffers of connections count, too, and what they give back could be room for one more.
        other.config_set("maxmemory", "4mb")
        assert {verdict(record) for record in book.records[full:]} == {Verdict.LATER}
        assert live(target.stored_keys(TABLE.topic)) == {key: book.rows[key] for key in list(book.rows)[:full]}

        for key in range(full // 2):
            book.delete(key)
        deleted = target.apply(changes(book.records[120:]))
        other.config_set("maxmemory", "5mb")
        later = target.apply(changes(book.records[full : full + 5]))

    assert {one.verdict for one in (*deleted, *later)} == {Verdict.DONE}
    target.close()


def test_server_that_is_away_a_replica_or_not_redis_is_named(make_valkey: MakeValkey, valkey: Valkey) -> None:
    server = make_valkey()
    target, book = opened(server), LogBook()
    book.put(1, {"id": 1})
    with client_of(server) as other:
        other.execute_command("REPLICAOF", "127.0.0.1", valkey.port)
        with pytest.raises(SinkUnreachable, match="accepts no writes now"):
            target.apply(changes(book.records))
        with pytest.raises(SinkUnreachable, match="does not answer"):
            target.saved_positions()
        other.execute_command("REPLICAOF", "NO", "ONE")
    target.saved_positions()
    assert [one.verdict for one in target.apply(changes(book.records))] == [Verdict.DONE]
    server.kill()
    with pytest.raises(SinkUnreachable, match="does not answer"):
        target.apply(changes(book.records))
    target.close()


def test_server_that_hangs_is_unreachable_and_goes_on_where_it_was(
    make_valkey: MakeValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.cache.server_connection.ANSWER_S", 0.5)
    server, book = make_valkey(), LogBook()
    target = opened(server)
    book.put(1, {"id": 1})
    target.save_positions({(TABLE.topic, 0): 7})
    server.pause()
    with pytest.raises(SinkUnreachable, match="does not answer"):
        target.apply(changes(book.records))
    server.resume()

    assert target.saved_positions() == {(TABLE.topic, 0): 7}
    assert target.apply(changes(book.records))[0].verdict in {Verdict.DONE, Verdict.OVERTAKEN}
    assert live(target.stored_keys(TABLE.topic)) == book.rows
    target.close()


def test_two_workers_that_apply_one_log_in_pieces_at_once_end_at_its_last_records(valkey: Valkey) -> None:
    """Over and over, each in an order of its own: who was frozen and goes on writes old records beside the new ones."""
    random, book = Random(8), LogBook()
    for n in range(600):
        key = random.randrange(12)
        if random.random() < 0.25 and f'{{"id":{key}}}'.encode() in book.rows:
            book.delete(key)
        else:
            book.put(key, {"id": key, "v": n})
    pieces = [book.records[at : at + 20] for at in range(0, len(book.records), 10)]
    both = [opened(valkey, sink="cache") for _ in range(2)]
    at_once = Barrier(2)

    def work(target: CacheTarget, seed: int) -> set[Verdict]:
        order = [*pieces, *pieces]
        Random(seed).shuffle(order)
        at_once.wait(60)
        return {one.verdict for piece in order for one in target.apply(changes(piece))}

    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(work, both, (1, 2)))

    assert set.union(*verdicts) == {Verdict.DONE, Verdict.OVERTAKEN}
    assert live(both[0].stored_keys(TABLE.topic)) == book.rows
    for target in both:
        target.close()
