"""What is recorded of signals: up to where they were acted on, and what became of the last of them.

The record lies in ``<name>.__progress`` under ``<name>/signals``, written in the Kafka transaction that has what the
signal changed: after a crash a signal was acted on and counted, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

SIGNALS_VERSION: Final = 1
ANSWERS_KEPT: Final = 50
NAMES_KEPT: Final = 5000  # in all answers: a megabyte at most, far below what the topic takes


class SignalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a signal.

    Attributes:
        offset: where it lies in ``<name>.__signals``.
        id: as its sender chose it.
        action: start, pause, resume, stop, log; empty when it could not be understood.
        done: tables it was done for.
        refused: the others, and why; under an empty name why nothing was done at all.
    """

    offset: int
    id: str = ""
    action: str = ""
    done: tuple[str, ...] = ()
    refused: dict[str, str] = {}


class SignalsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far signals were acted on.

    Attributes:
        topic_id: of the topic; another one begins anew.
        next_offset: of the first signal that was not looked at.
        answers: to the last ones, oldest first.
    """

    version: int = SIGNALS_VERSION
    topic_id: str
    next_offset: int
    answers: tuple[SignalAnswer, ...] = ()


def bounded(answers: Sequence[SignalAnswer]) -> tuple[SignalAnswer, ...]:
    """The newest of them, at most so many; the last one is kept however long it is."""
    kept: list[SignalAnswer] = []
    names = 0
    for answer in reversed(answers[-ANSWERS_KEPT:]):
        names += len(answer.done) + len(answer.refused)
        if kept and names > NAMES_KEPT:
            break
        kept.append(answer)
    return tuple(reversed(kept))
