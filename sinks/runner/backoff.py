"""How long to wait before a store is asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import tenacity

FIRST_S: Final = 0.1
MAX_S: Final = 30.0


def growing_pause(attempt: int) -> float:
    """Seconds after so many attempts in a row, from 1: half is certain, half is chance, so that workers part."""
    state = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return float(_WAIT(state))


_HALF: Final = {"multiplier": FIRST_S / 2, "max": MAX_S / 2}
_WAIT: Final[Callable[[tenacity.RetryCallState], float]] = tenacity.wait_exponential(
    **_HALF
) + tenacity.wait_random_exponential(**_HALF)
