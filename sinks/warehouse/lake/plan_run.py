"""One run of a view's plan, stored in the manifest to estimate the next run. Values only."""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    """One run of a plan: its duration, and the number of records that the cut brought to the view's inputs."""

    seconds: float
    changes: int
