"""Capture trusts no local file except its configuration: damaged files have no effect (E6).

All state is in Kafka. What a TRUNCATE or a repair works through is kept in a file without a name, which ends with the
process. So there is nothing to be damaged, and another machine can go on.
"""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Daemon

KEYS: Final = 3000
# What somebody who keeps state in files might call them, and what SQLite calls a spool.
NAMES: Final = (
    "state",
    "state.json",
    "progress",
    "offsets.dat",
    "cdc.db",
    "spool.sqlite",
    "etilqs_0",
    ".cdc/slot",
    "x",
)


def test_garbage_in_every_folder_changes_nothing_and_nothing_is_left_behind(
    capture: CaptureSite, tmp_path: Path
) -> None:
    chance = random.Random(seed())
    folders = {
        name: tmp_path / name for name in ("TMPDIR", "SQLITE_TMPDIR", "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
    }
    environ = {name: str(folder) for name, folder in folders.items()} | {"PYTHONDONTWRITEBYTECODE": "1"}
    capture.sql("create table t (id int primary key, v text)")
    written: set[str] = set()

    for turn in range(2):
        litter(list(folders.values()), chance)
        before = contents(tmp_path, folders)
        daemon = capture.daemon(environ=environ).until_running(60)
        daemon.until_position(capture.sql(f"insert into t select n, 'v' from generate_series(1, {KEYS}) n"))
        capture.sql("truncate t")
        # The spool is there while the topic is read; then it dies with it, at a random moment of that.
        until(lambda: files_written(daemon) - written or truncated(daemon), "keys are spooled", every_s=0.001)  # noqa: B023
        written |= files_written(daemon)
        daemon.kill()
        assert contents(tmp_path, folders) == before, f"turn {turn}"
    litter(list(folders.values()), chance)
    daemon = capture.daemon(environ=environ).until_running(60)
    capture.sql("insert into t values (7, 'after')")
    log = capture.settled(daemon)

    assert {path for path in written if not path.endswith(" (deleted)")} == set()
    assert [row["v"] for row in log.fold(capture.topic("t")).values()] == ["after"]
    assert log.faults() == []


def litter(folders: list[Path], chance: random.Random) -> None:
    """Fill folders with files of random bytes."""
    for folder in folders:
        for name in NAMES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(chance.randrange(2000)))


def contents(root: Path, folders: dict[str, Path]) -> dict[str, bytes]:
    """Every file of the folders."""
    found = [path for folder in folders.values() for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def files_written(daemon: Daemon) -> set[str]:
    """Regular files that it has open for writing, by name; not its log, which is its standard output."""
    found = set()
    for descriptor in Path(f"/proc/{daemon.pid}/fd").iterdir():
        try:
            flags = Path(f"/proc/{daemon.pid}/fdinfo/{descriptor.name}").read_text().split("flags:")[1].split()[0]
            name, mode = str(descriptor.readlink()), descriptor.stat().st_mode
        except OSError:
            continue  # closed meanwhile
        if stat.S_ISREG(mode) and not name.endswith(".log") and int(flags, 8) & (os.O_WRONLY | os.O_RDWR):
            found.add(name)
    return found


def truncated(daemon: Daemon) -> bool:
    return bool(daemon.events("truncated"))
