"""Makes commits of a local Delta table survive a power failure: deltalake writes files without fsync."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sinks.warehouse.lake.local_disk import sync

_LOG: Final = "_delta_log"


def settle(lake: Path, table: str, versions: range) -> None:
    """Fsync the files of these versions, then their log entries, then the folders up to the lake's.

    A version without a log entry was replaced by a checkpoint, and was settled when it was new.
    """
    folder = lake / table
    log = folder / _LOG
    folders = {folder, log}
    entries = [entry for entry in (log / f"{version:020}.json" for version in versions) if entry.exists()]
    for entry in entries:
        for name in _added(entry):
            file = folder / name
            sync(file)
            folders.add(file.parent)
    for entry in entries:
        sync(entry)
    for version in versions:
        for checkpoint in (*log.glob(f"{version:020}.checkpoint*"), log / "_last_checkpoint"):
            if checkpoint.exists():
                sync(checkpoint)
    above = folder
    while above != lake.parent:
        folders.add(above)
        above = above.parent
    for path in sorted(folders, key=lambda path: -len(path.parts)):
        sync(path)


def _added(entry: Path) -> list[str]:
    actions = [json.loads(line) for line in entry.read_bytes().splitlines() if line.strip()]
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]
