"""`cdc probe`: what it asks, what counts as healthy, and which process of a container it asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc.cli.main import run
from cdc.cli.probe_command import Probing, probing_of
from cdc.inspect.endpoint_probe import reachable
from cdc.model.run_state import State
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.http_server import WebServer
from tests.fixtures.faults.issuing import Authority
from tests.fixtures.servers.manual_clock import ManualClock

CONFIG = """
name = "shop"
[source]
dsn = "postgresql://cdc@127.0.0.1:1/none"
[kafka]
bootstrap = "127.0.0.1:2"
[http]
{http}
[sinks.find]
kind = "search"
url = "http://127.0.0.1:3"
{sink}
"""


@contextmanager
def served(access: Access = Access(), listen: str = "127.0.0.1:0") -> Iterator[tuple[int, Status]]:  # noqa: B008
    metrics = Metrics("shop")
    status = Status("shop", ManualClock(), metrics)
    made = WebServer(listen, status, metrics, access=access)
    try:
        yield made.port, status
    finally:
        made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cdc.toml"


def write(file: Path, http: str, sink: str = "") -> Path:
    file.write_text(CONFIG.format(http=http, sink=sink))
    return file


def probed(file: Path, *options: str) -> int:
    return run(["-c", str(file), "probe", *options])


def test_probe_fails_as_soon_as_the_process_no_longer_answers(file: Path) -> None:
    with served() as (port, _):
        write(file, f'listen = "0.0.0.0:{port}"')
        assert probed(file) == 0

    assert probed(file) == 1


def test_waiting_process_is_alive_but_not_ready(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as (port, status):
        write(file, f'listen = "127.0.0.1:{port}"')
        status.enter(State.WAITING, "slot")
        waiting = probed(file), probed(file, "--ready")
        said = capsys.readouterr().err
        status.enter(State.RUNNING)
        running = probed(file, "--ready")

    assert (waiting, running) == ((0, 1), 0)
    assert said.strip() == f"http://127.0.0.1:{port}/readyz: 503 WAITING"


def test_probe_asks_the_sink_that_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as (port, _):
        write(file, 'listen = "127.0.0.1:1"', f'listen = "127.0.0.1:{port}"')
        found = probed(file, "--sink", "find"), probed(file)

    assert found == (0, 1)
    assert probed(file, "--sink", "fnd") == 2
    assert "configured: find" in capsys.readouterr().err


def test_probe_asks_over_https_whatever_name_the_certificate_has(file: Path, tmp_path: Path) -> None:
    certificate, key = map(str, Authority(tmp_path).issue("other.example", expired=True))
    with served(Access(certificate=certificate, key=key, hosts=("only.example",))) as (port, _):
        write(file, f'listen = "127.0.0.1:{port}"\ntls_certificate = "/not/there.pem"\nhosts = ["only.example"]')
        assert probed(file, "--json") == 0
        write(file, f'listen = "127.0.0.1:{port}"')
        assert probed(file) == 1


@pytest.mark.parametrize("listen", ["", "127.0.0.1:0"])
def test_without_http_only_readiness_fails(listen: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, f'listen = "{listen}"')

    assert (probed(file), probed(file, "--ready")) == (0, 1)
    assert "http.listen has no address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["run"], Probing()),
        (["-c", "/etc/a.toml", "run", "--with-sinks"], Probing(None, Path("/etc/a.toml"))),
        (["run", "--config", "b.toml", "-v"], Probing(None, Path("b.toml"))),
        (["sink", "run", "find"], Probing("find")),
        (
            ["--config=/c.toml", "sink", "run", "--instance", "a", "find", "--json-logs"],
            Probing("find", Path("/c.toml")),
        ),
        (["sink", "run", "lake", "--master", "local[2]", "--unknown"], Probing("lake")),
        (["sink", "status"], None),
        (["tail", "run"], None),
        ([], None),
    ],
)
def test_process_is_asked_for_what_its_arguments_run(arguments: list[str], asked: Probing | None) -> None:
    assert probing_of(arguments) == asked


def test_process_of_a_sink_is_asked_at_the_address_of_the_sink(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waits = "import sys; print(flush=True); sys.stdin.read()"
    with served() as (port, _):
        write(file, 'listen = "127.0.0.1:1"', f'listen = "127.0.0.1:{port}"')
        for words, code in (["sink", "run", "find"], 0), (["run"], 1), (["doctor"], 0):
            command = [sys.executable, "-c", waits, "/opt/tailrace/bin/cdc", "-c", str(file), *words]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()  # before, its arguments may be missing in /proc
                found = run(["probe", "--pid", str(process.pid), "--json"])
                process.communicate()
            assert found == code, words
            assert json.loads(capsys.readouterr().out)["ok"] is (code == 0)

    assert run(["probe", "--pid", str(process.pid)]) == 2
    assert run(["probe", "--pid", "1", "--sink", "find"]) == 2


def test_health_check_has_no_warning_about_an_overridden_database(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_SOURCE_DSN", "postgresql://elsewhere/other")
    with served() as (port, _):
        write(file, f'listen = "127.0.0.1:{port}"')
        assert run(["probe", "-c", str(file)]) == 0

    assert capsys.readouterr().err == ""


def test_address_to_connect_to_is_that_of_this_machine() -> None:
    assert reachable("0.0.0.0:8087") == ("127.0.0.1", 8087)
    assert reachable("[::]:8087") == ("::1", 8087)
    assert reachable("db.example:80") == ("db.example", 80)
    assert reachable("") is None


def test_probe_loads_no_client_of_a_server(file: Path) -> None:
    write(file, 'listen = "127.0.0.1:1"')
    script = (
        f"import sys; from cdc.cli.main import run; assert run(['-c', {str(file)!r}, 'probe']) == 1; "
        "sys.exit(', '.join({'psycopg', 'confluent_kafka', 'starlette', 'structlog'} & set(sys.modules)) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stderr == "http://127.0.0.1:1/livez: Connection refused\n"
    assert done.returncode == 0
