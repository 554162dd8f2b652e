"""The audit beside capture stops or warns by name, never disturbs capture otherwise, and never ends silently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from cdc.audit.audit_follower import REMEMBER_S, AuditFollower, AuditSource
from cdc.audit.audit_report import AuditReport
from cdc.audit.auditor import AuditLimits, Auditor
from cdc.audit.horizon import CompactionHorizon
from cdc.audit.recomputed_counts import DamageKind
from cdc.config.settings import Audit
from cdc.errors import BrokerRefused, BrokerUnreachable, InvariantError, LogDamaged, TailraceError
from cdc.kafka.cluster_facts import TopicFacts
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.telemetry.audit_status import AuditStatus
from cdc.telemetry.metrics import Metrics
from tests.fixtures.capture.audit_log import Cleaned, LogWriter, do, harms
from tests.fixtures.servers.manual_clock import ManualClock

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000


class Scene:
    """A follower that audits a log in memory; each of `steps` is called before one read of the log."""

    def __init__(self, settings: Audit, steps: Sequence[Callable[[], object]] = ()) -> None:
        self.writer = LogWriter()
        self.writer.start()
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.status = AuditStatus(self.metrics)
        self.steps = list(steps)
        self.remembered: list[int] = []
        source = AuditSource(
            self._auditor, lambda one: one.begin(None), lambda one: self.remembered.append(one.cuts_offset)
        )
        self.following = AuditFollower("shop", settings, source, self.clock, self.status)

    def more(self) -> None:
        self.writer.write("shop.public.b", 0, 3)
        self.writer.commit()

    def damage(self) -> None:
        self.more()
        do(self.writer.log, harms(self.writer.log, DamageKind.LOST)[-1])
        self.more()

    def end(self) -> None:
        self.following._stop.set()

    def fail(self) -> None:
        raise BrokerUnreachable("no answer")

    @contextmanager
    def _auditor(self, limits: AuditLimits, report: AuditReport) -> Iterator[Auditor]:
        cleaned = Cleaned(self.writer.log)
        auditor = Auditor(cleaned, cleaned, "shop", self.clock, limits, report)
        step = auditor.step

        def scripted() -> bool:
            if self.steps:
                self.steps.pop(0)()
            return step()

        auditor.step = scripted  # type: ignore[method-assign]
        yield auditor


def scene(*names: str, **settings: Any) -> Scene:
    made = Scene(Audit(enabled=True, **settings))
    made.steps = [getattr(made, name) for name in names]
    made.following.run()
    return made


def test_finding_ends_capture_by_name_at_its_next_commit_and_not_before() -> None:
    found = scene("more", "damage").following

    assert found.due()
    assert not found.write(StreamPosition(Lsn(1)))
    with pytest.raises(LogDamaged) as stop:
        found.written()
    assert (stop.value.state, stop.value.exit_code) == ("DIVERGED", 3)
    assert stop.value.facts["topic"] == "shop.public.b"
    assert "cut 0/" in stop.value.message


def test_finding_is_reported_and_capture_continues_with_warn() -> None:
    warned = scene("damage", "more", "more", "end", on_finding="warn")
    document = warned.status.document

    assert not warned.following.due()
    warned.following.written()
    assert document is not None
    assert document["findings"] == 1
    assert document["last_finding"]["kind"] == "lost"
    assert warned.metrics.registry.get_sample_value("cdc_audit_findings_total", {"kind": "lost"}) == 1.0
    assert document["records"] == 11, "what came after the finding was compared, too"


def test_audit_that_cannot_run_is_reported_and_later_resumes() -> None:
    failed = scene("more", "fail", "fail", "more", "damage")

    assert failed.following.due()
    assert failed.metrics.registry.get_sample_value("cdc_audit_failures_total") == 2.0
    assert failed.status.document is not None
    assert failed.status.document["error"] == ""


def test_audit_that_ends_by_a_mistake_ends_capture() -> None:
    def mistake() -> None:
        raise ZeroDivisionError

    broken = Scene(Audit(enabled=True), [mistake])
    with pytest.raises(ZeroDivisionError):
        broken.following.run()

    with pytest.raises(InvariantError):
        broken.following.written()


def test_how_far_it_came_is_remembered_once_a_minute_and_only_when_it_moved() -> None:
    made = Scene(Audit(enabled=True, interval_s=REMEMBER_S))
    idle = int
    made.steps = [made.more, idle, made.more, idle, made.more, idle, idle, made.end]
    made.following.run()

    assert len(made.remembered) == 2
    assert made.remembered == sorted(set(made.remembered))


def test_reading_takes_as_long_as_the_limit_says() -> None:
    waited = []
    made = Scene(Audit(enabled=True, bytes_per_s_max=1), [])
    made.steps = [made.more, made.end]
    wait = made.clock.wait

    def noted(stop: threading.Event, seconds: float) -> bool:
        waited.append(seconds)
        return wait(stop, seconds)

    made.clock.wait = noted  # type: ignore[method-assign]
    made.following.run()

    assert sum(waited) >= 8.0, "three records of some bytes each, a byte in a second"


class Broker:
    """Settings of a topic, and an offset for each requested time."""

    def __init__(self, configs: Mapping[str, str] | TailraceError) -> None:
        self.configs = configs
        self.asked_ms = 0

    def describe(self, topics: object) -> Mapping[str, TopicFacts | None]:
        if isinstance(self.configs, TailraceError):
            raise self.configs
        return {"t": TopicFacts(topic="t", topic_id="i", partition_count=1, replication_factor=1, configs=self.configs)}

    def offsets_for_time(self, partitions: object, timestamp_ms: int) -> dict[tuple[str, int], int | None]:
        self.asked_ms = timestamp_ms
        return {("t", 0): 70}


@pytest.mark.parametrize(
    ("configs", "reaches"),
    [
        ({"cleanup.policy": "delete"}, 0),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": str(_DAY_MS)}, 70),
        ({"cleanup.policy": "compact,delete"}, 70),
        ({}, 100),
        (BrokerRefused("not allowed"), 100),
    ],
)
def test_compaction_reaches_as_far_as_the_topics_settings_let_it(
    configs: Mapping[str, str] | TailraceError, reaches: int
) -> None:
    broker, clock = Broker(configs), ManualClock()

    assert CompactionHorizon(broker, broker, clock).reaches(("t", 0), 100) == reaches


def test_clocks_that_differ_by_an_hour_make_no_finding_of_what_was_compacted_a_day_ago() -> None:
    broker, clock = Broker({"cleanup.policy": "compact", "min.compaction.lag.ms": str(_DAY_MS)}), ManualClock()

    CompactionHorizon(broker, broker, clock).reaches(("t", 0), 100)

    assert broker.asked_ms >= clock.wall_s() * 1000 - _DAY_MS + _HOUR_MS
