"""Reading a server's log while it is written: the last lines, and then what is added."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_lines(file: Path, offset: int, *, last: int | None = None) -> tuple[list[str], int]:
    """Whole lines from byte `offset` on, and the offset to go on from.

    Args:
        file: a log; when it is missing or became shorter than `offset` (it was rotated) reading starts over.
        offset: what an earlier call returned, 0 for the beginning.
        last: only so many of the last lines.
    """
    try:
        with file.open("rb") as handle:
            end = handle.seek(0, 2)
            start = handle.seek(offset if offset <= end else 0)
            text = handle.read(end - start)
    except FileNotFoundError:
        return [], 0
    whole = text[: text.rfind(b"\n") + 1]  # the rest of the last line is still to come
    lines = whole.decode(errors="replace").splitlines()
    return list(deque(lines, maxlen=last)), start + len(whole)
