"""The HTTP endpoints keep their OpenAPI document: schemathesis sends what it allows, and what it forbids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from cdc.clock import SystemClock
from cdc.config.load import parse
from cdc.control.action_log import Newest
from cdc.control.action_record import ActionRecord, Actor
from cdc.control.perform import Outcome
from cdc.control.requests import ActionRequest, action_of
from cdc.errors import BrokerRefused, UsageError
from cdc.lsn import Lsn
from cdc.model.run_state import State
from cdc.overview.desk import Desk
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.actions_endpoint import ActionsRoute
from cdc.web.http_server import WebServer
from cdc.web.wait_endpoint import WaitRoute
from sinks.operate.lsn_wait import AppliedCut, SinkProbe
from tests.fixtures.servers.manual_clock import ManualClock

_EXAMPLES = 60
_OF_PAGE = 15
_TOKEN = "s3cret-token"
_RECORD = ActionRecord(
    at="2026-11-28T08:00:00.000+00:00",
    who="ann",
    origin="db7 pid 41",
    via="cli",
    action="sink.pause",
    arguments={"sink": "search"},
    result="done",
)


_CONFIG = parse(
    'name = "shop"\n[source]\ndsn = "postgresql://cdc@db.invalid/shop"\n[kafka]\nbootstrap = "kafka.invalid:9"', {}
)
_PAGE = {"picture", "history", "tables", "table", "topics", "sinks", "lakes", "lineage", "dead-letters", "events"} | {
    "key", "findings", "alarms", "why", "config",
}  # fmt: skip


class _Desk(Desk):
    """Kafka refuses everything: what reads it answers at once."""

    def tables(self, search: str, state: str, offset: int, limit: int) -> dict[str, Any]:
        raise BrokerRefused(f"no right to read {search}, {state}, {offset}, {limit}")

    def table(self, name: str) -> dict[str, Any]:
        raise BrokerRefused(f"no right to read {name}")

    def topics(self, search: str, offset: int, limit: int) -> dict[str, Any]:
        raise BrokerRefused(f"no right to read {search}, {offset}, {limit}", hint="start it")

    def events(self, tables: str, ops: str, key: str, cursor: str, limit: int, *, authorised: bool) -> dict[str, Any]:
        raise BrokerRefused(f"no right to read {tables}, {ops}, {key}, {cursor}, {limit}, {authorised}")

    def key(self, table: str, key: str) -> dict[str, Any]:
        return {"table": table, "events": [key]}

    def why(self) -> dict[str, Any]:
        return {"healthy": True, "causes": []}

    def findings(self) -> dict[str, Any]:
        raise BrokerRefused("no right", hint="grant it")


@contextmanager
def served() -> Iterator[WebServer]:
    metrics = Metrics("shop")
    probe = SinkProbe(lambda: AppliedCut(1, Lsn((1 << 64) - 1)), blocked_keys=lambda: [("public.t", '{"id":4711}')])
    waits = WaitRoute({"cache": probe, "search": probe}, SystemClock())
    status = Status("shop", ManualClock(), metrics)
    status.enter(State.RUNNING)
    actions = ActionsRoute(_perform, lambda _: Newest((_RECORD,)))
    desk = _Desk(_CONFIG, status, SystemClock(), left_out=list, settings=list, file=None)
    made = WebServer("127.0.0.1:0", status, metrics, waits=waits, actions=actions, desk=desk, access=Access(_TOKEN))
    try:
        yield made
    finally:
        made.close()


def _perform(request: ActionRequest, actor: Actor) -> Outcome:
    """Refuse every other name of a sink."""
    assert actor.via == "http"
    if len(getattr(request, "sink", "")) % 2:
        return Outcome(action_of(request), "refused", error=UsageError("unknown", hint="try"), warning="not recorded")
    return Outcome(action_of(request), "done", {"workers": 1})


def test_every_answer_is_one_that_the_document_describes() -> None:
    seen = set()
    with served() as made:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{made.port}/openapi.json")
        schema.config.update(headers={"Authorization": f"Bearer {_TOKEN}"})
        checks = schema.config.checks
        for check in (checks.negative_data_rejection, checks.positive_data_acceptance):
            check.expected_statuses = [*check.expected_statuses, "413"]  # a longer body is not read, valid or not
        for found in schema.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            seen.add(operation.path)
            for mode in GenerationMode if operation.query or operation.body else [GenerationMode.POSITIVE]:
                examples = _OF_PAGE if operation.path.startswith("/api/") else _EXAMPLES

                @hypothesis.settings(max_examples=examples, deadline=None, database=None, derandomize=True)
                @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: schemathesis.Case[Any]) -> None:
                    case.call_and_validate(base_url=f"http://127.0.0.1:{made.port}")

                ask()

    assert seen == {"/livez", "/readyz", "/metrics", "/status", "/sinks/{sink}/wait", "/actions"} | {
        f"/api/{one}" for one in _PAGE
    }
