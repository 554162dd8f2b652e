"""`cdc status` and `cdc run` on real servers: daemon up or down, servers unreachable, states that need an operator."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers.commands import cdc, command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite

NOWHERE = "127.0.0.1:1"


def free_address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def status(config: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document."""
    ran = cdc("status", "-c", config, "--json")
    found: dict[str, Any] = json.loads(ran.out)
    return ran.code, found


def test_up_down_and_gap_are_seen_from_outside(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    http = {"http": {"listen": free_address()}}
    daemon = capture.daemon(http)
    config = capture.write_config(http)
    daemon.until_running()

    code, up = status(config)

    assert code == 0
    assert up["state"] in {"RUNNING", "CATCHING_UP"}
    assert up["unreachable"] == {}
    assert up["position"]
    assert up["kafka"]["end_lsn"]
    assert up["slot"]["active_pid"] is not None

    assert daemon.stop() == 0
    code, down = status(config)

    assert code == 0
    assert down["state"] == "DOWN"
    assert down["needs_operator"] is False
    assert down["position"] == down["kafka"]["end_lsn"]
    assert "daemon" in down["unreachable"]

    capture.sql(f"select pg_drop_replication_slot('{capture.slot}')")
    code, gap = status(config)

    assert code == 3
    assert gap["outlook"]["state"] == "GAP"
    assert cdc("run", "-c", config).code == 3
    assert "GAP: replication slot" in cdc("status", "-c", config).out


def test_sides_that_are_away_are_named_and_none_at_all_is_exit_code_1(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")  # without one a start would stop, and the exit code says so
    code, no_kafka = status(capture.write_config({"kafka": {"bootstrap": NOWHERE}}))
    assert code == 0
    assert no_kafka["unreachable"].keys() == {"daemon", "kafka"}
    assert no_kafka["source"]["server_version"]

    code, nothing = status(_away(capture))
    assert code == 1
    assert nothing["state"] == "UNKNOWN"
    assert nothing["unreachable"].keys() == {"daemon", "source", "kafka"}


def test_watching_prints_a_document_a_line_and_ends_at_ctrl_c(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    process = subprocess.Popen(
        command("status", "-c", capture.write_config(), "--watch", "--json"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        documents = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)

        assert process.wait(90) == 0
        assert [document["state"] for document in documents] == ["DOWN", "DOWN"]
        assert documents[0]["kafka"]["captured"] is False
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_run_logs_its_final_error_as_json_for_machines(capture: CaptureSite) -> None:
    ran = cdc("run", "-c", capture.write_config({"source": {"tables": ["nowhere.*"]}}))

    last = json.loads(ran.err.splitlines()[-1])
    assert ran.code == 3
    assert last["event"] == "capture_stopped"
    assert last["state"] == "MISCONFIGURED"
    assert "no table" in last["message"]
    assert last["hint"]


def test_run_prints_its_final_error_in_full_on_a_terminal(capture: CaptureSite) -> None:
    config = capture.write_config({"source": {"tables": ["nowhere.*"]}})
    terminal, inner = os.openpty()
    process = subprocess.Popen(command("run", "-c", config), stdin=subprocess.DEVNULL, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:
        pass  # how Linux says that nobody has the other end open any more
    finally:
        os.close(terminal)

    text = re.sub(rb"\x1b\[[0-9;]*m", b"", shown).decode()
    assert process.wait(90) == 3
    assert "http_listening" in text
    assert "capture_stopped" not in text
    assert re.search(r"^error: no table of .* matches", text, re.MULTILINE)
    assert re.search(r"^ hint: ", text, re.MULTILINE)
    assert re.search(r"^  try: cdc doctor", text, re.MULTILINE)


def test_run_with_a_broken_file_is_a_usage_error(tmp_path: Path) -> None:
    broken = tmp_path / "cdc.toml"
    broken.write_text('name = "x"\nnmae = "y"\n')

    ran = cdc("run", "-c", broken)

    assert ran.code == 2
    assert "nmae" in json.loads(ran.err.splitlines()[-1])["message"]


def _away(capture: CaptureSite) -> Path:
    path = capture.folder / "away.toml"
    path.write_text(
        f'name = "{capture.name}"\n[source]\ndsn = "postgresql://x@{NOWHERE}/x"\n[kafka]\nbootstrap = "{NOWHERE}"\n'
    )
    return path
