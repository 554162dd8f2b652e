"""When the notifier sends a message, and what is in it."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path

import pytest

from cdc.config.load import parse
from cdc.config.notify_settings import Notify, resolved, signing_key
from cdc.config.secret import Secret
from cdc.config.shown import settings_shown
from cdc.config.sink_environment import sink_environment
from cdc.errors import ConfigError
from cdc.notify.texts import plain_text, signature, slack_body, webhook_body
from cdc.notify.trouble_set import Message, TroubleSet
from cdc.overview.attention import Attention, attention_of
from cdc.overview.sink_facts import SinkFacts
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from tests.fixtures.capture.smallest_config import SMALLEST
from tests.fixtures.servers.manual_clock import ManualClock

_BROKER = Attention("warn", "capture", "Kafka at k:9092 does not answer", "check the broker", "cdc doctor")
_SINK = Attention("warn", "sink cache", "cache is WAITING: it waits for Kafka", "", "cdc sink status cache")
_VIEWS = Attention("warn", "views of lake", "v is behind: a < b & c", "", "cdc views list")


class _Told:
    """A set that is looked at every second, and every message of which is delivered."""

    def __init__(self, *, after_s: float = 30, repeat_s: float = 0) -> None:
        self.set, self.now_s = TroubleSet(after_s=after_s, repeat_s=repeat_s), 0.0
        self.messages: list[tuple[float, Message]] = []

    def seconds(self, count: int, *found: Attention) -> None:
        for _ in range(count):
            self.now_s += 1
            message = self.set.look(found, self.now_s, 1_700_000_000 + self.now_s)
            if message is not None:
                self.set.sent(message, self.now_s)
                self.messages.append((self.now_s, message))

    @property
    def told(self) -> list[tuple[str, list[str], list[str]]]:
        """Kind, what is firing, what is resolved."""
        return [
            (one.kind, [t.attention.what for t in one.firing], [t.attention.what for t in one.resolved])
            for _, one in self.messages
        ]


def test_trouble_that_lasts_is_sent_once_and_once_when_it_is_gone() -> None:
    told = _Told()

    told.seconds(20)
    told.seconds(600, _BROKER)
    told.seconds(600)

    assert told.told == [("firing", ["capture"], []), ("resolved", [], ["capture"])]
    assert [at for at, _ in told.messages] == [51, 650]


def test_trouble_that_passes_by_itself_is_not_sent() -> None:
    told = _Told()

    for _ in range(20):
        told.seconds(25, _BROKER)
        told.seconds(12)

    assert told.told == []


def test_trouble_that_comes_and_goes_after_it_was_sent_makes_no_storm() -> None:
    told = _Told()

    for _ in range(20):
        told.seconds(40, _BROKER)
        told.seconds(20)

    assert told.told == [("firing", ["capture"], [])]


def test_troubles_of_one_cause_are_sent_in_one_message_although_they_begin_apart() -> None:
    told = _Told()

    told.seconds(15, _BROKER)
    told.seconds(100, _BROKER, _SINK)
    told.seconds(10, _SINK)
    told.seconds(100)

    assert told.told[0] == ("firing", ["capture", "sink cache"], [])
    assert [kind for kind, _, _ in told.told] == ["firing", "firing", "resolved"]
    assert [resolved for _, _, resolved in told.told[1:]] == [["capture"], ["sink cache"]]


def test_text_that_changes_while_a_trouble_lasts_is_no_new_trouble() -> None:
    told = _Told()

    for seconds in range(300):
        told.seconds(1, Attention("warn", "freshness of cache", f"cache is {seconds} s behind"))

    assert len(told.messages) == 1


def test_lasting_trouble_is_sent_again_after_the_configured_time_only() -> None:
    told = _Told(repeat_s=600)

    told.seconds(1900, _BROKER)

    assert [kind for kind, _, _ in told.told] == ["firing", "repeated", "repeated", "repeated"]
    assert [at for at, _ in told.messages] == [31, 631, 1231, 1831]


def test_message_that_was_not_delivered_is_made_again_from_what_is_true_then() -> None:
    lost = TroubleSet(after_s=30, repeat_s=0)

    for at in range(100):
        lost.look([_BROKER], at, at)
    later = lost.look([_BROKER, _SINK], 100, 100)
    even_later = lost.look([_BROKER, _SINK], 111, 111)
    nothing = [lost.look([], at, at) for at in range(112, 200)]

    assert later is not None
    assert [one.attention.what for one in later.new] == ["capture"]
    assert even_later is not None
    assert [one.attention.what for one in even_later.new] == ["capture", "sink cache"]
    assert nothing == [None] * 88, "a trouble that was never sent is not resolved"


def test_end_of_the_process_resolves_nothing_and_does_not_wait() -> None:
    ending = TroubleSet(after_s=30, repeat_s=0)
    ending.look([], 0, 0)

    last = ending.look([_BROKER], 1, 1, last=True)
    told = _Told()
    told.seconds(100, _BROKER)

    assert last is not None
    assert last.kind == "firing"
    assert told.set.look([], told.now_s + 100, 0, last=True) is None


@pytest.mark.parametrize(
    ("status", "sinks", "severities"),
    [
        ({"state": "WAITING", "reason": "broker"}, (), {"capture": "page"}),
        ({"state": "RUNNING"}, (SinkFacts(name="c", state="STUCK"),), {"sink c": "page"}),
        ({"state": "RUNNING"}, (SinkFacts(name="c", state="PAUSED"),), {"sink c": "ticket"}),
        ({"state": "RUNNING", "audit": {"findings": 1}}, (), {"audit": "page"}),
        ({"state": "RUNNING", "outbox": {"pruning": "no"}}, (), {"outbox": "ticket"}),
        ({"state": "RUNNING", "notify": [{"name": "o", "error": "no"}]}, (), {"notify o": "ticket"}),
    ],
)
def test_severity_is_page_where_data_is_delayed_or_in_danger(
    status: dict[str, object], sinks: tuple[SinkFacts, ...], severities: dict[str, str]
) -> None:
    document = Status("shop", ManualClock(), Metrics("shop")).snapshot() | status

    assert {one.what: one.severity for one in attention_of(document, sinks, {})} == severities


def _message() -> Message:
    troubles = TroubleSet(after_s=0, repeat_s=0)
    message = troubles.look([_BROKER, _VIEWS], 0, 1_700_000_000)
    assert message is not None
    return message


def test_text_names_cause_time_hint_command_and_page() -> None:
    assert plain_text(_message(), "shop").splitlines() == [
        "Tailrace shop: 2 problems",
        "- capture, page: Kafka at k:9092 does not answer (since 2023-11-14T22:13:20Z)",
        "  hint: check the broker",
        "  try: cdc doctor",
        "  see: docs/howto/states.md",
        "- views of lake, ticket: v is behind: a < b & c (since 2023-11-14T22:13:20Z)",
        "  try: cdc views list",
        "  see: docs/howto/views.md",
    ]


def test_slack_does_not_read_text_of_others_as_markup() -> None:
    text = json.loads(slack_body(_message(), "shop"))["text"]

    assert "a &lt; b &amp; c" in text
    assert "<" not in text


def test_long_lists_and_texts_are_cut() -> None:
    troubles = TroubleSet(after_s=0, repeat_s=0)
    many = [Attention("bad", f"sink s{number}", "x" * 10_000) for number in range(1000)]
    message = troubles.look(many, 0, 0)
    assert message is not None

    assert len(webhook_body(message, "shop", 0)) < 40_000
    assert "and 980 more" in plain_text(message, "shop")


def test_signature_is_that_of_the_standard() -> None:
    """The example of Standard Webhooks' libraries."""
    key = signing_key("ops", Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))

    headers = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_addresses_and_secrets_come_from_files_and_the_environment_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://hooks.example.com/hunter2\n")
    text = SMALLEST + f'[notify.ops]\nkind = "webhook"\nurl_file = "{tmp_path / "url"}"\n[notify.b]\nkind = "slack"\n'
    secret = "whsec_" + base64.b64encode(b"hunter2-hunter2-hunter2-hunter2").decode()
    environ = {"TAILRACE_NOTIFY_OPS_SECRET": secret, "TAILRACE_NOTIFY_B_URL": "http://b/hunter3"}

    config = parse(text, environ)
    ops = resolved("ops", config.notify["ops"])
    shown = settings_shown(config, tomllib.loads(text), environ)

    assert ops.url is not None
    assert ops.url.reveal() == "https://hooks.example.com/hunter2"
    assert "hunter" not in repr(config) + repr(ops) + json.dumps(shown)
    assert ("notify.b.url", "environment") in {(one["key"], one["origin"]) for one in shown}
    assert sink_environment("cache", environ) == {}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('kind = "slack"', "notify.ops.url is missing"),
        ('kind = "slack"\nurl = "hooks.slack.com/hunter2"', "notify.ops.url is not an http:// or https:// address"),
        ('kind = "slack"\nurl = "file:///etc/hunter2"', "notify.ops.url is not an http:// or https:// address"),
        ('kind = "slack"\nurl = "http://u:hunter2@h/"', "without a user"),
        ('kind = "slack"\nurl = "http://h:99999/hunter2"', "notify.ops.url is not"),
        ('kind = "slack"\nurl = "http://h/"\nsecret = "whsec_hunter2"', "is only for kind"),
        ('kind = "webhook"\nurl = "http://h/"\nsecret = "hunter2"', "notify.ops.secret is not whsec_"),
        ('kind = "slack"\nurl_file = "/nonexistent/hooks"', "notify.ops.url_file: No such file"),
    ],
)
def test_wrong_receiver_is_refused_without_its_secret(lines: str, says: str) -> None:
    config = parse(f"{SMALLEST}[notify.ops]\n{lines}\n", {})

    with pytest.raises(ConfigError) as refused:
        resolved("ops", config.notify["ops"])

    assert says in refused.value.message
    assert "hunter2" not in refused.value.message + refused.value.hint + refused.value.command


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[notify.Ops]\nkind = "slack"', "invalid name notify.Ops"),
        ('[notify]\nkind = "slack"', "notify"),
        ('[notify.ops]\nkind = "email"', "notify.ops.kind: unknown value 'email'"),
        ('[notify.ops]\nurl = "http://h/"', "kind is missing"),
    ],
)
def test_wrong_table_is_refused(table: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f"{SMALLEST}{table}\n", {})

    assert says in refused.value.message


def test_defaults_are_those_that_the_page_says() -> None:
    assert Notify(kind="slack").after_s == 30
    assert Notify(kind="slack").repeat_h == 12
