"""Sizes, names, docstrings, and what must not be in a file. Needs no server."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, python_files, shown, text_of

_FILE_LINES_MAX = 500
_FUNCTION_LINES_MAX = 70
_VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "core", "base", "misc"}
# Spelled in pieces, so that this file does not contain what it looks for.
_UNFINISHED = re.compile(r"\b(" + "TO" + "DO|" + "FIX" + "ME|" + "XX" + r"X)\b(?!\s*\(#\d+\))")
_MACHINE_PATHS = re.compile(r"(?<![\w.])/(" + "wo" + "rk|" + "ro" + "ot|" + "fa" + r"rm)/")
_REGISTRIES = re.compile(
    "|".join(
        re.escape(".".join(host))
        for host in (
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("repo1", "maven", "org"),
            ("repo", "maven", "apache", "org"),
            ("registry", "npmjs", "org"),
            ("proxy", "golang", "org"),
        )
    )
)


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    lengths = {shown(path): len(text_of(path).splitlines()) for path in python_files()}

    assert {name: lines for name, lines in lengths.items() if lines > _FILE_LINES_MAX} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = {}
    for path in python_files():
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > _FUNCTION_LINES_MAX:
                    long[f"{shown(path)}:{node.name}"] = lines

    assert long == {}


def test_every_module_says_what_it_is() -> None:
    """An empty file has nothing to say, and a file of tests says it in their names."""
    speaking = [path for path in python_files() if text_of(path).strip() and not path.name.startswith("test_")]
    silent = [path for path in speaking if not ast.get_docstring(_parsed(path))]

    assert [shown(path) for path in silent] == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [shown(path) for path in python_files() if path.stem in _VAGUE_NAMES] == []


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("unfinished work without an issue", _UNFINISHED),
        ("a path of somebody's machine", _MACHINE_PATHS),
        ("the host of a package registry", _REGISTRIES),
    ],
)
def test_no_file_contains(what: str, pattern: re.Pattern[str]) -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()[:80]}"
        for path in files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == [], what


def test_events_in_the_log_are_snake_case_words() -> None:
    """Scripts and alerts rely on them."""
    odd = []
    for path in python_files():
        for node in ast.walk(_parsed(path)):
            event = _log_event(node)
            if event is not None and not re.fullmatch(r"[a-z][a-z0-9_]*", event):
                odd.append(f"{shown(path)}: {event!r}")

    assert odd == []


def test_tests_neither_sleep_nor_reach_for_the_wall_clock_in_the_quick_tiers() -> None:
    quick = [path for path in python_files() if path.parts[-2] in {"unit", "property"}]

    found = [shown(path) for path in quick if re.search(r"\b(time\.sleep|sleep\()", text_of(path))]

    assert found == []


def test_layout_names_every_package() -> None:
    """Each folder of a package is one, so that the wheel and the import rules see it."""
    folders = {
        path.parent for path in python_files() if shown(path).split("/")[0] in {"cdc", "snapshot", "sinks", "tests"}
    }

    assert [shown(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
    assert (ROOT / "cdc" / "py.typed").is_file()


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def _log_event(node: ast.AST) -> str | None:
    """The event of ``log.get().info("event", ...)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    of, first = node.func.value, node.args[0]
    if node.func.attr not in {"debug", "info", "warning", "error"} or not isinstance(of, ast.Call):
        return None
    if ast.unparse(of.func) != "log.get" or not isinstance(first, ast.Constant):
        return None
    return str(first.value)
