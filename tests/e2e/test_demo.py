"""The demo as a new user runs it, but shorter: it ends with a comparison, which can fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from cdc.artifacts.machine import Machine
from cdc.local.stack import Stack
from cdc.shop.rows import views_folder
from sinks.warehouse.read.lake_reader import Lake, read
from tests.fixtures.views.view_proof import ViewFound, asked, compared, queries

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
_DEMO_S: Final = 450.0  # with the lake it is two minutes beside other tests, most of it Spark warming up
_ROWS_MAX: Final = 100_000
SHORT: Final = ("--seconds", "6", "--branches", "1", "--capture-only")
WITH_LAKE: Final = ("--seconds", "8", "--branches", "1")


@contextmanager
def stack_name() -> Iterator[str]:
    """Yield a name for the demo's servers; end what a failed test leaves running."""
    name = f"test-{os.getpid()}-demo{uuid.uuid4().hex[:6]}"
    try:
        yield name
    finally:
        demo("--end", "--stack", name)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=_DEMO_S, check=False)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cdc.demo", *arguments]


def compared_views(stack: str) -> list[ViewFound]:
    """Compare every view of a kept demo with the same query in PostgreSQL, to which nothing writes any more."""
    lake = Lake(Machine.here().cache / "demo" / stack / "lake")
    manifest = lake.manifest()
    found = []
    with psycopg.connect(Stack(stack).postgres.dsn) as session:
        for name, query in queries(views_folder()).items():
            table, state = lake.view(name, manifest)
            rows = read(lake, table, state.version, limit=_ROWS_MAX).to_pylist()
            found.append(compared(name, rows, asked(session, query)))
    return found


def nothing_left(stack: str) -> bool:
    machine = Machine.here()
    return not (machine.stacks / stack).exists() and not (machine.cache / "demo" / stack).exists()


def test_demo_proves_exactly_once_over_a_kill_and_leaves_nothing_behind() -> None:
    with stack_name() as stack:
        done = demo(*SHORT, "--stack", stack)

        assert done.returncode == 0, done.stdout + done.stderr
        for said in ("kill -9", "has caught up", "public.pgbench_history *", "shop.order_lines", "Exactly once"):
            assert said in done.stdout
        assert "\x1b" not in done.stdout
        assert nothing_left(stack)


@pytest.mark.timeout(500)
def test_demo_shows_a_view_by_spark_that_equals_the_query() -> None:
    with stack_name() as stack:
        done = demo(*WITH_LAKE, "--stack", stack, "--keep")

        assert done.returncode == 0, done.stdout + done.stderr
        shown = " ".join(done.stdout.split())
        for said in (
            "cdc sink run lake",
            "daily_revenue at",
            "cdc verify answers",
            "Exactly once",
            "answer at one LSN",
            "key by key",
        ):
            assert said in shown
        assert "your own writes" in shown
        views = compared_views(stack)
        assert [(view.name, view.differ) for view in views if view.differ or not view.rows] == []
        assert len(views) == 4
        assert demo("--end", "--stack", stack).returncode == 0
        assert nothing_left(stack)


def test_demo_fails_when_one_row_was_changed_behind_captures_back() -> None:
    with stack_name() as stack:
        done = demo(*SHORT, "--stack", stack, "--tamper")

        assert done.returncode == 1, done.stdout + done.stderr
        assert 'public.pgbench_accounts: different {"aid":4711}' in done.stdout
        assert "The sums of the bank differ" in done.stdout
        assert not (Machine.here().stacks / stack).exists()  # its log is kept, its servers are not


def test_an_interrupted_demo_stops_its_servers() -> None:
    with stack_name() as stack:
        running = subprocess.Popen(command(*SHORT, "--stack", stack), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        with running.stdout as lines:
            reached = any("✓ Capture" in line for line in lines)
            running.send_signal(signal.SIGINT)
            rest = lines.read()

        assert reached
        assert running.wait(60) == 130
        assert "interrupted" in rest
        assert not (Machine.here().stacks / stack).exists()


def test_a_stack_of_another_user_is_not_touched() -> None:
    with stack_name() as stack:
        theirs = Stack(stack)
        theirs.machine.folder(theirs.home / "postgres")
        try:
            done = demo(*SHORT, "--stack", stack)

            assert done.returncode == 1
            assert "does not belong to a demo" in done.stdout
            assert theirs.home.exists()
        finally:
            theirs.down(wipe=True)
