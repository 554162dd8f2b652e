"""The notifier against a real HTTP server: signed, repeated a bounded number of times, never redirected."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import structlog

from cdc.clock import SystemClock
from cdc.config.notify_settings import Notify
from cdc.config.secret import Secret
from cdc.notify.notifier import Notifier, Receiver
from cdc.notify.post import NotDelivered, post
from cdc.notify.trouble_set import Message
from cdc.overview.attention import Attention
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.notify_status import NotifyStatus
from tests.fixtures.faults.secured import certificates, free_ports
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.http_receiver import receiving
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until

_BROKER = Attention("warn", "capture", "Kafka at k:9092 does not answer", "check the broker", "cdc doctor")
_VIEWS = Attention("warn", "views of lake", "v is behind", "", "cdc views list")
_LOST = Attention("bad", "capture", "the slot is lost", "", "cdc slot recreate")
_KEY = b"0123456789abcdef01234567"
_SECRET = Secret("whsec_" + base64.b64encode(_KEY).decode())


class _Run:
    """A notifier whose clock moves by itself, until `until_s`."""

    def __init__(
        self, until_s: float, receivers: dict[str, Notify], at: Callable[[float], Sequence[Attention]]
    ) -> None:
        self.clock, self.metrics, self._done = ManualClock(0.0), Metrics("shop"), threading.Event()
        self._ends = threading.Event()
        self._until_s, self._at = until_s, at
        status = NotifyStatus(self.metrics)
        with structlog.testing.capture_logs() as self.logs:
            with Notifier(receivers, "shop", self._attention, status, self.clock) as notifier:
                assert self._done.wait(60)
                notifier._stop.set()
                self._ends.set()
            self.status = {one["name"]: one for one in status.document}

    def _attention(self) -> Sequence[Attention]:
        if self.clock.now_s >= self._until_s:
            self._done.set()
            self._ends.wait(60)  # the clock must not run on
        return self._at(self.clock.now_s)

    def counted(self, what: str, receiver: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cdc_notify_{what}_total", {"receiver": receiver})


def test_trouble_is_posted_once_when_it_fires_and_once_when_it_is_resolved() -> None:
    with receiving() as server:
        run = _Run(
            1000,
            {"ops": Notify(kind="webhook", url=Secret(server.url), secret=_SECRET)},
            lambda now_s: [_BROKER] if 100 <= now_s < 500 else [],
        )
    firing, resolved = server.documents
    request = server.requests[0]

    assert (firing["type"], resolved["type"]) == ("tailrace.firing", "tailrace.resolved")
    assert firing["data"]["firing"] == [
        {
            "what": "capture",
            "severity": "page",
            "says": "Kafka at k:9092 does not answer",
            "since": resolved["data"]["resolved"][0]["since"],
            "hint": "check the broker",
            "command": "cdc doctor",
            "runbook": "docs/howto/states.md",
        }
    ]
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(_KEY, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert (run.counted("messages", "ops"), run.counted("failures", "ops")) == (2, 0)
    assert run.status["ops"]["firing"] == 0


def test_receiver_of_pages_gets_no_tickets() -> None:
    with receiving() as pager, receiving() as ops:
        _Run(
            200,
            {
                "pager": Notify(kind="webhook", url=Secret(pager.url), severity="page"),
                "ops": Notify(kind="slack", url=Secret(ops.url)),
            },
            lambda _: [_VIEWS],
        )

    assert pager.requests == []
    assert [one["text"].splitlines()[0] for one in ops.documents] == ["Tailrace shop: 1 problem"]


def test_message_is_attempted_again_with_the_same_id_until_it_is_accepted() -> None:
    with receiving() as server:
        server.answers += [500, 429, 503]
        run = _Run(60, {"ops": Notify(kind="webhook", url=Secret(server.url))}, lambda _: [_BROKER])

    assert len(server.requests) == 4
    assert len({one.headers["webhook-id"] for one in server.requests}) == 1
    assert (run.counted("messages", "ops"), run.counted("failures", "ops")) == (1, 0)


def test_receiver_that_refuses_is_logged_once_and_shown_and_gets_the_message_when_it_accepts_again() -> None:
    with receiving() as server:
        server.answers += [404] * 3
        run = _Run(600, {"ops": Notify(kind="webhook", url=Secret(server.url))}, lambda _: [_BROKER])

    assert len(server.requests) == 4
    assert len({one.headers["webhook-id"] for one in server.requests}) == 4, "each message has an id of its own"
    assert run.counted("failures", "ops") == 3
    assert [one["event"] for one in run.logs] == ["notify_failed", "notified", "notify_recovered"]
    assert "s3cret" not in json.dumps(run.logs, default=str)
    assert run.status["ops"]["error"] is None


def test_receiver_that_is_down_does_not_delay_the_others() -> None:
    (nothing,) = free_ports(1)
    with receiving() as server:
        run = _Run(
            400,
            {
                "down": Notify(kind="webhook", url=Secret(f"http://127.0.0.1:{nothing}/s3cret")),
                "ops": Notify(kind="webhook", url=Secret(server.url)),
            },
            lambda _: [_BROKER],
        )

    assert [one["type"] for one in server.documents] == ["tailrace.firing"]
    assert (run.counted("failures", "down") or 0) > 0
    assert run.status["down"]["error"] == "the receiver cannot be reached: Connection refused"


def test_capture_that_stops_for_an_operator_sends_a_last_message_at_once() -> None:
    with receiving() as server:
        _Run(
            20,
            {"ops": Notify(kind="webhook", url=Secret(server.url))},
            lambda now_s: [_LOST, _VIEWS] if now_s >= 20 else [],
        )

    (last,) = server.documents
    assert [one["says"] for one in last["data"]["firing"]] == ["the slot is lost"]


def test_process_that_ends_in_order_does_not_report_its_troubles_as_resolved() -> None:
    with receiving() as server:
        _Run(
            200,
            {"ops": Notify(kind="webhook", url=Secret(server.url))},
            lambda now_s: [_BROKER] if now_s < 200 else [],
        )

    assert [one["type"] for one in server.documents] == ["tailrace.firing"]


def test_redirects_are_not_followed() -> None:
    with receiving() as server, receiving() as elsewhere:
        server.answers, server.location = [302, 307], elsewhere.url
        for _ in range(2):
            with pytest.raises(NotDelivered, match="a redirect, which is not followed"):
                post(Secret(server.url), b"{}", {})

    assert elsewhere.requests == []


def test_certificate_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, key, certificate = certificates(tmp_path, "ca")
    with receiving(certificate=certificate, key=key) as server:
        with pytest.raises(NotDelivered, match="the certificate of the receiver is not valid"):
            post(Secret(server.url), b"{}", {})
        before = len(server.requests)
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        status = post(Secret(server.url), b"{}", {})

    assert (before, status, len(server.requests)) == (0, 200, 1)


def test_receiver_that_never_answers_ends_the_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = Secret(f"http://127.0.0.1:{silent.getsockname()[1]}/s3cret")
        with pytest.raises(NotDelivered, match="did not answer in time") as failed:
            post(url, b"{}", {}, timeout_s=0.2)

    assert failed.value.passes


def test_heartbeat_requests_its_address_regularly() -> None:
    with receiving() as server:
        clock, status = ManualClock(0.0), NotifyStatus(Metrics("shop"))
        alive = {"alive": Notify(kind="heartbeat", url=Secret(server.url), interval_s=60)}
        with Notifier(alive, "shop", list, status, clock):
            until(lambda: len(server.requests) >= 3, "requests are sent")

    assert {one.body for one in server.requests} == {b""}
    assert clock.now_s == 60 * len(server.requests)


def test_test_message_shows_what_each_receiver_answers(tmp_path: Path) -> None:
    with receiving() as server, receiving() as broken:
        broken.answers = [404]
        (tmp_path / "cdc.toml").write_text(
            'name = "shop"\n[source]\ndsn = "postgresql://h/d"\n[kafka]\nbootstrap = "h:9092"\n'
            f'[notify.broken]\nkind = "webhook"\nurl = "{broken.url}"\n'
            f'[notify.ops]\nkind = "slack"\nurl = "{server.url}"\n'
        )
        config = ("-c", str(tmp_path / "cdc.toml"))
        all_of_them = cdc("notify", "test", *config)
        one = cdc("notify", "test", "ops", "--json", *config)
        unknown = cdc("notify", "test", "opps", *config)

    assert all_of_them.code == 1
    assert "ops: the receiver accepted the message (HTTP 200)" in all_of_them.out
    assert "broken: the receiver answered HTTP 404 (Not Found)" in all_of_them.err
    assert one.code == 0
    assert json.loads(one.out) == {"receivers": [{"name": "ops", "kind": "slack", "status": 200, "error": None}]}
    assert unknown.code == 2
    assert "configured: broken, ops" in unknown.err
    assert "s3cret" not in all_of_them.out + all_of_them.err + one.out + unknown.err
    assert [one["text"] for one in server.documents] == ["Tailrace shop: this is a test message; nothing is wrong"] * 2


def test_repeated_attempt_has_its_own_time() -> None:
    with receiving() as server:
        receiver = Receiver(
            "ops", Notify(kind="webhook", url=Secret(server.url), secret=_SECRET), "shop", SystemClock()
        )
        receiver.deliver(Message("test"), "msg_1")

    assert abs(int(server.requests[0].headers["webhook-timestamp"]) - SystemClock().wall_s()) < 60
