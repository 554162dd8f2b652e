"""The whole of capture on a fake clock, walsender and broker, under faults of every kind (tests/simulation).

Every history is one integer: a failure prints the command that runs it alone.
"""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, Protocol

import pytest

import cdc
from tests.simulation import exhaustive
from tests.simulation.history import History, quiet
from tests.simulation.many import Many, run_many
from tests.simulation.mutants import MUTANTS
from tests.simulation.world import EDGES, labels, methods

_SEEDS: Final = range(int(os.environ.get("TAILRACE_SIMULATION_SEEDS", "2000")))
_MUTANT_SEEDS: Final = 400  # most need one or two, the rarest some 150
_TIMEOUT_S: Final = 900  # no promise: two slow cores need 150 s

# In how many of 1,000 histories each kind of fault must have happened at least; about a third of what was counted.
_WANTED: Final = {
    "process killed": 500,
    "process frozen": 250,
    "zombie": 120,
    "zombie stopped as FENCED": 100,
    "slot held by nobody": 120,
    "slot held": 300,
    "before a failed call": 200,
    "after a failed call": 200,
    "connection lost": 150,
    "PostgreSQL crashed": 80,
    "PostgreSQL promoted": 40,
    "PostgreSQL restarted": 80,
    "foreign WAL": 300,
    "keepalive inside a transaction or in front of it": 300,
    "row not visible yet": 100,
    "commit sent twice": 40,
    "commit on its way for ever": 20,
    "late EndTxn found a transaction": 1,
    "late request of the same epoch": 10,
    "late request of an older epoch": 80,
    "produce sent twice": 10,
    "produce timed out": 15,
    "transaction timed out by the broker": 3,
    "commit done while all is closed": 100,
    "markers late": 60,
    "markers skipped": 60,
    "stale read": 120,
    "log ahead of the stream": 1,
    "broken: slot": 3,
    "broken: advanced": 3,
    "broken: publication": 3,
    "broken: republished": 3,
    "broken: table": 3,
    "broken: timeline": 3,
    "broken: restored": 3,
    "stopped as GAP": 20,
    "stopped as DIVERGED": 8,
}

# Calls of edges that nothing in these histories makes: 'request_reply' and 'wall_s' belong to snapshots and sessions;
# types and keys are read where a relation does not show them.
_NOT_CALLED: Final = {
    "ReplicationStream.request_reply",
    "Clock.wall_s",
    "Catalog.key_columns",
    "Catalog.types",
}

# Contracts that are no edge: between two parts of one process, all of them real here, or of what is not simulated.
_INSIDE: Final = {
    "cdc.capture.ddl_watch": {"Catalog", "DdlLog", "ReadAgain"},
    "cdc.contracts": {
        "SideWriter",
        "BatchObserver",
        "DdlObserver",
        "HeartbeatObserver",
        "LiveKeys",
        "OutboxObserver",
        "PlannedRelation",
        "Publisher",
        "RelationPlanner",
        "Reselect",
        "ReselectObserver",
        "SchemaRegistry",
        "Snapshots",
        "Stage",
        "Transcoding",
    },
    "cdc.progress.restore": {"RecordReader"},  # the base of TopicReader, which is an edge
    "cdc.startup.claim_log": {"Session"},
    "cdc.startup.outbox_prune": {"PruneObserver"},
    "cdc.startup.protocol": {"Adjustable"},  # what parts take over at a reload
    "cdc.startup.table_joins": {"JoinObserver"},
    "cdc.startup.signal_actions": {"Catalog"},
    "cdc.startup.signal_reader": {"MergerAccess", "SignalObserver"},
}


@pytest.fixture(scope="module")
def many() -> Many:
    """All histories; on one core, so that the other lane of the tests has the other one."""
    return run_many(_SEEDS)


@pytest.mark.timeout(_TIMEOUT_S)
def test_every_obligation_holds_over_any_history(many: Many) -> None:
    assert many.count == len(_SEEDS)
    assert not many.failed, many.verdict
    assert many.event_count > 50 * many.count


@pytest.mark.timeout(_TIMEOUT_S)
def test_every_kind_of_fault_happens_often_enough(many: Many) -> None:
    """So that the simulation cannot become hollow."""
    rare = {kind: many.had[kind] for kind, wanted in _WANTED.items() if many.had[kind] * 1000 < wanted * many.count}

    assert rare == {}


@pytest.mark.timeout(_TIMEOUT_S)
def test_a_process_was_killed_before_and_after_every_call_of_every_edge(many: Many) -> None:
    spared = [label for label in labels() if not many.crashed[label]]

    assert {label.partition("/")[0] for label in spared} == _NOT_CALLED
    assert len(spared) == 2 * len(_NOT_CALLED)


def test_every_contract_of_the_code_that_is_simulated_is_an_edge_or_known_to_be_inside() -> None:
    """A new contract needs its crash points, or a reason."""
    found: dict[str, set[str]] = {}
    for name in _modules():
        module = import_module(name)
        here = {
            value.__name__
            for value in vars(module).values()
            if inspect.isclass(value) and Protocol in value.__bases__ and value.__module__ == name
        }
        left = here - {contract.__name__ for contract in EDGES if contract.__module__ == name}
        if left:
            found[name] = left

    assert found == _INSIDE


def test_every_edge_has_calls() -> None:
    assert [contract.__name__ for contract in EDGES if not methods(contract)] == []


def test_a_seed_is_the_same_history_again() -> None:
    with quiet():
        first, second = [History(7).run() for _ in range(2)]

    assert first == second


@pytest.mark.timeout(_TIMEOUT_S)
def test_one_fault_at_each_call_in_turn_loses_and_doubles_nothing() -> None:
    """Row C4: killed, failed, answer lost, frozen over a take-over, at every call of one short history."""
    with quiet():
        runs = list(exhaustive.run_all())

    assert [(number, label, fault, str(broken)) for number, label, fault, broken in runs if broken is not None] == []
    assert len(runs) > 1000
    assert {fault for _, _, fault, _ in runs} == {
        "kill",
        "fail",
        "take_over",
        "overtake",
        "end",
        "unknown",
        "produce",
        "lost",
    }


@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that cannot fail shows nothing: each clause left out is found by the obligation that it serves."""
    mutant, obligation = MUTANTS[name]
    mutant(monkeypatch)
    with quiet():
        for seed in range(_MUTANT_SEEDS):
            broken = History(seed).run().violation
            if broken is not None and broken.obligation == obligation:
                return

    raise AssertionError(f"{name} broke no {obligation} in {_MUTANT_SEEDS} histories")


def _modules() -> list[str]:
    """Those of the code that runs here."""
    packages = ("capture", "progress", "publish", "replication", "startup")
    found = ["cdc.clock", "cdc.contracts", "cdc.capture.pipeline", "cdc.capture.table_planner"]
    for package in packages:
        inside = import_module(f"{cdc.__name__}.{package}")
        found += [f"{inside.__name__}.{one.name}" for one in iter_modules(inside.__path__)]
    return found
