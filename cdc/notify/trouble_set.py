"""Decides when to send a message about what needs attention: not too early, not too often, all changes together. Pure.

A trouble is identified by the part that it is about (`Attention.what`): its text changes while it lasts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from cdc.overview.attention import Attention

_TOGETHER: Final = 3
"""A trouble that has lasted this fraction of the wait is sent with one that has lasted all of it. One cause makes
several troubles, seconds apart.
"""


@dataclass(slots=True)
class Trouble:
    """A trouble that lasts, or has just ended.

    Attributes:
        since_s: wall clock time at which it was first seen.
    """

    attention: Attention
    since_s: float
    first_s: float
    seen_s: float
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent.

    Attributes:
        kind: ``firing``: there are new troubles, or fewer. ``resolved``: all are gone. ``repeated``: no change.
        firing: everything that lasts.
        new: those that were not sent before.
        resolved: those that have ended since the last message.
    """

    kind: Literal["firing", "resolved", "repeated", "test"]
    firing: tuple[Trouble, ...] = ()
    new: tuple[Trouble, ...] = ()
    resolved: tuple[Trouble, ...] = ()


class TroubleSet:
    """The troubles of one receiver. Call `look` regularly, and `sent` once its message is delivered."""

    def __init__(self, *, after_s: float, repeat_s: float) -> None:
        """`repeat_s`: 0 for no repetition."""
        self._after_s = after_s
        self._repeat_s = repeat_s
        self._known: dict[str, Trouble] = {}
        self._sent_s = 0.0

    @property
    def firing(self) -> int:
        """Number of troubles that were sent, and not resolved."""
        return sum(trouble.sent for trouble in self._known.values())

    def look(self, found: Iterable[Attention], now_s: float, wall_s: float, *, last: bool = False) -> Message | None:
        """Take what needs attention now. Returns a message if one is due.

        `last`: the process ends, so nothing waits any longer, and nothing counts as resolved because of that.
        """
        self._note(found, now_s, wall_s)
        age = {what: now_s - one.first_s for what, one in self._known.items()}
        lasting = {what for what, one in self._known.items() if one.seen_s == now_s}
        open_ = {what for what, one in self._known.items() if not one.sent} & lasting
        due = [what for what in open_ if last or age[what] >= self._after_s]
        gone = [
            what
            for what, one in self._known.items()
            if one.sent and not last and now_s - one.seen_s >= self._after_s and what not in lasting
        ]
        if due or gone:
            new = {what for what in open_ if last or age[what] >= self._after_s / _TOGETHER} if due else set()
            firing = tuple(one for what, one in self._known.items() if what in new or (one.sent and what not in gone))
            return Message(
                "firing" if firing else "resolved",
                firing,
                tuple(one for what, one in self._known.items() if what in new),
                tuple(self._known[what] for what in gone),
            )
        again = self._repeat_s and self.firing and now_s - self._sent_s >= self._repeat_s
        return Message("repeated", tuple(one for one in self._known.values() if one.sent)) if again else None

    def sent(self, message: Message, now_s: float) -> None:
        """The message is delivered. Without this call the next `look` returns it again, as it is then."""
        self._sent_s = now_s
        for one in message.new:
            one.sent = True
        for one in message.resolved:
            self._known.pop(one.attention.what, None)

    def _note(self, found: Iterable[Attention], now_s: float, wall_s: float) -> None:
        seen: set[str] = set()
        for one in found:  # the worst first
            if one.what in seen:
                continue
            seen.add(one.what)
            trouble = self._known.get(one.what)
            if trouble is None:
                self._known[one.what] = Trouble(one, wall_s, now_s, now_s)
            else:
                trouble.attention, trouble.seen_s = one, now_s
        # One that comes and goes before it was ever sent starts its wait again, but a short pause does not count.
        for what, trouble in list(self._known.items()):
            if not trouble.sent and now_s - trouble.seen_s > self._after_s / _TOGETHER:
                del self._known[what]
