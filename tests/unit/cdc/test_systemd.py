"""The units of docker/systemd: systemd accepts them, and they restart what can recover."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from cdc.cli.probe_command import Probing, probing_of
from cdc.errors import EXIT_FAILED, EXIT_OPERATOR, EXIT_USAGE
from cdc.run.app import SINK_STOP_DEADLINE_S, STOP_DEADLINE_S
from tests.tidy.tree import ROOT

FOLDER: Final = ROOT / "docker" / "systemd"
CAPTURE: Final = "tailrace.service"
SINK: Final = "tailrace-sink@.service"
PROGRAM: Final = "/opt/tailrace/bin/cdc"
EXPOSURE_MAX: Final = 20  # tenths, of systemd's own scale from 0 to 10


def values(unit: str) -> dict[str, str]:
    """Return the last value of each directive."""
    text = (FOLDER / unit).read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("unit", "deadline_s", "probing"),
    [
        (CAPTURE, STOP_DEADLINE_S, Probing(None, Path("/etc/tailrace/cdc.toml"))),
        (SINK, SINK_STOP_DEADLINE_S, Probing("%i", Path("/etc/tailrace/cdc.toml"))),
    ],
)
def test_unit_restarts_what_can_recover_and_gives_it_time_to_stop(
    unit: str, deadline_s: float, probing: Probing
) -> None:
    said = values(unit)
    program, *arguments = shlex.split(said["ExecStart"])

    assert (program, probing_of(arguments)) == (PROGRAM, probing)
    assert said["Restart"] == "on-failure"
    assert {int(code) for code in said["RestartPreventExitStatus"].split()} == {EXIT_USAGE, EXIT_OPERATOR} - {
        EXIT_FAILED
    }
    assert int(said["TimeoutStopSec"].removesuffix("s")) > deadline_s
    assert said["DynamicUser"] == "yes"
    assert said["ProtectSystem"] == "strict"


def test_password_reaches_capture_as_a_file_of_its_own() -> None:
    said = values(CAPTURE)
    credential = said["LoadCredential"].partition(":")[0]

    assert f"TAILRACE_SOURCE_PASSWORD_FILE=%d/{credential}" in said["Environment"].split()
    assert "PASSWORD" not in values(SINK)["Environment"]


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units with a program that exists; the sink as an instance."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    found = []
    for name, instance in ((CAPTURE, CAPTURE), (SINK, SINK.replace("@", "@find"))):
        text = (FOLDER / name).read_text(encoding="utf-8").replace(PROGRAM, "/bin/true")
        found.append(tmp_path / instance)
        found[-1].write_text(text, encoding="utf-8")
    return found


def test_systemd_accepts_the_units_without_a_remark(units: list[Path]) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_finds_little_that_the_units_expose(units: list[Path]) -> None:
    for unit in units:
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-300:]
