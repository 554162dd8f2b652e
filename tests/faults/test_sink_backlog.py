"""A sink that was down while events accumulated (fault D7); `make sink-backlog` has ten million of them."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.file_target import FileTarget
from tests.fixtures.sinks.sink_rig import SinkRig
from tests.fixtures.sinks.sink_worker import worker_processes

if TYPE_CHECKING:
    from sinks.contract import TopicPartition
    from tests.fixtures.servers.running_servers import KafkaServer

EVENTS: Final = int(os.environ.get("TAILRACE_BACKLOG", "200000"))
KEYS: Final = 50_000
RSS_MB_MAX: Final = 300
_CHUNK: Final = 20_000


def test_backlog_is_drained_in_bounded_memory_with_offsets_that_only_grow(
    kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    rig = SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t")
    for begin in range(0, EVENTS, _CHUNK):
        rig.fill(min(_CHUNK, EVENTS - begin), keys=KEYS, begin=begin)
    store, ends = FileTarget(tmp_path), rig.ends()
    samples: list[dict[TopicPartition, int]] = []

    def drained() -> bool:
        samples.append(rig.committed())
        return all(samples[-1].get(place, 0) >= end for place, end in ends.items())

    with worker_processes(rig, tmp_path, 1) as (worker,):
        began_s = time.monotonic()
        until(drained, "the backlog is drained", within_s=60 + EVENTS / 2000, every_s=0.1)
        took_s = time.monotonic() - began_s
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        assert worker.end() == 0
    rss_mb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) >> 10
    print(f"drained {EVENTS} events in {took_s:.1f} s, {EVENTS / took_s:.0f} a second, at most {rss_mb} MB resident")

    assert rss_mb <= RSS_MB_MAX
    assert store.rows() == {key: json.dumps(row, separators=(",", ":")).encode() for key, row in rig.rows.items()}
    assert all(
        later.get(place, 0) >= offset
        for earlier, later in itertools.pairwise(samples)
        for place, offset in earlier.items()
    )
