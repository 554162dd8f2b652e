"""`cdc` with a clock at each step of a commit: `python -m tests.bench.probed_daemon OUT run -c FILE`.

At its end it writes one line of JSON per Kafka transaction into OUT: the wall-clock second of each step, and for each
source transaction in it when it was committed, sent by the walsender and read. `tests.bench.budget` adds them up.
"""

from __future__ import annotations

import atexit
import json
import runpy
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cdc.publish import publisher
from cdc.replication.stream import ReplicationSession

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cdc.model.progress_record import Cut

_EPOCH_S: Final = 946_684_800  # PostgreSQL counts microseconds from 2000 on
_TIME: Final = struct.Struct(">q").unpack_from
_SENT_AT: Final = 17  # in XLogData
_COMMITTED_AT: Final = 43  # in a Commit message behind its header


class _Probe:
    """One Kafka transaction; a producer that notes when its calls have returned."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self._producer: publisher.Producer | None = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._producer, name)

        def timed(*arguments: Any) -> None:
            self.facts.setdefault(f"{name} began", time.time())
            call(*arguments)
            self.facts["cut" if name == "flush" and "flush" in self.facts else name] = time.time()

        return timed

    def of(self, producer: publisher.Producer) -> _Probe:
        """Stand before `producer`."""
        self._producer = producer
        return self


def main(out: Path) -> None:
    """Patch the steps; then go on as `cdc`."""
    done: list[dict[str, Any]] = []
    delivering: deque[_Probe] = deque()
    committing: deque[_Probe] = deque()
    seen: list[tuple[int, float, float]] = []
    read, begin, submit = ReplicationSession.read, publisher.KafkaPublisher._begin, publisher.KafkaPublisher.submit
    deliver, commit = publisher.KafkaPublisher._deliver, publisher.KafkaPublisher._commit
    began: list[float] = []

    def noted_read(self: ReplicationSession, wait_s: float) -> list[bytes]:
        frames = read(self, wait_s)
        now = time.time()
        for frame in frames:
            if frame[25:26] == b"C":
                sent, committed = (_TIME(frame, at)[0] + _EPOCH_S * 1_000_000 for at in (_SENT_AT, _COMMITTED_AT))
                seen.append((committed, sent / 1e6, now))
        return frames

    def noted_begin(self: publisher.KafkaPublisher) -> None:
        if not self.is_open:
            began[:] = [time.time()]
        begin(self)

    def noted_submit(self: publisher.KafkaPublisher, *arguments: Any) -> None:
        probe = _Probe()
        probe.facts = {"commits": seen.copy(), "begin": began[0] if began else time.time(), "submit": time.time()}
        seen.clear()
        delivering.append(probe)
        submit(self, *arguments)

    def noted_deliver(self: publisher.KafkaPublisher, producer: Any, *arguments: Any) -> Cut:
        probe = delivering.popleft()
        committing.append(probe)
        return deliver(self, probe.of(producer), *arguments)

    def noted_commit(self: publisher.KafkaPublisher, producer: Any, delivered: Future[Cut], before: Any) -> None:
        if before is not None:
            before.result()
        delivered.result()
        probe = committing.popleft()
        commit(self, probe.of(producer), delivered, before)
        done.append(probe.facts)

    ReplicationSession.read = noted_read  # type: ignore[method-assign]
    publisher.KafkaPublisher._begin = noted_begin  # type: ignore[method-assign]
    publisher.KafkaPublisher.submit = noted_submit  # type: ignore[method-assign, assignment]
    publisher.KafkaPublisher._deliver = noted_deliver  # type: ignore[method-assign, assignment]
    publisher.KafkaPublisher._commit = noted_commit  # type: ignore[method-assign]
    atexit.register(lambda: out.write_text("".join(json.dumps(one) + "\n" for one in done), encoding="utf-8"))
    sys.argv[0] = "cdc"
    runpy.run_module("cdc", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
