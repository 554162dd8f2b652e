"""Checks that every `cdc` command, option and environment variable that a text names exists.

Texts are the documents, and the strings, docstrings and help texts of the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, get_args, get_type_hints

import click
import pytest

from cdc.cli.main import cli
from cdc.config.secret import Secret
from cdc.config.section import section_of
from cdc.config.settings import Config
from tests.tidy.tree import ROOT, files, python_files, shown, text_of

_PRODUCT: Final = ("cdc", "sinks", "snapshot", "outbox", "migrations")
_QUOTED: Final = re.compile(r"`cdc ([^`\n]+)`")
_HOLE: Final = "\0"
"""Stands for a value that an f-string inserts."""
_OF_PIPELINE: Final = re.compile(r"TAILRACE_PIPELINE_[A-Z]+_")
_VARIABLE: Final = re.compile(r"\bTAILRACE_[A-Z0-9_<>]+")
_FAMILIES: Final = re.compile(
    r"TAILRACE_((KAFKA|REGISTRY)_OPTION_|SINK_.+_(OPTION|STORAGE)_|NOTIFY_.+_(URL|SECRET)$|SINK_$|KAFKA_OPTION_$|<SECTION>_<KEY>$)"
)


def _documents() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def _product() -> list[Path]:
    return [path for path in python_files() if path.relative_to(ROOT).parts[0] in _PRODUCT]


@cache
def _strings(path: Path) -> tuple[str, ...]:
    """Return every string of a module, including docstrings; an f-string is one string."""
    return tuple(_string(node) for node in _outermost(ast.parse(text_of(path))))


def _outermost(tree: ast.AST) -> Iterator[ast.AST]:
    if isinstance(tree, ast.JoinedStr) or (isinstance(tree, ast.Constant) and isinstance(tree.value, str)):
        yield tree
        return
    if not _is_application_name(tree):
        for child in ast.iter_child_nodes(tree):
            yield from _outermost(child)


def _is_application_name(node: ast.AST) -> bool:
    """Whether it names a session in PostgreSQL, as "cdc heartbeat"."""
    if isinstance(node, ast.keyword):
        return node.arg == "application_name"
    target = node.target if isinstance(node, ast.AnnAssign) else None
    return isinstance(target, ast.Name) and target.id.endswith("APPLICATION_NAME")


def _string(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_string(part) if isinstance(part, ast.Constant) else _HOLE for part in node.values)
    assert isinstance(node, ast.Constant)
    return str(node.value)


def _named() -> Iterator[tuple[str, str]]:
    """Yield (file, the words after `cdc`)."""
    for path in _documents():
        for words in _QUOTED.findall(text_of(path)):
            yield shown(path), words
    for path in _product():
        for text in _strings(path):
            if re.match(r"cdc [a-z-]", text) and "\n" not in text:
                yield shown(path), text.removeprefix("cdc ")
            for words in _QUOTED.findall(text):
                yield shown(path), words


def _problem(line: str) -> str:
    """Return why a command line is not one of ours; empty if it is."""
    words = [word for part in re.split(r"\s*(?:&&|\||;|#)\s*", line)[:1] for word in part.split()]
    if words[:1] == ["-c"]:
        words = words[2:]
    command: click.Command = cli
    context = click.Context(cli, info_name="cdc")
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z]+", words[0]):
        found = command.get_command(context, words[0])
        if found is None:
            return f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    if isinstance(command, click.Group) and words and _HOLE in words[0]:
        return ""
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    known |= {"-h", "--help"}
    for word in words:
        option = re.match(r"--[a-z][a-z-]*(?=$|[=\[\]\\s,.|)])", word)
        if option is not None and option[0] not in known:
            return f"there is no option {option[0]}"
    return ""


def test_every_command_that_is_named_exists() -> None:
    named = list(_named())

    wrong = [f"{where}: cdc {line}: {problem}" for where, line in named if (problem := _problem(line))]
    assert len(named) > 200
    assert sorted(set(wrong)) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("doctor --sql", ""),
        ("sink run lake --until-eof", ""),
        ("bench", "there is no command 'bench'"),
        ("sink walk lake", "there is no command 'walk'"),
        ("slot drop --force", "there is no option --force"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, problem: str) -> None:
    assert _problem(line) == problem


def test_every_environment_variable_that_is_named_is_read() -> None:
    named = {
        (shown(path), variable)
        for path in [*_documents(), ROOT / "docker" / "compose.yaml"]
        for variable in _VARIABLE.findall(text_of(path))
    }

    unread = sorted(f"{where}: {name}" for where, name in named if not _is_read(name.rstrip("_") or name, name))
    assert len(named) > 50
    assert unread == []


def test_every_environment_variable_that_local_servers_export_is_read_by_the_configuration() -> None:
    local = [path for path in _product() if path.parent.name == "local"]
    exported = {
        text for path in local for text in _strings(path) if re.fullmatch(r"TAILRACE_\w+_(URL|DSN|BOOTSTRAP)", text)
    }

    assert len(exported) >= 5
    assert sorted(name for name in exported if name not in _settings()) == []


def test_every_setting_that_is_named_with_a_value_exists() -> None:
    """As in `snapshot.mode = "never"`."""
    sections = {
        name: get_type_hints(kind) for name, hint in get_type_hints(Config).items() if (kind := section_of(hint))
    }
    wanted = re.compile(rf"(?<![\w./])({'|'.join(sections)})\.([a-z0-9_]+) = ")
    texts = [(shown(path), text_of(path)) for path in _documents()]
    texts += [(shown(path), text) for path in _product() for text in _strings(path)]

    named = [(where, *found) for where, text in texts for found in wanted.findall(text)]
    assert len(named) > 20
    assert sorted({f"{where}: {section}.{key}" for where, section, key in named if key not in sections[section]}) == []


@cache
def _settings() -> frozenset[str]:
    """The variables that `cdc.config.load` reads, without families."""
    found = {"TAILRACE_NAME", "TAILRACE_SEARCH_URL", "TAILRACE_CACHE_URL"}
    for section, hint in get_type_hints(Config).items():
        kind = section_of(hint)
        for name, wanted in get_type_hints(kind).items() if kind else ():
            if Secret not in get_args(wanted):
                found.add(f"TAILRACE_{section}_{name}".upper())
    return frozenset(found | {"TAILRACE_SOURCE_PASSWORD"})


@cache
def _code() -> str:
    """The code that reads the environment: the product, its tests and the Makefile."""
    return "\n".join(text for path in python_files() for text in _strings(path))


def _is_read(name: str, text: str) -> bool:
    if text == "TAILRACE_PIPELINE_<NAME>_<SECTION>_<KEY>":
        return True
    if (of_one := _OF_PIPELINE.match(text)) is not None:  # the name of the pipeline, then a variable for all
        name = text = f"TAILRACE_{text.removeprefix(of_one[0])}"
    if _FAMILIES.match(text) or name in _settings():
        return True
    return re.search(rf"\b{re.escape(name)}\b", _code()) is not None
