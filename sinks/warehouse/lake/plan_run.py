"""One run of a view's plan, as the manifest remembers it to estimate the next one. Values only."""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    """One run of a plan: what it took, and how many records the cut brought to what the view reads."""

    seconds: float
    changes: int
