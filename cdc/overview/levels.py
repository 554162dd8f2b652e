"""The five levels of health that the page and `cdc top` show. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

from cdc.model.run_state import State
from cdc.model.sink_report import STUCK, UNKNOWN

Level: TypeAlias = Literal["ok", "off", "busy", "warn", "bad"]
"""ok: works. off: stopped or paused in order. busy: starts or catches up. warn: it waits, or an operator should look.
bad: an operator must act, or data can be lost.
"""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""From the best to the worst."""

_OF_STATE: Final[dict[str, Level]] = {
    State.RUNNING.value: "ok",
    State.STARTING.value: "busy",
    State.CATCHING_UP.value: "busy",
    State.WAITING.value: "warn",
    State.STOPPED.value: "off",
    UNKNOWN: "warn",
    STUCK: "bad",
    "PAUSED": "off",
}


def level_of(state: str) -> Level:
    """Return the level of a state of capture or of a sink. A state that needs an operator is bad."""
    return _OF_STATE.get(state, "bad")


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst level; ok if there is none."""
    return max(levels, key=LEVELS.index, default="ok")
