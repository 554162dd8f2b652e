"""`cdc config`: checks the configuration, shows where each value comes from, and compares configurations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import any_file, chosen_file, config_option, json_option
from cdc.cli.environment_notes import conflict_text, unknown_text
from cdc.config.config_file import ConfigFile
from cdc.config.load import load_all
from cdc.errors import EXIT_FAILED, EXIT_OK, SourceUnreachable, TailraceError, UsageError

NO_DAEMON: Final = "start capture, or run this where http.listen leads to it"

if TYPE_CHECKING:
    from cdc.config.environment import Override
    from cdc.config.settings import Config


@click.group("config")
def group() -> None:
    """Check, show and compare configurations.

    The environment overrides the file, and the file overrides the defaults. No command prints a secret.
    """


@group.command("check")
@config_option
@json_option
def check_command(config_path: Path | None, as_json: bool) -> None:
    """Check the file and the environment.

    Lists what the environment sets. Connects to no server; `cdc doctor` does. Exit code 2 if the configuration is not
    valid. A variable that begins with TAILRACE_ and matches no setting is a warning, because a mistyped name has no
    effect.
    """
    file = any_file(config_path)
    # Also compares the pipelines of a file with each other.
    several = {} if file.pipeline else load_all(file.path, os.environ)
    files = [ConfigFile(file.path, os.environ, name) for name in several] or [file]
    found = [_checked(one, as_json=as_json) for one in files]
    if as_json:
        named = {one.pipeline: document for one, (_, document) in zip(files, found, strict=True)}
        output.show_json({"file": str(file), **({"pipelines": named} if several else found[0][1])})
        return
    for one, (given, _) in zip(files, found, strict=True):
        _show_checked(one, given)


def _checked(file: ConfigFile, *, as_json: bool) -> tuple[list[Override], dict[str, Any]]:
    """Return what the environment sets of one pipeline, and the document of the check. Raises ConfigError."""
    from cdc.config.environment import overrides, unknown_variables
    from cdc.replication.connect import check_dsn

    unknown = unknown_variables(file.raw, file.environ)
    if not as_json:
        for variable, near in unknown:
            output.note(f"warning: {unknown_text(variable, near)}")
    check_dsn(file.load().source.dsn)
    given = overrides(file.raw, file.environ)
    return given, {
        "environment": [_document(one) for one in given],
        "unknown_variables": [{"variable": name, "nearest": near} for name, near in unknown],
    }


def _show_checked(file: ConfigFile, given: list[Override]) -> None:
    for one in given:
        if one.conflicts:
            output.note(f"warning: {conflict_text(one, file.path)}")
    of = f"pipeline {file.pipeline} of {file}" if file.pipeline else str(file)
    output.done(f"ok: {of} is valid, {_count(given)}")
    if given:
        table = output.table("setting", "from", "in the file")
        for one in given:
            table.add_row(*map(output.plain, (one.key, one.variable, "overridden" if one.in_file else "not set")))
        output.show_table(table)


@group.command("show")
@click.argument("part", required=False, default="")
@click.option("--all", "everything", is_flag=True, help="Include settings that have their default.")
@config_option
@json_option
def show_command(part: str, *, everything: bool, config_path: Path | None, as_json: bool) -> None:
    """Show settings and where each comes from.

    A value comes from the file, the environment or the defaults. PART limits the list to a section or a setting, for
    example source or kafka.partitions. Passwords are shown as ***.
    """
    file = chosen_file(config_path)
    found = [one for one in _settings(file, file.load()) if not part or _is_part(one["key"], part)]
    if part and not found:
        raise _no_part(part, file)
    shown = [one for one in found if everything or one["origin"] != "default"]
    if as_json:
        output.show_json({"file": str(file), "settings": shown})
        return
    if shown:
        table = output.table("setting", "value", "origin")
        for one in shown:
            table.add_row(*map(output.plain, (one["key"], one["value"], one["origin"])))
        output.show_table(table)
    hidden = len(found) - len(shown)
    if hidden:
        output.note(f"{hidden} more {'has its' if hidden == 1 else 'have their'} default; --all shows all")


@group.command("diff")
@click.argument("other", required=False, type=click.Path(path_type=Path, dir_okay=False))
@config_option
@json_option
def diff_command(other: Path | None, config_path: Path | None, as_json: bool) -> int:
    """Compare the configuration with the running daemon, or two files.

    Without OTHER, compares what the daemon uses (it is asked at http.listen) with the file and the environment now, and
    says whether `cdc reload` applies each difference. With OTHER, compares both files, each with this environment. Of a
    secret it says only that it differs. Exit code 1 if there are differences.
    """
    file = chosen_file(config_path)
    now = file.load()
    if other is not None:
        second = ConfigFile(other, os.environ, file.pipeline)
        found = _between(now, second.load(), (file, second))
        names = (str(file), str(other))
    else:
        found = _from_daemon(now, file)
        names = ("running", "now")
    if as_json:
        output.show_json({"differences": found})
    elif not found:
        output.done("no differences" if other is not None else "the daemon uses what the file and environment say")
    else:
        _show_differences(found, names)
    return EXIT_FAILED if found else EXIT_OK


def _show_differences(found: list[dict[str, Any]], names: tuple[str, str]) -> None:
    with_reload = "reload" in found[0]
    table = output.table("setting", *names, *(["applied by"] if with_reload else []))
    for one in found:
        cells = [one["key"], one["before"] or "-", one["after"] or "-"]
        if with_reload:
            cells.append("cdc reload" if one["reload"] else "a restart")
        table.add_row(*map(output.plain, cells))
    output.show_table(table)


def _settings(file: ConfigFile, config: Config) -> list[dict[str, str]]:
    from cdc.config.shown import settings_shown

    return settings_shown(config, file.raw, file.environ)


def _between(one: Config, two: Config, files: tuple[ConfigFile, ConfigFile]) -> list[dict[str, Any]]:
    """Return the differences of two configurations; a secret that differs has the same shown value in both."""
    from cdc.config.shown import differing

    before, after = (
        {setting["key"]: setting["value"] for setting in _settings(file, config)}
        for file, config in zip(files, (one, two), strict=True)
    )
    return [_difference(key, before.get(key, ""), after.get(key, "")) for key in differing(one, two)]


def _from_daemon(now: Config, file: ConfigFile) -> list[dict[str, Any]]:
    """Return the differences between the daemon's settings and `now`.

    The daemon shows no secrets, so only it can compare them: with its own file and environment.
    """
    from cdc.config.reloadable import RELOADABLE
    from cdc.inspect.pipeline_state import ask_daemon

    with output.waiting("asking the daemon"):
        try:
            daemon = ask_daemon(now.http, now.name, "/api/config")
        except SourceUnreachable as error:
            raise SourceUnreachable(error.message, hint=NO_DAEMON, command="cdc status") from None
    before = {one["key"]: one["value"] for one in daemon["settings"]}
    after = {one["key"]: one["value"] for one in _settings(file, now)}
    pending = daemon.get("pending") or {}
    if pending.get("error"):
        output.note(f"warning: the daemon cannot read its configuration now: {pending['error']}")
    live, restart = set(pending.get("reload") or ()), set(pending.get("restart") or ())
    found = []
    for key in {**after, **before}:
        if _comparable(key, before.get(key)) != _comparable(key, after.get(key)) or key in live | restart:
            can = key in live or (key in RELOADABLE and key not in restart)
            found.append({**_difference(key, before.get(key, ""), after.get(key, "")), "reload": can})
    return found


def _comparable(key: str, shown: str | None) -> object:
    """Return what to compare of a shown value: the password of the source may come from one environment only."""
    if key != "source.dsn" or shown is None:
        return shown
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    from cdc.config.secret import SECRET_PARAMETERS

    try:
        found = conninfo_to_dict(shown)
    except ProgrammingError:
        return shown
    return {name: str(value) for name, value in found.items() if name not in SECRET_PARAMETERS}


def _difference(key: str, before: str, after: str) -> dict[str, Any]:
    if before == after:  # both are masked
        return {"key": key, "before": before, "after": f"{after} (differs)", "secret": True}
    return {"key": key, "before": before, "after": after, "secret": False}


def _is_part(key: str, part: str) -> bool:
    return key == part or key.startswith(f"{part}.")


def _no_part(part: str, file: ConfigFile) -> TailraceError:
    from difflib import get_close_matches

    from cdc.config.settings import Config as Kind

    config = file.load()
    sections = list(Kind.__struct_fields__)
    if part in sections:
        return UsageError(f"{file} has no [{part}]")
    known = [one["key"] for one in _settings(file, config)]
    near = get_close_matches(part, [*sections, *known, *(f"sinks.{sink}" for sink in config.sinks)], n=1)
    return UsageError(
        f"no setting is named {part!r}",
        hint=f"did you mean {near[0]}?" if near else "docs/reference/config.md lists every setting",
        command="cdc config show --all",
    )


def _count(given: list[Override]) -> str:
    if not given:
        return "and the environment overrides nothing"
    return f"with {len(given)} setting{'' if len(given) == 1 else 's'} from the environment"


def _document(one: Override) -> dict[str, Any]:
    return {"key": one.key, "variable": one.variable, "in_file": one.in_file, "conflicts": one.conflicts}
