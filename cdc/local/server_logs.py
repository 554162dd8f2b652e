"""Reads a server's log while it is written: the last lines, then new lines."""

from __future__ import annotations

from collections import deque
from pathlib import Path


def read_lines(file: Path, offset: int, *, last: int | None = None) -> tuple[list[str], int]:
    """Return whole lines from byte `offset` on, and the offset for the next call.

    Args:
        file: a log. If it is missing or shorter than `offset` (rotated), reading starts over.
        offset: the result of an earlier call, or 0 for the beginning.
        last: return only this number of last lines.
    """
    try:
        with file.open("rb") as handle:
            end = handle.seek(0, 2)
            start = handle.seek(offset if offset <= end else 0)
            text = handle.read(end - start)
    except FileNotFoundError:
        return [], 0
    whole = text[: text.rfind(b"\n") + 1]  # the last line may be incomplete
    lines = whole.decode(errors="replace").splitlines()
    return list(deque(lines, maxlen=last)), start + len(whole)
