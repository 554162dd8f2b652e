"""Downloads the pinned jars of Spark's Kafka source into the cache.

    python -m sinks.warehouse.spark.jars

An image runs this when it is built, so that a lake starts with a read-only root and without a Maven repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.lock_file import Artifact

_LOCK_FILE: Final = "spark.lock"


def artifacts() -> Sequence[Artifact]:
    """Return the jars that the lock file names."""
    return parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)


def fetch_jars(machine: Machine, progress: Progress) -> list[Path]:
    """Return the files of the jars; download those that the cache lacks. Raises LocalError."""
    return fetch(artifacts(), machine=machine, progress=progress, label="Spark's Kafka source")


if __name__ == "__main__":
    sys.stdout.writelines(f"{file}\n" for file in fetch_jars(Machine.here(), NoProgress()))
