"""The record in ``<name>.__progress`` about signals: how far they were handled, and the latest answers.

Its key is ``<name>/signals``. It is written in the same Kafka transaction as the effect of the signal: after a crash,
both exist or neither does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

SIGNALS_VERSION: Final = 1
ANSWERS_KEPT: Final = 50
NAMES_KEPT: Final = 5000  # in all answers: at most a megabyte, far below the limit of the topic
NO_MATCH: Final = "no captured table matches"  # why a pattern is refused; `cdc snapshot` adds the closest name


class SignalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a signal.

    Attributes:
        offset: its offset in ``<name>.__signals``.
        id: chosen by its sender.
        action: start, pause, resume, stop, log; empty for an invalid signal.
        done: tables for which it was done.
        refused: table -> reason for the others; under an empty name, the reason why nothing was done at all.
    """

    offset: int
    id: str = ""
    action: str = ""
    done: tuple[str, ...] = ()
    refused: dict[str, str] = {}


class SignalsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far signals were handled.

    Attributes:
        topic_id: id of the topic; with a different one, handling starts from the beginning.
        next_offset: of the first signal that was not handled.
        answers: to the latest signals, oldest first.
    """

    version: int = SIGNALS_VERSION
    topic_id: str
    next_offset: int
    answers: tuple[SignalAnswer, ...] = ()


def newest_answers(answers: Sequence[SignalAnswer]) -> tuple[SignalAnswer, ...]:
    """Return the newest answers within ANSWERS_KEPT and NAMES_KEPT; the last one is always kept."""
    kept: list[SignalAnswer] = []
    names = 0
    for answer in reversed(answers[-ANSWERS_KEPT:]):
        names += len(answer.done) + len(answer.refused)
        if kept and names > NAMES_KEPT:
            break
        kept.append(answer)
    return tuple(reversed(kept))
