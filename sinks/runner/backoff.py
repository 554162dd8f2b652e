"""Computes how long to wait before a request to a store is repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import tenacity

FIRST_S: Final = 0.1
MAX_S: Final = 30.0


def growing_pause(attempt: int) -> float:
    """Return the seconds to wait after this many attempts, from 1: half fixed, half random to spread the workers."""
    state = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return float(_WAIT(state))


_HALF: Final = {"multiplier": FIRST_S / 2, "max": MAX_S / 2}
_WAIT: Final[Callable[[tenacity.RetryCallState], float]] = tenacity.wait_exponential(
    **_HALF
) + tenacity.wait_random_exponential(**_HALF)
