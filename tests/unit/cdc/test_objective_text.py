"""The error budget of sinks in `cdc sink status` and `cdc status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdc.cli.objective_text import daemon_of, objective_note, with_objectives
from cdc.cli.sink_status_command import notes
from cdc.config.load import parse
from tests.fixtures.capture.smallest_config import SMALLEST

if TYPE_CHECKING:
    from cdc.config.settings import Config

_TOML = (
    SMALLEST
    + """
[http]
listen = "127.0.0.1:1"
[sinks.cache]
kind = "cache"
url = "redis://localhost"
[sinks.fast]
kind = "cache"
url = "redis://localhost"
objective = {freshness_s = 10, target = 0.99}
"""
)
_SINKS: list[dict[str, Any]] = [{"name": "cache", "state": "RUNNING"}, {"name": "fast", "state": "RUNNING"}]
_COUNTED = {
    "sink": "fast",
    "objective_seconds": 10.0,
    "target": 0.99,
    "freshness_seconds": 1.2,
    "fresh": True,
    "checked_seconds": 3600,
    "missed_seconds": 24.0,
    "budget_left": 0.97,
    "burns": False,
}


@pytest.fixture
def config() -> Config:
    return parse(_TOML, {})


def test_sink_with_an_objective_has_the_numbers_of_capture_and_the_other_one_nothing(config: Config) -> None:
    plain, fast = with_objectives(config, _SINKS, {"objectives": [_COUNTED]})

    assert plain == _SINKS[0]
    assert fast["objective"] == _COUNTED
    assert not any("objective" in one for one in notes({**plain, "workers": 1}))
    assert any("97 % of the error budget is left" in one for one in notes({**fast, "workers": 1}))


def test_budget_is_unknown_while_capture_does_not_answer(config: Config) -> None:
    assert daemon_of(config) is None

    _, fast = with_objectives(config, _SINKS, None)

    assert fast["objective"].keys() == _COUNTED.keys()
    assert (fast["objective"]["objective_seconds"], fast["objective"]["budget_left"]) == (10.0, None)
    assert "error budget unknown, capture does not answer" in objective_note(fast["objective"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "objective 10 s in 99 % of the time: 1.2 s behind PostgreSQL; 97 % of the error budget is left"),
        ({"fresh": False, "freshness_seconds": 30.0}, "30 s behind PostgreSQL, and misses it now; 97 %"),
        ({"fresh": False, "freshness_seconds": None}, "an unknown time behind PostgreSQL, and misses it now"),
        ({"budget_left": -1.5}, "; 0 % of the error budget is left"),
        ({"burns": True}, "is left; at the rate of the last hour it is used up within two days"),
    ],
)
def test_note_says_how_far_behind_and_what_is_left(changed: dict[str, Any], words: str) -> None:
    assert words in objective_note({**_COUNTED, **changed})
