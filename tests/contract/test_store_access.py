"""Stores behind TLS and passwords: valid credentials work, invalid ones are named, no secret is shown.

The pinned Valkey is built without TLS, and the pinned OpenSearch without its security plugin, so a proxy in front of
each adds them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from msgspec import structs

from cdc.config.credential import CommandSecret
from cdc.config.secret import Secret
from cdc.config.settings import Cache, Search
from cdc.doctor.sink_checks import examine_sinks
from cdc.errors import SinkError, SinkUnfit, SinkUnreachable
from sinks.cache.checkup import checkup as cache_checkup
from sinks.cache.server_connection import Store
from sinks.cache.start import target as target_of
from sinks.contract import Verdict
from sinks.search.checkup import checkup as search_checkup
from sinks.store_findings import StoreFinding
from tests.fixtures.faults.searchproxy import search_proxy
from tests.fixtures.faults.secured import certificates
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.servers.tls_fronts import tls_relay
from tests.fixtures.servers.valkey import MakeValkey, cache_settings, client_of, sentinel
from tests.fixtures.servers.valkey import config as configured
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.search_targets import TABLE, ask, documents, opened
from tests.fixtures.sinks.search_targets import configured as configured_search
from tests.fixtures.sinks.sink_logs import LogBook, changes

if TYPE_CHECKING:
    from cdc.local.valkey_server import Valkey

PASSWORD = "geheim-7"


class Files(NamedTuple):
    """Of an authority, and of a server or client that it vouches for."""

    ca: Path
    key: Path
    certificate: Path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(*certificates(tmp_path_factory.mktemp("ours"), "ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(*certificates(tmp_path_factory.mktemp("others"), "others"))


def writes(server: Valkey, url: str, options: dict[str, str]) -> None:
    """A row goes in and is seen."""
    settings = cache_settings(server, url=url, options={name: Secret(value) for name, value in options.items()})
    target = target_of(configured("shop"), "cache", settings)
    try:
        target.open([TABLE])
        book = LogBook(TABLE.topic)
        book.put(1, {"id": 1, "v": "x"})
        assert [outcome.verdict for outcome in target.apply(changes(book.records))] == [Verdict.DONE]
        assert [one.content for one in target.stored_keys(TABLE.topic)] == [{"id": 1, "v": "x"}]
    finally:
        target.close()


def refused(server: Valkey, url: str, options: dict[str, str]) -> str:
    """Why not."""
    with pytest.raises(SinkError) as caught:
        writes(server, url, options)
    assert PASSWORD not in f"{caught.value} {vars(caught.value)}"
    return caught.value.message


def test_cache_behind_tls_is_opened_by_its_authority_a_client_certificate_and_a_user(
    make_valkey: MakeValkey, ours: Files, others: Files
) -> None:
    server = make_valkey()
    rights = "~shop:* ~cdc:* +ping +info +select +eval +evalsha +get +getrange +mget +set +mset +del +exists +hget"
    rights += " +hset +hmget +hlen +hdel +hgetall +pexpire +scan +unlink"  # as docs/howto/cache.md has them
    with client_of(server) as admin:
        admin.execute_command("ACL", "SETUSER", "tailrace", "on", f">{PASSWORD}", *rights.split())
        looks = ["~*", "+@read", "+ping", "+info", "+select"]
        admin.execute_command("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", *looks)
    login = {"username": "tailrace", "password": PASSWORD}
    mine = {"ssl_certfile": str(ours.certificate), "ssl_keyfile": str(ours.key)}
    with tls_relay(server.port, ours.certificate, ours.key, clients_ca=ours.ca) as port:
        url, trust = f"rediss://127.0.0.1:{port}/0", {"ssl_ca_certs": str(ours.ca)}
        writes(server, url, {**trust, **mine, **login})
        assert "not trusted" in refused(server, url, {**mine, **login, "ssl_ca_certs": str(others.ca)})
        assert "does not answer" in refused(server, url, {**trust, **login}), "no certificate of our own"
        assert "password" in refused(server, url, {**trust, **mine, **login, "password": f"{PASSWORD}?"})
        assert "does not permit the sink's user" in refused(
            server, url, {**trust, **mine, **login, "username": "reader"}
        )


def test_password_of_a_cache_that_is_rotated_is_read_for_the_next_connection(
    make_valkey: MakeValkey, tmp_path: Path
) -> None:
    server, file = make_valkey(requirepass=PASSWORD), tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    store = Store(server.url, {"password": CommandSecret(["cat", str(file)], "options.password_command")})
    store.command("connect", "PING")
    with redis.Redis(port=server.port, password=PASSWORD) as admin:
        admin.config_set("requirepass", f"new-{PASSWORD}")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    with pytest.raises(SinkError) as rejected:
        store.reconnect()
    file.write_text(f"new-{PASSWORD}\n")
    store.reconnect()
    file.unlink()
    with pytest.raises(SinkUnreachable, match=r"options\.password_command: cat failed") as failed:
        store.reconnect()
    store.close()

    assert PASSWORD not in f"{rejected.value}{failed.value}"


def test_sentinel_with_a_password_of_its_own_leads_to_a_primary_with_another(
    make_valkey: MakeValkey, tmp_path: Path
) -> None:
    server = make_valkey(requirepass=PASSWORD)
    lines = ("requirepass of-sentinel", f"sentinel auth-pass shop {PASSWORD}")
    with sentinel(server, tmp_path, *lines) as port:
        url, options = f"redis://127.0.0.1:{port}/0", {"sentinel": "shop", "password": PASSWORD}

        def opens() -> bool:
            try:
                writes(server, url, {**options, "sentinel_password": "of-sentinel"})
            except SinkError:
                return False
            return True

        until(opens, "sentinel to know the primary")
        assert PASSWORD not in refused(server, url, options)


def test_search_behind_tls_is_opened_by_its_authority_and_a_password(
    opensearch: OpenSearchServer, sink_name: str, ours: Files, others: Files
) -> None:
    with search_proxy(opensearch.url) as proxy:
        proxy.login = f"tailrace:{PASSWORD}"
        with tls_relay(int(proxy.url.rpartition(":")[2]), ours.certificate, ours.key) as port:
            url = f"https://127.0.0.1:{port}"

            def opened_with(**options: str) -> Any:
                return opened(url, sink_name, options={name: Secret(value) for name, value in options.items()})

            login = {"username": "tailrace", "password": PASSWORD}
            target = opened_with(**login, ca_certs=str(ours.ca))
            book = LogBook(TABLE.topic)
            book.put("1", {"id": "1", "v": "x"})
            assert [outcome.verdict for outcome in target.apply(changes(book.records))] == [Verdict.DONE]
            target.close()
            assert documents(opensearch.url, f"shop.{sink_name}.public.t") == {"1": {"id": "1", "v": "x"}}
            for options, says in (
                ({**login, "ca_certs": str(others.ca)}, "no trusted connection"),
                ({**login, "ca_certs": str(ours.ca), "password": f"{PASSWORD}?"}, "rejects the credentials"),
            ):
                with pytest.raises(SinkUnfit, match=says) as caught:
                    opened_with(**options)
                assert PASSWORD not in f"{caught.value} {vars(caught.value)}"


def test_what_a_cache_lacks_is_said_before_its_sink_runs(make_valkey: MakeValkey) -> None:
    server = make_valkey(maxmemory_policy="allkeys-lru")
    rights = "~shop:* ~cdc:* +@all -scan -mset"
    with client_of(server) as admin:
        admin.execute_command("ACL", "SETUSER", "tailrace", "on", f">{PASSWORD}", *rights.split())
        admin.execute_command("ACL", "SETUSER", "silent", "on", f">{PASSWORD}", *rights.split(), "-acl")
        before = admin.dbsize()

    def told(user: str, *, evictable: bool = True) -> list[StoreFinding]:
        options = {"username": Secret(user), "password": Secret(PASSWORD)}
        settings = cache_settings(server, options=options, evictable=evictable)
        return list(cache_checkup(configured("shop"), "cache", settings))

    found = told("tailrace")
    assert [(one.level, one.check) for one in found] == [
        ("ok", "cache"), ("warning", "eviction"), ("error", "acl"), ("error", "acl")
    ]  # fmt: skip
    assert ["MSET" in found[2].message, "SCAN" in found[3].message] == [True, True]
    assert "cannot be checked" in told("silent")[-1].message
    with pytest.raises(SinkUnfit, match="may evict"):
        told("tailrace", evictable=False)
    with client_of(server) as admin:
        assert admin.dbsize() == before, "it has only looked"


def test_index_that_takes_no_writes_or_forgets_deletes_too_soon_is_said_before_its_sink_runs(
    opensearch: OpenSearchServer, sink_name: str
) -> None:
    opened(opensearch.url, sink_name).close()
    name = f"shop.{sink_name}.public.t"
    ask(opensearch.url, "PUT", f"/{name}/_settings", {"index": {"gc_deletes": "60s", "blocks.write": True}})
    config, settings = configured_search(opensearch.url)

    found = list(search_checkup(config, sink_name, settings))

    assert {one.check for one in found if one.level == "ok"} == {"search", "search_health", "search_indices"}
    assert {one.check for one in found if one.level == "warning"} >= {"search_block", "gc_deletes"}
    assert not [one for one in found if one.level == "error"]


def test_sink_whose_store_does_not_answer_is_a_finding_and_no_end() -> None:
    whole = structs.replace(
        configured("shop"),
        sinks={"cache": Cache(url="redis://127.0.0.1:1/0"), "find": Search(url="http://127.0.0.1:1")},
    )

    found = examine_sinks(whole, None)

    assert [(one.group, one.level, one.message.partition(":")[0]) for one in found] == [
        ("sinks", "error", "cache"),
        ("sinks", "error", "find"),
    ]
