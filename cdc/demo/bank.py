"""Runs pgbench's TPC-B-like workload: a bank whose four sums must always be equal.

Each transaction changes an account, its teller and its branch by the same amount and records it in the history. So the
balances of accounts, tellers and branches, and the amounts of the history, have the same sum. Any lost, repeated or
partly captured transaction becomes visible. `pgbench_history` has no key.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg

from cdc.errors import LocalError

ACCOUNTS_PER_BRANCH: Final = 100_000  # as in pgbench
TELLERS_PER_BRANCH: Final = 10
CLIENTS: Final = 4
TOTALS: Final = {
    "public.pgbench_accounts": "abalance",
    "public.pgbench_tellers": "tbalance",
    "public.pgbench_branches": "bbalance",
    "public.pgbench_history": "delta",
}
"""Table -> the column whose sum must be equal."""

_CHUNK_ROWS: Final = 50_000
_STOP_S: Final = 10.0
_RATE: Final = re.compile(r"progress: [\d.]+ s, ([\d.]+) tps")
_DONE: Final = re.compile(r"number of transactions actually processed: (\d+)")


def create_tables(programs: Path, dsn: str) -> None:
    """Create empty tables with primary keys, with pgbench's own steps (drop, tables, primary keys)."""
    _run([str(programs / "pgbench"), "-i", "-I", "dtp", "-q", dsn])


def fill(session: psycopg.Connection, branches: int) -> Iterator[int]:
    """Insert branches, tellers and accounts like pgbench. Yields the number of rows of each transaction.

    pgbench itself uses COPY FREEZE after a TRUNCATE; this inserts, so that capture has rows to show.
    """
    yield session.execute(
        "insert into pgbench_branches (bid, bbalance) select b, 0 from generate_series(1, %s) b", (branches,)
    ).rowcount
    yield session.execute(
        "insert into pgbench_tellers (tid, bid, tbalance) select t, (t - 1) / %s + 1, 0 from generate_series(1, %s) t",
        (TELLERS_PER_BRANCH, branches * TELLERS_PER_BRANCH),
    ).rowcount
    last = branches * ACCOUNTS_PER_BRANCH
    for first in range(1, last + 1, _CHUNK_ROWS):
        yield session.execute(
            "insert into pgbench_accounts (aid, bid, abalance, filler) "
            "select a, (a - 1) / %s + 1, 0, '' from generate_series(%s::int, %s) a",
            (ACCOUNTS_PER_BRANCH, first, min(last, first + _CHUNK_ROWS - 1)),
        ).rowcount


class Bank:
    """A running pgbench. Read `rate` from any thread."""

    def __init__(self, programs: Path, dsn: str, seconds: int) -> None:
        argv = [str(programs / "pgbench"), "-n", "-c", str(CLIENTS), "-T", str(seconds), "-P", "1", dsn]
        self.rate = 0.0
        self.transaction_count = 0
        self._output: list[str] = []
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, name="pgbench", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether pgbench still runs."""
        return self._process.poll() is None

    def finish(self) -> None:
        """Wait for the end of pgbench. Raises LocalError if it failed."""
        code = self._process.wait()
        self._reader.join()
        self.rate = 0.0
        if code != 0:
            raise LocalError(f"pgbench ended with exit code {code}", hint="\n".join(self._output[-5:]))

    def stop(self) -> None:
        """Stop pgbench if it runs."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if rate := _RATE.match(line):
                    self.rate = float(rate[1])
                    continue
                if done := _DONE.match(line):
                    self.transaction_count = int(done[1])
                self._output = [*self._output[-20:], line.rstrip()]


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"{Path(argv[0]).name} ended with exit code {done.returncode}", hint=done.stderr.strip())
