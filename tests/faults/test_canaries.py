"""Output of capture never contains a secret or a row value, whatever fails (F1).

Canaries stand in every password and in rows, keys and conditions. What is looked through: logs and tracebacks, /status,
/metrics, the output of commands, and the control topics, which operators read and share.
"""

from __future__ import annotations

import base64
import urllib.request
from typing import TYPE_CHECKING, Final
from urllib.error import URLError

import pytest

from tests.fixtures.capture.topic_log import read_raw
from tests.fixtures.faults.secured import PASSWORD, SecuredBroker, free_ports
from tests.fixtures.servers.commands import cdc

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

SOURCE: Final = "canary-source-91d3"
REGISTRY: Final = "canary-registry-4c7a"
OPTION: Final = "canary-option-08be"
VALUE: Final = "canary-value-e5f2"
KEY: Final = "canary-key-77ab"
SECRETS: Final = (SOURCE, REGISTRY, OPTION, PASSWORD, base64.b64encode(f"u:{REGISTRY}".encode()).decode())
ROWS: Final = (VALUE, KEY)
COMMANDS: Final = (("status",), ("doctor",), ("doctor", "--sql"), ("audit", "--json"), ("ddl", "list"))


@pytest.fixture
def site(capture: CaptureSite) -> CaptureSite:
    """A capture whose DSN has a password, and rows with canaries."""
    role = f"{capture.name}_canary"
    capture.sql(f"create role {role} login superuser password '{SOURCE}'")
    capture.dsn = f"postgresql://{role}:{SOURCE}@{capture.dsn.partition('@')[2]}"
    capture.sql("create table t (id text primary key, v text)", f"insert into t values ('{KEY}-0', '{VALUE}')")
    return capture


def test_no_error_path_of_rows_shows_a_value_or_a_secret(site: CaptureSite) -> None:
    sections: Sections = {
        "snapshot": {"mode": "initial"},
        "audit": {"enabled": True, "interval_s": 0.2},
        "kafka": {"options": {"ssl.key.password": OPTION}},
        "capture": {"catalog_check_s": 0.2, "row_bytes_max": 20_000},
    }
    told: dict[str, str] = {}

    running = site.running(sections)
    running.until_position(site.sql(f"insert into t values ('{KEY}-1', '{VALUE}')"))
    told["http"] = surfaces(running)
    site.sql(f"alter table t add column more text default '{VALUE}'", f"update t set v = '{VALUE}-2'")
    running.until_position(site.sql("truncate t"))
    running.kill()
    crashed = site.daemon(sections, mutant=f"crash_on:{KEY}-3")
    site.sql(f"insert into t values ('{KEY}-3', '{VALUE}')")
    assert crashed.exit_code() == 1
    assert "ZeroDivisionError" in crashed.log_text(), "it is a traceback that is looked through"
    poisoned = site.daemon(sections, mutant=f"garble:{KEY}-3")
    assert poisoned.stopped_with()["error"] == "PoisonedStream"
    site.sql(f"insert into t values ('{KEY}-4', '{VALUE}' || repeat(md5('x'), 4000))")
    refused = site.daemon(sections)
    assert refused.stopped_with()["error"] == "RowRefused"
    site.sql(f"select pg_drop_replication_slot('{site.slot}')")
    lost = site.daemon(sections)
    assert lost.stopped_with()["state"] == "GAP"

    config = site.write_config(sections)
    for words in COMMANDS:
        ran = cdc(*words, "-c", config)
        told[" ".join(words)] = ran.out + ran.err
    assert leaks(told | logs(site) | control_topics(site), *SECRETS, *ROWS) == {}


def test_no_refused_connection_shows_a_secret(site: CaptureSite, secured: SecuredBroker) -> None:
    closed = free_ports(1)[0]
    registry = {"url": f"http://127.0.0.1:{closed}", "options": {"basic.auth.user.info": f"u:{REGISTRY}"}}
    doors: list[tuple[Sections, str]] = [
        ({"kafka": secured.sasl_options(), "capture": {}}, "stops"),  # nobody has granted anything
        ({"kafka": secured.sasl_options(OPTION)}, "stops"),
        ({"encode": {"format": "avro"}, "registry": registry}, "WAITING"),
        ({"source": {"dsn": f"postgresql://cdc:{SOURCE}@127.0.0.1:{closed}/shop"}}, "WAITING"),
        ({"source": {"dsn": f"postgresql://cdc:{SOURCE}@/{SOURCE}@127.0.0.1/shop"}}, "ends"),
    ]
    ran = cdc("doctor", "-c", site.write_config(doors[1][0]), timeout_s=120)
    told = {"doctor": ran.out + ran.err}
    daemons = [site.daemon(sections) for sections, _ in doors]

    for number, (daemon, (_, end)) in enumerate(zip(daemons, doors, strict=True)):
        if end == "WAITING":
            daemon.until_state("WAITING", within_s=60)
            told[f"http {number}"] = surfaces(daemon)
            daemon.kill()
        else:
            assert daemon.exit_code(90) in {2, 3}

    assert leaks(told | logs(site), *SECRETS) == {}


def surfaces(daemon: Daemon) -> str:
    """Everything it says over HTTP."""
    port = daemon.events("http_listening")[0]["port"]
    texts = []
    for path in ("status", "metrics", "livez", "readyz", "nowhere"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                texts.append(answer.read().decode())
        except URLError as error:
            texts.append(str(error))
    assert len(texts[0]) > 100
    return "\n".join(texts)


def logs(site: CaptureSite) -> dict[str, str]:
    """What each daemon has printed."""
    return {f"log {number}": daemon.log_text() for number, daemon in enumerate(site.daemons)}


def control_topics(site: CaptureSite) -> dict[str, str]:
    """Records of the topics that are not data, keys too."""
    topics = [f"{site.name}.__{kind}" for kind in ("progress", "cuts", "schema", "signals")]
    return {
        topic: "\n".join(repr(part) for record in read_raw(site.bootstrap, topic) for part in record)
        for topic in topics
    }


def leaks(told: dict[str, str], *canaries: str) -> dict[str, list[str]]:
    """Where a canary is, and the line around it."""
    assert [name for name, text in told.items() if not text and "signals" not in name] == []
    return {
        name: [line[:300] for line in text.splitlines() if any(canary in line for canary in canaries)]
        for name, text in told.items()
        if any(canary in text for canary in canaries)
    }
