"""`cdc snapshot` on real servers, with and without a daemon, as text and as JSON."""

from __future__ import annotations

import json
import signal as os_signal
import subprocess
from typing import TYPE_CHECKING, Any

from tests.fixtures.capture.signal_records import read_again, until_record
from tests.fixtures.capture.snapshot_waits import SMALL_CHUNKS, complete, differences
from tests.fixtures.servers.commands import cdc, command
from tests.integration.test_cli_status import free_address

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections

ROWS = 300


def _started(capture: CaptureSite, **snapshot: object) -> tuple[Daemon, Path]:
    """A capture whose table is complete, and a configuration that finds its daemon."""
    capture.sql(
        "create table t (id int primary key, pad text not null)",
        f"insert into t select n, repeat('x', 700) from generate_series(1, {ROWS}) n",
    )
    sections: Sections = {
        "snapshot": {**SMALL_CHUNKS["snapshot"], **snapshot},
        "http": {"listen": free_address()},
    }
    daemon = capture.running(sections)
    config = capture.write_config(sections)
    if not snapshot:
        complete(capture, daemon, "public.t")
    return daemon, config


def _json(*arguments: object) -> tuple[int, dict[str, Any]]:
    ran = cdc("snapshot", *arguments, "--json")
    found: dict[str, Any] = json.loads(ran.out or ran.err[ran.err.index("{") :])  # what it waits for may come before
    return ran.code, found


def test_start_waits_until_the_rows_are_read(capture: CaptureSite) -> None:
    _, config = _started(capture)

    ran = cdc("snapshot", "start", "public.*", "--where", "id <= 20", "-c", config)
    mistyped = cdc("snapshot", "start", "t", "-c", config)
    code, found = _json("start", "public.t", "-c", config)

    assert ran.code == 0, ran
    assert ran.out.startswith("✓ public.t: 20 rows, ")
    assert "public.t: started" in ran.err
    assert (mistyped.code, "t: no captured table matches; did you mean public.t?" in mistyped.err) == (1, True), (
        mistyped
    )
    assert code == 0
    assert found["answer"]["done"] == ["public.t"]
    assert [(one["state"], one["rows"], one["number"]) for one in found["snapshots"]] == [("complete", ROWS, 3)]
    assert not differences(capture, capture.log(), "t").any


def test_keys_come_from_a_file(capture: CaptureSite, tmp_path: Path) -> None:
    _, config = _started(capture)
    keys = tmp_path / "keys"
    keys.write_text('{"id":3}\n\n{ "id": 299 }\n{"id":3}\n')

    code, found = _json("start", "public.t", "--keys", keys, "-c", config)

    assert code == 0, found
    assert found["snapshots"][0]["rows"] == 2
    assert len(read_again(capture.log(), capture.topic("t"))) == ROWS + 2


def test_pause_resume_stop_and_status_over_a_whole_snapshot(capture: CaptureSite) -> None:
    daemon, config = _started(capture, rows_per_s_max=2)

    assert cdc("snapshot", "pause", "-c", config).out == "✓ public.t: paused\n"
    shown = cdc("snapshot", "status", "-c", config)
    assert shown.code == 0
    assert "paused" in shown.out
    again = cdc("snapshot", "pause", "public.t", "-c", config)
    assert (again.code, again.out) == (1, "")
    assert "already paused" in again.err
    assert cdc("snapshot", "resume", "public.*", "-c", config).code == 0
    _, found = _json("status", "-c", config)
    assert found["snapshots"][0]["state"] == "reading"
    assert found["snapshots"][0]["blocks"] > 0
    assert [one["action"] for one in found["signals"]] == ["pause", "pause", "resume"]

    assert cdc("snapshot", "stop", "-c", config).out == "✓ public.t: stopped\n"
    daemon.kill()
    stopped = cdc("snapshot", "status", "-c", config)

    assert stopped.code == 0
    assert "stopped" in stopped.out
    assert "cdc snapshot start public.t" in stopped.err
    assert "no daemon answers" in stopped.err
    assert "stopped" in cdc("snapshot", "list", "-c", config).out


def test_what_is_asked_while_the_daemon_is_down_is_done_later(capture: CaptureSite) -> None:
    daemon, config = _started(capture)
    daemon.stop()

    ran = cdc("snapshot", "start", "public.t", "--no-wait", "-c", config)
    assert (ran.code, _json("list", "-c", config)[1]["snapshots"][0]["number"]) == (0, 1)
    code, found = _json("start", "public.t", "--where", "id = 1", "-c", config)
    assert (code, found["error"]["class"]) == (1, "CutNotReached")

    capture.running({"snapshot": SMALL_CHUNKS["snapshot"]})
    log = until_record(capture, "public.t", number=2, state="complete")
    assert len(read_again(log, capture.topic("t"))) in {2 * ROWS, 2 * ROWS + 1}, "the second may be refused"


def test_what_makes_no_sense_is_refused_before_anything_is_written(capture: CaptureSite, tmp_path: Path) -> None:
    config = capture.write_config()
    keys = tmp_path / "keys"
    keys.write_text('{"id":1}\n7\n')

    assert cdc("snapshot", "start", "-c", config).code == 2
    bad = cdc("snapshot", "start", "public.t", "--where", "id = 1; drop table t", "-c", config)
    assert (bad.code, "character 7" in bad.err) == (2, True)
    bad = cdc("snapshot", "start", "public.t", "--keys", keys, "-c", config)
    assert (bad.code, "line 2" in bad.err) == (2, True)
    assert cdc("snapshot", "start", "public.t", "--keys", tmp_path / "none", "-c", config).code == 2
    never = cdc("snapshot", "start", "public.t", "-c", config)
    assert (never.code, "has never run" in never.err, "cdc run" in never.err) == (3, True, True)
    assert cdc("snapshot", "status", "-c", config).code == 3


def test_ctrl_c_ends_the_waiting_and_not_the_snapshot(capture: CaptureSite) -> None:
    daemon, config = _started(capture, rows_per_s_max=40)
    complete(capture, daemon, "public.t")

    process = subprocess.Popen(
        command("snapshot", "start", "public.t", "-c", config), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until_record(capture, "public.t", number=2, state="running", begun=False)
    process.send_signal(os_signal.SIGINT)
    _, err = process.communicate(timeout=60)
    log = until_record(capture, "public.t", number=2, state="complete")

    assert process.returncode == 1
    assert b"interrupted" in err or b"the snapshot continues" in err
    assert not differences(capture, log, "t").any
