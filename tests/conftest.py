"""Hypothesis profiles for every tier.

``ci`` (the default) is derandomised: the same examples on every machine, so a red run is a change and not luck.
``deep`` repeats each property with new seeds until its time is used up, and prints every seed::

    TAILRACE_HYPOTHESIS_PROFILE=deep TAILRACE_HYPOTHESIS_SECONDS=60 pytest tests/property
"""

from __future__ import annotations

import os
import secrets
import sys
import time

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.fixtures.servers",
    "tests.fixtures.search",
    "tests.fixtures.objectstore",
    "tests.fixtures.caches",
    "tests.fixtures.daemon",
    "tests.fixtures.pair",
    "tests.fixtures.seed",
    "tests.fixtures.faults.servers",
    "tests.fixtures.faults.secured",
    "tests.fixtures.faults.registrydoor",
    "tests.fixtures.faults.cluster",
    "tests.fixtures.faults.links",
    "tests.fixtures.readerwork",
]

# Tests start `cdc` a thousand times; to compile all modules anew takes a third of each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_PROFILE = os.environ.get("TAILRACE_HYPOTHESIS_PROFILE", "ci")
_DEEP_S = float(os.environ.get("TAILRACE_HYPOTHESIS_SECONDS", "20"))  # of each test

# Building a history of transactions takes Hypothesis longer than checking it, which is not worth a warning.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, database=None, max_examples=500)
settings.load_profile(_PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """With the deep profile, run a property again and again until its time is over."""
    test = pyfuncitem.obj
    if _PROFILE != "deep" or not getattr(test, "is_hypothesis_test", False):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    ends_s = time.monotonic() + _DEEP_S
    while time.monotonic() < ends_s:
        seed = secrets.randbits(32)
        sys.stdout.write(f"hypothesis seed: {seed}\n")
        hypothesis.seed(seed)(test)(**arguments)
    return True
