"""Series for which alerts about freshness objectives fire, and series close to them for which they do not.

The objective is 99.9 %: at 14.4 times the sustainable rate, 1.44 % of the time are missed, and 0.6 % at 6 times. One
sample a minute; a counter that grows by 60 a minute is always fresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.contract.alert_scenarios import CAPTURE, SINK, Scenario, Series, of_shop

_SEARCH: Final = of_shop(sink="search")
_OK: Final = "0+60x600"
_B: Final = '{pipeline="shop",sink="search",instance="b"}'


def _objective(fresh: str, *, target: str = "0.999x600", alive: str = "1x600", checked: str = _OK) -> Series:
    """Return the series of capture with the objective of one sink; `alive` is its state's series."""
    return {
        f"cdc_objective_target_ratio{SINK}": target,
        f"cdc_objective_fresh_seconds_total{SINK}": fresh,
        f"cdc_objective_checked_seconds_total{SINK}": checked,
        'cdc_state{pipeline="shop",state="RUNNING"}': alive,
    }


_FAST: Final = _objective("0+60x100 6057+57x500")
"""From minute 100 on, 5 % of the time are missed: 50 times the sustainable rate."""

_GONE: Final = _objective("0+60x141 stale", target="0.999x141 stale", alive="1x141 stale", checked="0+60x141 stale")
"""Capture ended at minute 142, and with it every series."""

_STANDBY: Final = {
    f"cdc_objective_target_ratio{_B}": "0.999x600",
    f"cdc_objective_fresh_seconds_total{_B}": "0x600",
    f"cdc_objective_checked_seconds_total{_B}": "0x600",
    'cdc_state{pipeline="shop",state="RUNNING",instance="b"}': "0x600",
}

OBJECTIVES: Final[Mapping[str, Scenario]] = {
    "TailraceFreshnessFast": Scenario(
        fires={**_FAST, **_STANDBY},
        labels=_SEARCH,
        value="40.57",
        also=(
            (_GONE, "131.1"),
            ({**_GONE, **_STANDBY}, "131.1"),
        ),
        quiet=(
            _objective(_OK),
            _objective("0+60x100 6059.5+59.5x500"),  # 8 times the rate
            _objective("0+60x100 6057+57x42 8511+60x400"),  # over for seven minutes
            {**_objective(_OK), **_STANDBY},
            _objective("_x145 0+60x600", target="_x145 0.999x600", checked="_x145 0+60x600"),  # it was just configured
            {**_GONE, 'cdc_state{pipeline="shop",state="RUNNING"}': "1x600"},  # the objective was removed
        ),
    ),
    "TailraceFreshnessMedium": Scenario(
        fires=_objective("0+60x100 6059.5+59.5x500"),
        labels=_SEARCH,
        value="8.333",
        minutes=480,
        quiet=(
            _objective(_OK),
            _objective("0+60x100 6059.8+59.8x500"),
            _objective("0+60x420 25259+59x14 26145+60x100"),
        ),
    ),
    "TailraceFreshnessSlow": Scenario(
        fires={
            f"cdc_objective_target_ratio{CAPTURE}": "0.999x600",
            f"cdc_objective_fresh_seconds_total{CAPTURE}": "0+59.9x600",
            f"cdc_objective_checked_seconds_total{CAPTURE}": _OK,
            'cdc_state{pipeline="shop",state="RUNNING"}': "1x600",
        },
        labels=of_shop(),
        value="1.667",
        minutes=600,
        quiet=(_objective(_OK), _objective("0+59.95x600")),
    ),
}
