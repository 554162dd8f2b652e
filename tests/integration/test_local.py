"""The local servers: start, reuse, discovery and stop, also after crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from cdc.config.secret import Secret
from cdc.config.settings import Registry as Settings
from cdc.errors import LocalError
from cdc.kafka.schema_registry import ConfluentRegistry
from cdc.local.local_server import ServerOptions
from cdc.local.postgres_server import Postgres
from cdc.local.process_identity import Identity, alive, descendants, identify, wait_gone
from cdc.local.stack import Stack, existing_servers
from cdc.model.progress_record import AvroSchemas
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAST: Final = {"postgres": ServerOptions(fast_start=True), "kafka": ServerOptions(fast_start=True)}
CLI: Final = "from cdc.cli.local_command import group; group(prog_name='cdc local')"
COMMAND_S: Final = 240
_LISTEN: Final = "0A"  # in /proc/net/tcp


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a stack, wiped at the end; it begins as those that a later run wipes if this one is killed."""
    chosen = f"test-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    yield chosen
    Stack(chosen, existing_servers(chosen)).down("kill", wipe=True)


@pytest.fixture(scope="session")
def mirror() -> str:
    """The address of a repository on this disk: the cache of this machine, which the servers have filled."""
    machine = Machine.here()
    lock = Path(__file__).parents[2] / "cdc" / "local" / "kafka.lock"
    fetch(parse_lock(lock.read_text(), name=lock.name), machine=machine, progress=NoProgress(), label="Kafka")
    return (machine.cache / "maven").as_uri()


@pytest.fixture
def cache(mirror: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache that fills itself from the mirror; not below pytest's folder, which is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-test-"))
    folder.chmod(0o755)
    monkeypatch.setenv("TAILRACE_CACHE", str(folder))
    monkeypatch.setenv("MAVEN_REPO_URL", mirror)
    yield folder
    for stack in (folder / "stacks").glob("*"):
        Stack(stack.name).down("kill", wipe=True)
    shutil.rmtree(folder)


def cdc_local(*arguments: str, check: bool = True) -> str:
    """Run the command as a person does: in a process of its own, that ends."""
    done = subprocess.run(
        [sys.executable, "-c", CLI, *arguments], capture_output=True, text=True, check=False, timeout=COMMAND_S
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout


def servers(output: str) -> dict[str, dict[str, Any]]:
    return {server["name"]: server for server in json.loads(output)["servers"]}


def family(pids: Sequence[int]) -> list[Identity]:
    roots = [found for pid in pids if (found := identify(pid)) is not None]
    return [*roots, *(member for root in roots for member in descendants(root))]


def test_up_is_found_by_a_second_up_and_down_leaves_no_process(name: str) -> None:
    first = servers(cdc_local("up", "--stack", name, "--fast-start", "--json"))
    second = servers(cdc_local("up", "--stack", name, "--json"))
    pids = [server["pid"] for server in first.values()]
    processes = family(pids)

    stopped = servers(cdc_local("down", "--stack", name, "--json"))

    assert {s["condition"] for s in first.values()} == {"running"}
    assert pids == [server["pid"] for server in second.values()]
    assert len(processes) > 2
    assert not any(alive(process) for process in processes)
    assert {s["condition"] for s in stopped.values()} == {"stopped"}


def test_data_and_addresses_are_kept_until_they_are_wiped(name: str) -> None:
    stack = Stack(name, ("postgres",), options=FAST)
    with stack:
        dsn = stack.postgres.dsn
        with psycopg.connect(dsn) as connection:
            connection.execute("create table kept (id int)")

    with Stack(name, ("postgres",), options=FAST) as again:
        assert again.postgres.dsn == dsn
        with psycopg.connect(dsn) as connection:
            assert connection.execute("select count(*) from kept").fetchone() == (0,)
    stack.down(wipe=True)

    assert not stack.home.exists()


@pytest.mark.parametrize("server", ["postgres", "kafka", "registry", "opensearch", "valkey"])
def test_a_killed_server_is_reported_and_brought_back_by_up(name: str, server: str) -> None:
    before = servers(cdc_local("up", server, "--stack", name, "--fast-start", "--json"))[server]
    processes = family([before["pid"]])

    os.kill(before["pid"], signal.SIGKILL)
    wait_gone(processes[:1], deadline_s=60)
    died = servers(cdc_local("status", "--stack", name, "--json", check=False))[server]
    after = servers(cdc_local("up", server, "--stack", name, "--fast-start", "--json"))[server]

    assert died["condition"] == "died"
    assert after["condition"] == "running"
    assert after["address"] == before["address"]
    assert after["pid"] != before["pid"]


def test_a_registry_comes_only_when_it_is_named_and_keeps_its_ids(name: str) -> None:
    assert "registry" not in servers(cdc_local("status", "--stack", name, "--json"))
    stack = Stack(name, ("registry",), options={"registry": ServerOptions(fast_start=True)})
    stack.up()
    patient = {"timeout": Secret("120")}
    client = ConfluentRegistry(Settings(url=stack.registry.url, options=patient))
    schemas = [AvroSchemas(None, f'{{"type":"fixed","size":{size},"name":"F"}}') for size in (1, 2)]
    ids = [client.register(f"t{number}", schemas[number], "public.t") for number in (0, 1)]

    listening = _listening(servers(cdc_local("status", "--stack", name, "--json"))["registry"]["pid"])
    stack.registry.kill()
    stack.registry.start()

    assert [client.register(f"t{number}", schemas[number], "public.t") for number in (1, 0)] == ids[::-1]
    client.close()
    shown = servers(cdc_local("status", "--stack", name, "--json", check=False))["registry"]
    assert shown["exports"] == {"TAILRACE_REGISTRY_URL": stack.registry.url}
    other = ConfluentRegistry(Settings(url=shown["exports"]["TAILRACE_REGISTRY_URL"], options=patient))
    assert other.register("t1", schemas[1], "public.t") == ids[1], "of the registry, not of the client's memory"
    other.close()
    assert len(listening) == 2
    assert {address.rpartition(":")[0].removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_valkey_comes_only_when_it_is_named_on_loopback_and_an_orderly_end_loses_nothing(name: str) -> None:
    assert "valkey" not in servers(cdc_local("status", "--stack", name, "--json"))
    shown = servers(cdc_local("up", "valkey", "--stack", name, "--json"))["valkey"]
    listening = _listening(shown["pid"])
    with socket.create_connection(("127.0.0.1", shown["ports"]["valkey"])) as connection:
        connection.sendall(b"SET k v\r\n")
        assert connection.recv(100) == b"+OK\r\n"

    cdc_local("down", "valkey", "--stack", name)
    again = servers(cdc_local("up", "valkey", "--stack", name, "--json"))["valkey"]

    assert again["exports"] == {"TAILRACE_CACHE_URL": shown["address"]}
    with socket.create_connection(("127.0.0.1", again["ports"]["valkey"])) as connection:
        connection.sendall(b"GET k\r\n")
        assert connection.recv(100) == b"$1\r\nv\r\n"
    assert {address.rpartition(":")[0] for address in listening} == {"127.0.0.1"}


def _listening(pid: int) -> set[str]:
    """Addresses on which a process accepts connections."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(str(link.readlink()))
    found = set()
    for table, parse in (("tcp", _ipv4), ("tcp6", _ipv6)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and f"socket:[{fields[9]}]" in inodes:
                host, _, port = fields[1].partition(":")
                found.add(f"{parse(host)}:{int(port, 16)}")
    return found


def _ipv4(text: str) -> str:
    return socket.inet_ntop(socket.AF_INET, bytes.fromhex(text)[::-1])


def _ipv6(text: str) -> str:
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, 32, 8)]
    return socket.inet_ntop(socket.AF_INET6, b"".join(words))


def test_postgres_is_made_for_logical_replication_and_keeps_what_was_committed_before_a_kill(name: str) -> None:
    options = {"postgres": ServerOptions(fast_start=True, settings={"wal_sender_timeout": "7s"})}
    with Stack(name, ("postgres",), options=options) as stack:
        postgres = stack.postgres
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            shown = [
                connection.execute(f"show {setting}").fetchone()
                for setting in ("wal_level", "fsync", "wal_sender_timeout", "listen_addresses")
            ]
            connection.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
            connection.execute("create table t (id int)")
            connection.execute("insert into t values (1)")
        assert shown == [("logical",), ("on",), ("7s",), ("127.0.0.1",)]

        for mode in ("fast", "immediate", "kill"):
            processes = family([postgres.pid or 0])
            postgres.stop(mode)
            assert not any(alive(process) for process in processes)
            postgres.start()
        postgres.restart(settings={"max_slot_wal_keep_size": "64MB"})

        with psycopg.connect(postgres.dsn) as connection:
            assert connection.execute("select id from t").fetchall() == [(1,)]
            assert connection.execute("select slot_name from pg_replication_slots").fetchall() == [("s",)]
            assert connection.execute("show max_slot_wal_keep_size").fetchone() == ("64MB",)


def test_a_broker_that_was_killed_is_fenced_before_it_leads_again(name: str) -> None:
    with Stack(name, ("kafka",), options=FAST, wipe=True) as stack:
        stack.kafka.kill()
        stack.kafka.start()

        log = stack.kafka.log.read_text()
        assert log.count("Performing controller activation") == 3
        assert log.count("fenced=1,") == 1


def test_kafka_takes_transactions_and_keeps_what_was_committed_before_a_kill(name: str) -> None:
    with Stack(name, ("kafka",), options=FAST, wipe=True) as stack:
        bootstrap = stack.kafka.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x", "message.max.bytes": 32 << 20})
        producer.init_transactions(90)
        producer.begin_transaction()
        producer.produce("t", key=b"k", value=bytes(15 << 20))
        producer.commit_transaction(90)

        stack.kafka.pause()
        assert not stack.kafka.ready()
        stack.kafka.resume()
        until(stack.kafka.ready, "it answers again")
        stack.kafka.kill()
        assert not stack.kafka.ready()
        stack.kafka.start()

        assert stack.kafka.bootstrap == bootstrap
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "fetch.message.max.bytes": 32 << 20})
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(90)
        consumer.close()
        assert message is not None
        assert message.error() is None
        assert len(message.value() or b"") == 15 << 20


def test_two_stacks_run_side_by_side(name: str) -> None:
    with Stack(name, ("postgres",), options=FAST) as one:
        other = Stack(f"{name}-b", ("postgres",), options=FAST, wipe=True)
        with other as two:
            with psycopg.connect(one.postgres.dsn) as connection:
                connection.execute("create table only_here (id int)")
            with psycopg.connect(two.postgres.dsn) as connection:
                there = connection.execute("select to_regclass('only_here')").fetchone()

        assert one.postgres.port != two.postgres.port
        assert there == (None,)
        assert one.postgres.ready()
    assert not other.home.exists()


def test_an_older_major_stays_that_of_its_data(name: str) -> None:
    first = servers(cdc_local("up", "postgres", "--stack", name, "--pg-version", "15", "--fast-start", "--json"))
    cdc_local("down", "postgres", "--stack", name)
    second = servers(cdc_local("up", "postgres", "--stack", name, "--json"))

    refused = cdc_local("up", "postgres", "--stack", name, "--pg-version", "16", "--json", check=False)

    assert first["postgres"]["version"] == second["postgres"]["version"]
    assert first["postgres"]["version"].startswith("15.")
    with psycopg.connect(second["postgres"]["address"]) as connection:
        assert connection.info.server_version // 10000 == 15
    assert refused == ""


def test_two_commands_at_once_start_one_server(name: str) -> None:
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", CLI, "up", "postgres", "--stack", name, "--fast-start", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]

    outputs = [command.communicate(timeout=COMMAND_S)[0] for command in commands]

    assert [command.returncode for command in commands] == [0, 0]
    assert servers(outputs[0])["postgres"]["pid"] == servers(outputs[1])["postgres"]["pid"]


def test_a_cache_with_half_finished_work_is_recovered_from(cache: Path, name: str) -> None:
    machine = Machine.here()
    lock = parse_lock((Path(__file__).parents[2] / "cdc/local/kafka.lock").read_text(), name="kafka.lock")
    files = [cache / "maven" / artifact.path for artifact in lock]
    source = Path((machine.maven_url or "").removeprefix("file://"))
    for file in files[:3]:
        file.parent.mkdir(parents=True)
    files[0].write_bytes((source / lock[0].path).read_bytes()[:-100])
    files[1].with_name(f"{files[1].name}.part").write_bytes(b"half")
    files[2].write_bytes(bytes(lock[2].size_bytes))
    home = cache / "stacks" / name
    for half in (home / "postgres" / "data.part", home / "kafka" / "data.part"):
        half.mkdir(parents=True)
        (half / "rubbish").touch()

    with Stack(name, options=FAST, wipe=True) as stack:
        assert stack.postgres.ready()
        assert stack.kafka.ready()

    assert list(cache.rglob("*.part")) == []


def test_a_damaged_archive_of_classes_is_never_the_reason(cache: Path, name: str) -> None:
    archives = cache / "archives" / "kafka"
    with Stack(name, ("kafka",), options=FAST):
        pass
    (made,) = archives.iterdir()
    made.write_bytes(made.read_bytes()[:1000])

    with Stack(name, ("kafka",), options=FAST, wipe=True) as stack:
        assert stack.kafka.ready()
        assert list(archives.iterdir()) == []


def test_a_server_that_cannot_start_leaves_none_of_the_others_running(name: str) -> None:
    options = {**FAST, "kafka": ServerOptions(fast_start=True, settings={"process.roles": "nonsense"})}
    stack = Stack(name, options=options)

    with pytest.raises(LocalError, match="kafka ended"):
        stack.up()

    assert [d.condition for d in stack.describe()] == ["stopped", "stopped"]


def test_a_wrong_setting_of_postgres_says_what_is_wrong(name: str) -> None:
    options = {"postgres": ServerOptions(fast_start=True, settings={"wal_level": "nonsense"})}

    with pytest.raises(LocalError, match="invalid value for parameter"):
        Stack(name, ("postgres",), options=options).up()


def test_postgres_asks_for_a_password_that_only_its_owner_may_read(name: str) -> None:
    printed = cdc_local("up", "postgres", "--stack", name, "--fast-start", "--json")
    printed += cdc_local("env", "--stack", name) + cdc_local("status", "--stack", name)
    server = Stack(name, ("postgres",)).postgres
    password = str(conninfo_to_dict(server.dsn)["password"])

    assert server.passfile.stat().st_mode & 0o777 == 0o600
    assert not (server.home / "password").exists()
    assert len(password) >= 32
    assert password not in printed
    assert f"PGPASSFILE={server.passfile}" in printed
    with psycopg.connect(server.printable_dsn) as session:
        rules = session.execute("select distinct auth_method from pg_hba_file_rules")
        assert rules.fetchall() == [("scram-sha-256",)]
    for given in ("", "wrong"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(make_conninfo(server.dsn, password=given, passfile="/nowhere"))


def test_postgres_data_of_an_earlier_version_needs_no_password(tmp_path: Path) -> None:
    server = Postgres(tmp_path, Machine.here(), ServerOptions())

    assert server.dsn == server.printable_dsn == "postgresql://postgres@127.0.0.1:0/shop"
    assert "PGPASSFILE" not in server.describe().exports


def test_env_and_logs_are_for_a_shell(name: str) -> None:
    cdc_local("up", "postgres", "--stack", name, "--fast-start")

    script = f'eval "$1" && "{sys.executable}" -c "import psycopg; psycopg.connect().close()" && echo $PGDATABASE'
    exports = cdc_local("env", "--stack", name)
    done = subprocess.run(["sh", "-c", script, "sh", exports], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "shop", done.stderr
    assert "TAILRACE_SOURCE_DSN='postgresql://postgres@" in exports
    assert "ready to accept connections" in cdc_local("logs", "postgres", "--stack", name, "-n", "20")
