"""Alerts about freshness objectives: how fast the error budget is used up, over two windows each.

Windows and factors are those of https://sre.google/workbook/alerting-on-slos/ (6, multiwindow, multi-burn-rate alerts).
A rule that records whether each objective is met comes first, and the burn rates are computed from what it recorded. So
the time in which no process captures counts as missed: other parts of the rule have a value, which is 0, then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdc.telemetry.alert_rule import Alert
from cdc.telemetry.objective_status import FAST_BURN


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    name: str
    expr: str


_SINK: Final = "pipeline, sink"
_TARGET: Final = f"max by ({_SINK}) (last_over_time(cdc_objective_target_ratio[1d]))"
_CHECKED: Final = "rate(cdc_objective_checked_seconds_total[2m])"
_MET: Final = f"max by ({_SINK}) (rate(cdc_objective_fresh_seconds_total[2m]) / {_CHECKED} >= 0)"
_ONLY_STANDBY: Final = f"0 * max by ({_SINK}) ({_CHECKED})"  # it waits for its slot, and checks nothing
_NO_CAPTURE: Final = f'0 * ({_TARGET} unless on (pipeline) cdc_state{{sink=""}})'

FRESH: Final = "tailrace:fresh:ratio"
"""Share of the last two minutes in which the objective was met, of each sink, and of capture without the label."""

BUDGET_LEFT: Final = "tailrace:budget_left:ratio"
"""Share of the error budget of the last four weeks that is left; negative once more than the budget is used."""


def _burn(window: str) -> str:
    return f"tailrace:burn:rate{window}"


def _burned(window: str) -> str:
    return f"(1 - avg_over_time({FRESH}[{window}])) / on ({_SINK}) (1 - {_TARGET})"


OBJECTIVE_RECORDS: Final = (
    Recording(FRESH, f"{_MET} or {_ONLY_STANDBY} or {_NO_CAPTURE}"),
    *(Recording(_burn(window), _burned(window)) for window in ("5m", "30m", "1h", "6h", "3d")),
    Recording(BUDGET_LEFT, f"1 - {_burned('28d')}"),
)


def _alert(name: str, factor: float, long: str, short: str, **texts: str) -> Alert:
    both = f"{_burn(long)} > {factor:g} and {_burn(short)} > {factor:g}"
    page = factor > 1
    return Alert(
        name=name,
        expr=f"max by ({_SINK}) ({both})",
        for_minutes=0,
        severity="page" if page else "ticket",
        summary=texts["summary"],
        description=(
            "The pipeline {{ $labels.pipeline }} {{ $labels.sink }} misses its freshness objective: it uses up its "
            f"error budget {{{{ $value | humanize }}}} times as fast as it may{texts['means']}."
        ),
    )


OBJECTIVE_ALERTS: Final = (
    _alert(
        "TailraceFreshnessFast",
        FAST_BURN,
        "1h",
        "5m",
        summary="A freshness objective is missed most of the time",
        means=", so the budget of four weeks is used up within two days",
    ),
    _alert(
        "TailraceFreshnessMedium",
        6,
        "6h",
        "30m",
        summary="A freshness objective is often missed",
        means=", so the budget of four weeks is used up within five days",
    ),
    _alert(
        "TailraceFreshnessSlow",
        1,
        "3d",
        "6h",
        summary="A freshness objective will be missed",
        means=", over three days",
    ),
)
