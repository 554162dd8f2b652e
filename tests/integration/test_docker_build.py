"""The build of the Dockerfile, replayed: the copied files suffice for a wheel, and the wheel runs the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fixtures.servers.image_build import ROOT
from tests.unit.cdc.test_docker import copied


def test_wheel_built_from_what_is_copied_runs_the_command(tmp_path: Path) -> None:
    source, wheels, site = tmp_path / "src", tmp_path / "wheels", tmp_path / "site"
    for name in copied():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--target", site, wheel], check=True)
    ran = subprocess.run(
        [sys.executable, "-m", "cdc", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith("cdc, version")
    assert (site / "outbox" / "_migrations").is_dir()
    assert (site / "cdc" / "web" / "_docs" / "howto" / "alerts.md").is_file()
