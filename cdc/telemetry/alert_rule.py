"""The form of an alert, and the parts that PromQL expressions of alerts share. Pure data.

Three rules for expressions. Aggregate by pipeline, and by sink for sinks: a pipeline may have a standby process, and a
sink several workers. A gauge that is unknown is NaN; `min` and `max` leave NaN out, `sum` does not. A process in a
state that needs an operator ends, and its series end with it; so look back over some minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdc.model.run_state import State
from cdc.model.sink_report import WORKING

RUNBOOK: Final = "docs/howto/alerts.md"
"""The page with a section for each alert."""

CAPTURE_JOB: Final = "tailrace-capture"
SINKS_JOB: Final = "tailrace-sinks"
"""Names of the jobs in docker/observability/prometheus.yaml: only they tell a process that is down from none."""

OPERATOR_STATES: Final = "|".join(sorted(state.value for state in State if state.needs_operator))
WORKING_STATES: Final = "|".join(sorted(WORKING))

Severity: TypeAlias = Literal["page", "ticket"]
"""page: act now, or data is delayed or in danger. ticket: act within a working day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert.

    Attributes:
        expr: PromQL; the alert fires for every series that it returns.
        for_minutes: how long it must return the series before the alert fires.
        summary: what is wrong, in one line, without labels.
        description: the same with labels and value, as a template of Prometheus; then what it means.
    """

    name: str
    expr: str
    for_minutes: int
    severity: Severity
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """The section about this alert, relative to the root of the repository."""
        return f"{RUNBOOK}#{self.name.lower()}"


def growth(counter: str, minutes: int) -> str:
    """Return PromQL for the growth of each series of a counter, also of a series that has just appeared.

    A counter with labels has no series before it is first counted, so `increase` misses its first value.
    """
    window = f"{minutes}m"
    return f"({counter} unless last_over_time({counter}[{window}] offset {window})) or increase({counter}[{window}])"
