"""A lake whose writer is killed at any moment: every read is one cut, every cut is in it once (no Spark needed)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable

from cdc.errors import LakeDamaged
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.lake_cuts import ARCHIVE, HISTORY, MIRROR, VIEW, Bank, faults
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sinks.warehouse.lake.manifest import Manifest

KILLS: Final = int(os.environ.get("TAILRACE_KILLS", "20"))
ROOT: Final = Path(__file__).parents[2]
STEPS: Final = (
    *("replace pending.json", "append", "merge", "close_and_append", "overwrite"),
    *("replace <cut>.json", "replace current.json", "remove pending.json"),
)
"""Of a cut, in order."""
NOW_AND_THEN: Final = ("compact", "vacuum", "remove <cut>.json")


class Reader:
    """Reads through the manifest, and finds every cut exact or says what is wrong."""

    def __init__(self, lake: Path) -> None:
        self.store = ManifestStore(lake)
        self.tables = DeltaRs(str(lake))
        self.last_cut = 0
        self.reads = 0

    def reached(self, cut: int) -> bool:
        self.read()
        return self.last_cut >= cut

    def read(self) -> None:
        manifest = self.store.current()
        if manifest is None:
            assert self.last_cut == 0, "a published cut is gone"
            return
        assert manifest.cut >= self.last_cut, "the lake went back"
        try:
            found = self.check(manifest)
        except LakeDamaged:
            if manifest.cut in self.store.cuts():
                raise
            return  # it was so slow that the cut was pruned meanwhile
        assert found == {}, f"cut {manifest.cut} up to {manifest.end_lsn}"
        self.last_cut = manifest.cut
        self.reads += 1

    def check(self, manifest: Manifest) -> dict[str, object]:
        archive, mirror, history = (
            self.tables.read(table, manifest.tables[table].version) for table in (ARCHIVE, MIRROR, HISTORY)
        )
        view = self.tables.read(layout.view(VIEW), manifest.views[VIEW].version)
        assert [table.num_rows for table in (archive, mirror, history)] == [
            manifest.tables[table].rows for table in (ARCHIVE, MIRROR, HISTORY)
        ]
        bank = Bank()
        bank.advance(manifest.end_lsn)
        return faults(bank, archive, mirror, history, view)


@dataclass(slots=True)
class Writer:
    """A running `lake_writer`."""

    process: subprocess.Popen[str]

    def killed(self) -> None:
        """It works until kill -9."""
        self.process.kill()
        self.died()

    def died(self) -> None:
        """It is dead by kill -9; it may have ended in no other way."""
        _, complaint = self.process.communicate(timeout=60)
        assert self.process.returncode == -signal.SIGKILL, complaint[-2000:]


@contextmanager
def writing(lake: Path, die_before: str = "") -> Iterator[Writer]:
    arguments = [sys.executable, "-m", "tests.fixtures.lake.lake_writer", str(lake), die_before]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Writer(process)
        finally:
            process.kill()


def commits(lake: Path, table: str) -> Iterator[tuple[str, int]]:
    """(app, cut) of each commit that the log still has, oldest first."""
    for info in reversed(DeltaTable(str(lake / table)).history()):
        yield str(info["tailrace.app"]), int(info["tailrace.cut"])


def finish(lake: Path, reader: Reader) -> None:
    """Let a writer complete what was interrupted, and two cuts more; then look at each commit."""
    before = reader.last_cut
    with writing(lake) as writer:
        until(lambda: reader.reached(before + 3), "three cuts are published", every_s=0)
        writer.killed()
    reader.read()
    for cut in reader.store.cuts():
        assert reader.check(reader.store.at(cut)) == {}, f"cut {cut} is kept and is not what it was"
    assert_each_cut_once(lake, reader)


def assert_each_cut_once(lake: Path, reader: Reader) -> None:
    """Every table has every cut, as far back as its log is kept; one that was interrupted may be there as well."""
    for table in (ARCHIVE, MIRROR, HISTORY, layout.view(VIEW)):
        made = list(commits(lake, table))
        assert max(Counter(made).values()) == 1, f"{table} has a cut twice"
        cuts = [cut for app, cut in made if app != "tailrace.compact"]
        assert cuts == list(range(cuts[0], cuts[-1] + 1)), f"{table} misses a cut"
        assert cuts[-1] - reader.last_cut in (0, 1), f"{table} ends with another cut than the manifest"


def test_every_read_is_one_exact_cut_whenever_the_writer_is_killed(tmp_path: Path) -> None:
    reader, chance = Reader(tmp_path), random.Random(seed())
    begun: dict[int, int] = {}
    with writing(tmp_path) as writer:
        began_s = time.monotonic()
        until(lambda: reader.reached(1), "a cut is published", every_s=0)
        span_s = max(0.5, 2 * (time.monotonic() - began_s))  # a loaded machine makes fewer cuts in half a second
        writer.killed()

    for _ in range(KILLS):
        with writing(tmp_path) as writer:
            ends_s = time.monotonic() + chance.uniform(0, span_s)  # the moment is what the test is about
            while time.monotonic() < ends_s:
                reader.read()
            writer.killed()
        reader.read()
        for cut in set(begun) & set(reader.store.cuts()):
            assert reader.store.at(cut).end_lsn == begun.pop(cut), "made again with another range"
        pending = reader.store.pending()
        if pending is not None:
            assert begun.setdefault(pending.cut, pending.end_lsn) == pending.end_lsn, "begun again with another range"
    finish(tmp_path, reader)

    assert reader.reads > KILLS


def test_crash_before_any_step_is_made_good(tmp_path: Path) -> None:
    """The first round makes the tables, the second finds them."""
    reader = Reader(tmp_path)

    for step in (*STEPS, *NOW_AND_THEN, *STEPS):
        with writing(tmp_path, step) as writer:
            writer.died()
        reader.read()
    finish(tmp_path, reader)
