"""Bounds a call into librdkafka that has no timeout of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T | None:
    """Return the result of `call`, which raises nothing, or None if it has not returned after `seconds`.

    It runs in a thread. If it never returns, the thread stays, together with everything that `call` holds: the caller
    must not use or close the client again. The thread does not keep the process alive.
    """
    answer: SimpleQueue[T] = SimpleQueue()
    threading.Thread(target=lambda: answer.put(call()), name="bounded-call", daemon=True).start()
    try:
        return answer.get(timeout=seconds)
    except Empty:
        return None
