"""Checks the error tree: every class is documented, consistent, and has one retry policy."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import cdc
import outbox.errors
from cdc import errors
from cdc.errors import EXIT_FAILED, EXIT_OPERATOR, EXIT_USAGE, TailraceError
from cdc.model.run_state import State


def _below(kind: type[TailraceError]) -> list[type[TailraceError]]:
    found = [kind]
    for child in kind.__subclasses__():
        found += _below(child)
    return found


_CLASSES = sorted(
    {value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, TailraceError)},
    key=lambda kind: kind.__name__,
)


def test_drawing_of_the_tree_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^ {4}([|` ]*(?:- )?)([A-Z]\w+)(?:\s|$)", line)
        if match is None:
            continue
        depth, name = len(match[1]) // 3, match[2]
        path = [*path[:depth], (depth, name)]
        drawn[name] = path[depth - 1][1] if depth else ""

    real = {
        kind.__name__: kind.__base__.__name__ if kind is not TailraceError else "" for kind in _CLASSES if kind.__base__
    }
    assert drawn == real


@pytest.mark.parametrize("kind", _CLASSES)
def test_policy_state_and_exit_code_of_a_class_agree(kind: type[TailraceError]) -> None:
    state = State(kind.state) if kind.state else None
    if kind.retry == "timed":
        assert state in {None, State.WAITING}
        assert kind.exit_code == EXIT_FAILED
    elif kind.retry == "operator":
        assert state is None or state.needs_operator
        assert kind.exit_code in {EXIT_OPERATOR, EXIT_USAGE, EXIT_FAILED}
    else:
        assert (kind.retry, state, kind.exit_code) == ("never", None, EXIT_FAILED)
    if state is not None and state.needs_operator:
        assert kind.retry == "operator"


@pytest.mark.parametrize("kind", _CLASSES)
def test_every_class_says_what_it_means(kind: type[TailraceError]) -> None:
    assert kind.__doc__
    assert kind.__doc__ != kind.__base__.__doc__ if kind.__base__ else True


def test_every_error_of_the_service_stands_in_the_one_tree() -> None:
    """The reference would not show a subclass that is defined elsewhere."""
    for module in pkgutil.walk_packages(cdc.__path__, "cdc."):
        if not module.name.startswith(("cdc.__main__", "cdc.demo")):
            importlib.import_module(module.name)

    ours = [kind for kind in _below(TailraceError) if kind.__module__.split(".")[0] == "cdc"]
    assert [f"{kind.__module__}.{kind.__name__}" for kind in ours if kind.__module__ != "cdc.errors"] == []


def test_facts_are_attributes_and_not_in_the_message() -> None:
    error = TailraceError("what happened", hint="what to do", command="cdc doctor", table="public.t", lsn=5)

    assert str(error) == "what happened"
    assert (error.hint, error.command, error.facts) == ("what to do", "cdc doctor", {"table": "public.t", "lsn": 5})


def test_drawing_of_the_outbox_tree_is_its_tree() -> None:
    kinds = [kind for kind in vars(outbox.errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    drawn = re.findall(r"^ {4}[|` -]*([A-Z]\w+)\s", outbox.errors.__doc__ or "", re.MULTILINE)

    assert sorted(drawn) == sorted(kind.__name__ for kind in kinds)
    assert all(kind.__doc__ for kind in kinds)
