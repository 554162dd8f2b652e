"""The process that runs several pipelines: when one is started again, and what the page and metrics say of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from cdc.clock import SystemClock
from cdc.model.sink_report import SinkReport
from cdc.run.supervisor import PIPELINE, Child, Supervisor
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.supervised_pipelines import PipelinesMetrics, merged, pipeline_document
from tests.fixtures.servers.waiting import until


class _Process:
    """A process that runs until the test ends it with a code."""

    def __init__(self, number: int) -> None:
        self.pid = number
        self.report: SinkReport | None = SinkReport(at_ms=int(time.time() * 1000), state="RUNNING", pid=number)
        self._end: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ends(self, code: int, state: str = "STOPPED") -> None:
        self.report = SinkReport(at_ms=0, state=state, ended=True, error={"message": "why", "command": "cdc why"})
        self._end.put(code)

    def wait(self) -> int:
        return self._end.get(timeout=60)

    def terminate(self) -> None:
        self.ends(0)

    def kill(self) -> None:
        self.ends(-9)


class _Host:
    def __init__(self, *names: str) -> None:
        self.processes: dict[str, list[_Process]] = {name: [] for name in names}
        self.supervisor = Supervisor(names, self._launch, SystemClock(), kind=PIPELINE)
        self._lock = threading.Lock()

    def _launch(self, name: str) -> Child:
        with self._lock:
            made = _Process(sum(map(len, self.processes.values())) + 1)
            self.processes[name].append(made)
        return made

    def state(self, name: str) -> str:
        return next(view.state for view in self.supervisor.views() if view.name == name)

    def started(self, name: str, count: int) -> _Process:
        until(lambda: len(self.processes[name]) == count, f"{name} is started {count} times")
        return self.processes[name][-1]


@contextmanager
def _running(*names: str) -> Iterator[_Host]:
    host = _Host(*names)
    with structlog.testing.capture_logs(), host.supervisor:
        yield host


def test_pipeline_that_failed_is_started_again_and_the_other_one_is_not_touched() -> None:
    with _running("crm", "shop") as host:
        host.started("crm", 1)
        host.started("shop", 1).ends(-9)

        host.started("shop", 2)

        assert len(host.processes["crm"]) == 1
        assert {view.name: view.restarts for view in host.supervisor.views()} == {"crm": 0, "shop": 1}
        assert host.supervisor.exit_codes() is None


@pytest.mark.parametrize(("code", "state"), [(3, "GAP"), (3, "FENCED"), (2, "MISCONFIGURED"), (0, "STOPPED")], ids=str)
def test_pipeline_that_a_start_does_not_help_stays_stopped_until_it_is_asked_for(code: int, state: str) -> None:
    with _running("crm", "shop") as host:
        other = host.started("crm", 1)
        host.started("shop", 1).ends(code, state)
        until(lambda: host.state("shop") == state, "it is stopped")
        until(lambda: host.supervisor.views()[1].pid is None, "its process is gone")

        with pytest.raises(TimeoutError):
            until(lambda: len(host.processes["shop"]) > 1, "it starts by itself", within_s=2)
        assert host.supervisor.exit_codes() is None, "the other one runs"
        host.supervisor.start_again()
        again = host.started("shop", 2)

        assert host.state("shop") == "RUNNING"
        assert host.processes["crm"] == [other]
        again.ends(code, state)
        with pytest.raises(TimeoutError):
            until(lambda: len(host.processes["shop"]) > 2, "one request starts it twice", within_s=2)


def test_start_again_that_was_asked_for_while_it_ran_does_not_start_it_later() -> None:
    with _running("shop") as host:
        process = host.started("shop", 1)
        host.supervisor.start_again()
        process.ends(3, "GAP")

        with pytest.raises(TimeoutError):
            until(lambda: len(host.processes["shop"]) > 1, "it starts by itself", within_s=2)


def test_exit_codes_are_known_once_no_pipeline_is_left() -> None:
    with _running("crm", "shop") as host:
        host.started("crm", 1).ends(0)
        host.started("shop", 1).ends(3, "DIVERGED")

        assert until(host.supervisor.exit_codes, "all have ended") == [0, 3]


def test_stop_ends_a_pipeline_that_waits_for_an_operator() -> None:
    with _running("shop") as host:
        host.started("shop", 1).ends(3, "GAP")
        until(lambda: host.state("shop") == "GAP", "it is stopped")

    assert len(host.processes["shop"]) == 1


def test_metrics_of_all_pipelines_are_one_valid_page() -> None:
    shop, crm, own = Metrics("shop"), Metrics("crm"), PipelinesMetrics()
    shop.starts.labels("SourceUnreachable").inc(2)
    crm.starts.labels("BrokerUnreachable").inc(3)
    with _running("crm", "shop") as host:
        host.started("crm", 1)
        host.started("shop", 1)
        own.update(host.supervisor.views(), ["crm"])
        page = merged(own.render(), {"crm": crm.render(), "shop": shop.render()}).decode()

    heads = [line for line in page.splitlines() if line.startswith("#")]
    assert len(heads) == len(set(heads)), "Prometheus refuses a second HELP or TYPE"
    families = list(text_string_to_metric_families(page))
    names = [family.name for family in families]
    samples = [sample for family in families for sample in family.samples]
    keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(names) == len(set(names))
    assert len(keys) == len(set(keys))
    starts = {
        (one.labels["pipeline"], one.labels["reason"]): one.value for one in samples if one.name == "cdc_starts_total"
    }
    assert starts == {("shop", "SourceUnreachable"): 2.0, ("crm", "BrokerUnreachable"): 3.0}
    memory = [one.labels for one in samples if one.name == "process_resident_memory_bytes"]
    assert memory == [{}, {"pipeline": "crm"}, {"pipeline": "shop"}]
    answers = {one.labels["pipeline"]: one.value for one in samples if one.name == "cdc_supervised_pipeline_answers"}
    assert answers == {"crm": 1.0, "shop": 0.0}
    single = {one.name for family in text_string_to_metric_families(shop.render().decode()) for one in family.samples}
    assert single <= {name for name, _ in keys}


def test_document_of_a_stopped_pipeline_has_its_error_and_exit_code() -> None:
    with _running("shop") as host:
        host.started("shop", 1).ends(3, "GAP")
        until(host.supervisor.exit_codes, "it has ended")
        (view,) = host.supervisor.views()

    document = pipeline_document(view)
    assert (document["state"], document["exit_code"], document["pid"]) == ("GAP", 3, None)
    assert document["error"] == {"message": "why", "command": "cdc why"}
