"""Environment and fixtures of the external readers. `make readers` creates it and runs all of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from tests.fixtures.sinks.reader_workload import COLUMNS, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.sinks.reader_workload import Texts

_HERE: Final = Path(__file__).parent
_READ_S: Final = 300.0


class Read(NamedTuple):
    """How a reader ended: exit code, the rows it printed, and what it said."""

    code: int
    rows: list[Texts]
    said: str


@pytest.fixture(scope="session")
def run_reader() -> Callable[..., Read]:
    """Runs a program of this folder with the Python of the readers' environment."""
    python = os.environ.get("TAILRACE_READERS", "")
    if not python:
        pytest.skip("outside readers run with `make readers`, which makes their environment")

    def run(program: str, *arguments: object) -> Read:
        done = subprocess.run(
            [python, str(_HERE / program), *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_READ_S,
            check=False,
        )
        lines = done.stdout.split("\n") if done.returncode == 0 else []
        rows = in_order(dict(zip(COLUMNS, json.loads(line), strict=True)) for line in lines if line)
        return Read(done.returncode, rows, done.stdout + done.stderr)

    return run


@pytest.fixture(scope="session")
def flink_connector() -> Path:
    """The jar with which Flink reads Kafka."""
    lock = _HERE / "flink.lock"
    (jar,) = fetch(
        parse_lock(lock.read_text(), name=lock.name),
        machine=Machine.here(),
        progress=NoProgress(),
        label="Flink for Kafka",
    )
    return jar


@pytest.fixture(scope="session")
def kcat() -> str:
    """The program."""
    found = shutil.which("kcat")
    if found is None:
        if os.environ.get("TAILRACE_READERS"):
            pytest.fail("kcat is not installed; it is Debian's package kcat", pytrace=False)
        pytest.skip("kcat is not installed")
    return found
