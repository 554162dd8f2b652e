"""Hypothesis profiles for every tier.

``ci`` (the default) is derandomised: the same examples on every machine, so a red run is a change and not luck.
``deep`` repeats each property with new seeds until its time is used up, and prints every seed::

    TAILRACE_HYPOTHESIS_PROFILE=deep TAILRACE_HYPOTHESIS_SECONDS=60 pytest tests/property

``fresh`` runs each property once with the seed that follows from TAILRACE_HYPOTHESIS_SEED and the name of the test, in
random order, until TAILRACE_HYPOTHESIS_SECONDS are over in all; see `tests.fresh`.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import time
import zlib
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

from cdc.command_text import choose_pipeline

pytest_plugins = [
    "tests.fixtures.servers.running_servers",
    "tests.fixtures.servers.opensearch",
    "tests.fixtures.servers.object_store",
    "tests.fixtures.servers.valkey",
    "tests.fixtures.servers.daemon",
    "tests.fixtures.servers.pipelines_run",
    "tests.fixtures.servers.standby_pair",
    "tests.fixtures.servers.releases",
    "tests.fixtures.servers.spark_cluster",
    "tests.fixtures.servers.seed",
    "tests.fixtures.faults.servers",
    "tests.fixtures.faults.secured",
    "tests.fixtures.faults.registrydoor",
    "tests.fixtures.faults.cluster",
    "tests.fixtures.faults.links",
    "tests.fixtures.sinks.reader_workload",
]

# Tests start `cdc` a thousand times; to compile all modules anew takes a third of each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_PROFILE = os.environ.get("TAILRACE_HYPOTHESIS_PROFILE", "ci")
_DEEP_S = float(os.environ.get("TAILRACE_HYPOTHESIS_SECONDS", "20"))  # of each test
_FRESH_S = float(os.environ.get("TAILRACE_HYPOTHESIS_SECONDS", "inf"))  # of all tests
_FRESH_SEED = int(os.environ.get("TAILRACE_HYPOTHESIS_SEED", "0"))
_BEGAN_S = time.monotonic()

# Building a history of transactions takes Hypothesis longer than checking it, which is not worth a warning.
settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, database=None, max_examples=500)
settings.register_profile("fresh", settings.get_profile("ci"))  # a seed that is given replaces the fixed one
settings.load_profile(_PROFILE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With the fresh profile, run properties only, in random order: time may be over before all have run."""
    if _PROFILE != "fresh":
        return
    taken = [one for one in items if isinstance(one, pytest.Function) and _is_property(one)]
    config.hook.pytest_deselected(items=[one for one in items if one not in taken])
    random.Random(_FRESH_SEED).shuffle(taken)
    items[:] = taken


def pytest_runtest_teardown() -> None:
    """Forget the pipeline that a test chose by running a command in this process: suggested commands name it."""
    choose_pipeline("")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """With the deep profile, run a property again and again until its time is over; with `fresh` once."""
    if _PROFILE not in {"deep", "fresh"} or not _is_property(pyfuncitem):
        return None
    test = pyfuncitem.obj
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    if _PROFILE == "fresh":
        return _run_once(pyfuncitem, arguments)
    ends_s = time.monotonic() + _DEEP_S
    while time.monotonic() < ends_s:
        seed = secrets.randbits(32)
        sys.stdout.write(f"hypothesis seed: {seed}\n")
        hypothesis.seed(seed)(test)(**arguments)
    return True


def _is_property(item: pytest.Function) -> bool:
    return bool(getattr(item.obj, "is_hypothesis_test", False))


def _run_once(item: pytest.Function, arguments: dict[str, Any]) -> bool:
    if time.monotonic() - _BEGAN_S > _FRESH_S:
        pytest.skip("the time for fresh seeds is over")
    seed = zlib.crc32(f"{_FRESH_SEED} {item.nodeid}".encode())
    try:
        hypothesis.seed(seed)(item.obj)(**arguments)
    except BaseException:
        sys.stdout.write(
            f"repeat it with: TAILRACE_HYPOTHESIS_PROFILE=fresh TAILRACE_HYPOTHESIS_SEED={_FRESH_SEED} "
            f"python -m pytest '{item.nodeid}'\n"
        )
        raise
    return True
