"""Sends what needs attention to the receivers of `[notify]`, each in a thread of its own that capture never waits for.

A thread holds at most one message: while a receiver does not answer, the next message is made from what is true then.
"""

from __future__ import annotations

import contextvars
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

import tenacity

from cdc.clock import Clock
from cdc.config.notify_settings import Notify, resolved, signing_key
from cdc.config.secret import Secret
from cdc.notify.post import NotDelivered, post
from cdc.notify.texts import signature, slack_body, unsigned, webhook_body
from cdc.notify.trouble_set import Message, TroubleSet
from cdc.overview.attention import Attention
from cdc.telemetry.notify_status import NotifyStatus

EVERY_S: Final = 2.0
"""Between checks of what needs attention."""

_ATTEMPTS: Final = 4  # of one message, within about half a minute
_AGAIN_S: Final = 60.0  # after these, until the message is made again
_END_S: Final = 12.0  # for the last message of a process that ends
_LAST_S: Final = 5.0

Attentions = Callable[[], Sequence[Attention]]


class Receiver:
    """Delivers messages to one receiver."""

    def __init__(self, name: str, notify: Notify, pipeline: str, clock: Clock) -> None:
        """Raises ConfigError."""
        self.name = name
        self.settings = resolved(name, notify)
        assert self.settings.url is not None
        self._url: Secret = self.settings.url
        self._key = None if self.settings.secret is None else signing_key(name, self.settings.secret)
        self._pipeline = pipeline
        self._clock = clock

    def deliver(self, message: Message, message_id: str, *, timeout_s: float | None = None) -> int:
        """Make one attempt; return the status of the answer. Raises NotDelivered."""
        wall_s = self._clock.wall_s()
        body, headers = b"", dict[str, str]()
        if self.settings.kind == "slack":
            body = slack_body(message, self._pipeline)
        elif self.settings.kind == "webhook":
            body = webhook_body(message, self._pipeline, wall_s)
            key, at_s = self._key, int(wall_s)
            headers = unsigned(message_id, at_s) if key is None else signature(key, message_id, at_s, body)
        return post(self._url, body, headers) if timeout_s is None else post(
            self._url, body, headers, timeout_s=timeout_s
        )  # fmt: skip


class Notifier:
    """Runs one thread for each receiver. Use it as a context manager. Without receivers it does nothing."""

    def __init__(
        self, receivers: Mapping[str, Notify], pipeline: str, attention: Attentions, status: NotifyStatus, clock: Clock
    ) -> None:
        """`attention` returns what needs attention now, the worst first. Raises ConfigError."""
        self._attention = attention
        self._status = status
        self._clock = clock
        self._stop = threading.Event()
        found = [Receiver(name, notify, pipeline, clock) for name, notify in sorted(receivers.items())]
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._beat if one.settings.kind == "heartbeat" else self._run, one),
                name=f"notify-{one.name}",
                daemon=True,
            )
            for one in found
        ]
        status.declare({one.name: one.settings.kind for one in found})

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        ends_s = self._clock.monotonic_s() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, ends_s - self._clock.monotonic_s()))

    def _run(self, receiver: Receiver) -> None:
        settings = receiver.settings
        troubles = TroubleSet(after_s=settings.after_s, repeat_s=settings.repeat_h * 3600)
        while not self._clock.wait(self._stop, EVERY_S):
            message = self._look(receiver, troubles, last=False)
            if message is not None and not self._delivered(receiver, troubles, message):
                self._clock.wait(self._stop, _AGAIN_S)
        # The process ends. If that is because it needs an operator, no later message can say so.
        message = self._look(receiver, troubles, last=True)
        if message is not None:
            with suppress(NotDelivered):
                receiver.deliver(message, new_id(), timeout_s=_LAST_S)

    def _look(self, receiver: Receiver, troubles: TroubleSet, *, last: bool) -> Message | None:
        found = [
            one
            for one in self._attention()
            if one.level in {"warn", "bad"}
            and one.what != f"notify {receiver.name}"
            and (not last or (one.what == "capture" and one.level == "bad"))
            and (receiver.settings.severity == "ticket" or one.severity == "page")
        ]
        return troubles.look(found, self._clock.monotonic_s(), self._clock.wall_s(), last=last)

    def _delivered(self, receiver: Receiver, troubles: TroubleSet, message: Message) -> bool:
        if not self._tried(receiver, message):
            return False
        troubles.sent(message, self._clock.monotonic_s())
        self._status.delivered(receiver.name, message.kind, self._clock.wall_s(), firing=troubles.firing)
        return True

    def _tried(self, receiver: Receiver, message: Message) -> bool:
        """Attempt to deliver a message a bounded number of times. Returns whether the receiver accepted it."""
        message_id = new_id()
        retrying = tenacity.Retrying(
            wait=tenacity.wait_random_exponential(multiplier=1, max=15),
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, NotDelivered) and error.passes),
            stop=tenacity.stop_any(tenacity.stop_after_attempt(_ATTEMPTS), tenacity.stop_when_event_set(self._stop)),
            sleep=self._pause,
            reraise=True,
        )
        try:
            retrying(receiver.deliver, message, message_id)
        except NotDelivered as error:
            self._status.failed(receiver.name, error.why)
            return False
        return True

    def _pause(self, seconds: float) -> None:
        self._clock.wait(self._stop, seconds)

    def _beat(self, receiver: Receiver) -> None:
        """Request the address regularly until the end; a failed request is not repeated before the next one is due."""
        waited = False
        while not waited:
            if self._tried(receiver, Message("test")):
                self._status.delivered(receiver.name, "heartbeat", self._clock.wall_s(), firing=0)
            waited = self._clock.wait(self._stop, receiver.settings.interval_s)


def new_id() -> str:
    """Return an id for a message; receivers recognize a repeated delivery by it."""
    return f"msg_{secrets.token_hex(12)}"
