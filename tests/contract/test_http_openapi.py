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
from cdc.lsn import Lsn
from cdc.model.run_state import State
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.http_server import WebServer
from cdc.web.wait_endpoint import WaitRoute
from sinks.operate.lsn_wait import AppliedCut, SinkProbe
from tests.fixtures.servers.manual_clock import ManualClock

_EXAMPLES = 60
_TOKEN = "s3cret-token"


@contextmanager
def served() -> Iterator[WebServer]:
    metrics = Metrics("shop")
    probe = SinkProbe(lambda: AppliedCut(1, Lsn((1 << 64) - 1)), blocked_keys=lambda: [("public.t", '{"id":4711}')])
    waits = WaitRoute({"cache": probe, "search": probe}, SystemClock())
    status = Status("shop", ManualClock(), metrics)
    status.enter(State.RUNNING)
    made = WebServer("127.0.0.1:0", status, metrics, waits=waits, access=Access(_TOKEN))
    try:
        yield made
    finally:
        made.close()


def test_every_answer_is_one_that_the_document_describes() -> None:
    seen = set()
    with served() as made:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{made.port}/openapi.json")
        for found in schema.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            seen.add(operation.path)
            for mode in GenerationMode if operation.query else [GenerationMode.POSITIVE]:

                @hypothesis.settings(max_examples=_EXAMPLES, deadline=None, database=None, derandomize=True)
                @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: schemathesis.Case[Any]) -> None:
                    case.call_and_validate(base_url=f"http://127.0.0.1:{made.port}")

                ask()

    assert seen == {"/livez", "/readyz", "/metrics", "/status", "/sinks/{sink}/wait"}
