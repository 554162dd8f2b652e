"""Reads `[pipelines.*]`: several pipelines in one file, each merged with the tables that all of them share. Pure.

`cdc.config.load` validates each merged configuration; `conflict` compares them with each other.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Final

from cdc.config.environment import PREFIX
from cdc.config.settings import Cache, Config, Warehouse
from cdc.errors import ConfigError, UsageError

TABLE: Final = "pipelines"
VARIABLE: Final = f"{PREFIX}PIPELINE_"
"""`TAILRACE_PIPELINE_<NAME>_<REST>` is `TAILRACE_<REST>` of one pipeline."""

HEADER: Final = "Tailrace-Pipeline"
"""Names the pipeline that a request is for. The process of one pipeline ignores it."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_SHARED: Final = "http"
_OWN_KEYS: Final = ("dsn", "slot", "publication")
_OWN_VARIABLES: Final = tuple(f"{PREFIX}SOURCE_{key.upper()}" for key in _OWN_KEYS)
_DEFAULT_PORT: Final = "5432"


def names_of(raw: Mapping[str, Any], where: str) -> list[str]:
    """Return the names of the pipelines, sorted; empty for a file without `[pipelines]`. Raises ConfigError."""
    if TABLE not in raw:
        return []
    found = raw[TABLE]
    if not isinstance(found, Mapping) or not all(isinstance(table, Mapping) for table in found.values()):
        raise ConfigError(f"{where}: {TABLE} holds one table per pipeline", hint=f"write it as [{TABLE}.shop.source]")
    if not found:
        raise ConfigError(f"{where}: [{TABLE}] is empty", hint=f"add a table, for example [{TABLE}.shop.source]")
    for name in found:
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{where}: invalid pipeline name {name!r}; expected 1 to 40 lower-case letters, digits and "
                "underscores, the first one a letter"
            )
    return sorted(found)


def selected(raw: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return the configuration of one pipeline: the shared tables, overridden by its own. Raises ConfigError."""
    names = names_of(raw, where)
    if name not in names:
        raise unknown(name, names, where)
    if len(names) > 1:
        _check_variable_names(names, where)
    _check_shared(raw, where)
    own = raw[TABLE][name]
    if "name" in own:
        raise ConfigError(
            f"{where}: {TABLE}.{name}.name cannot be set: the name of a pipeline is the name of its table",
            hint=f"remove it; for another name, rename [{TABLE}.{name}]",
        )
    if _SHARED in own:
        raise ConfigError(
            f"{where}: {TABLE}.{name}.{_SHARED} cannot be set: one process serves HTTP for all pipelines",
            hint=f"set [{_SHARED}] at the top of the file",
        )
    shared = {key: value for key, value in raw.items() if key != TABLE}
    return {"name": name, **_merged(shared, own)}


def only(names: list[str], where: str) -> str:
    """Return the name of the only pipeline; empty for a file without `[pipelines]`. Raises UsageError for several."""
    if len(names) > 1:
        raise UsageError(f"{where} has several pipelines: {', '.join(names)}", hint="choose one with --pipeline NAME")
    return names[0] if names else ""


def unknown(name: str, names: list[str], where: str) -> UsageError:
    """Return the error for a pipeline that is not in the file."""
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"{where} has no pipeline {name!r}",
        hint=f"{hint}configured: {', '.join(names)}" if names else f"the file has no [{TABLE}.*]; omit --pipeline",
    )


def scoped(environ: Mapping[str, str], name: str, names: list[str]) -> dict[str, str]:
    """Return the environment of one pipeline.

    Its own variables replace those for all pipelines, and those of other pipelines are left out. Idempotent.
    """
    kept = {variable: value for variable, value in environ.items() if _owner(variable, names) is None}
    prefix = _prefix(name)
    for variable, value in environ.items():
        if _owner(variable, names) == name:
            kept[PREFIX + variable.removeprefix(prefix)] = value
    return kept


def check_own_variables(environ: Mapping[str, str], name: str) -> None:
    """Raise ConfigError for a variable that would rename the pipeline, or give it an HTTP server of its own."""
    prefix = _prefix(name)
    for variable in (f"{PREFIX}NAME", f"{prefix}NAME"):
        if variable in environ:
            raise ConfigError(
                f"{variable} is set, but the name of a pipeline is the name of its table [{TABLE}.{name}]",
                hint="unset it; --pipeline chooses a pipeline",
            )
    for variable in sorted(environ):
        if variable.startswith(f"{prefix}{_SHARED.upper()}_"):
            shared = f"{PREFIX}{variable.removeprefix(prefix)}"
            raise ConfigError(
                f"{variable} is set, but one process serves HTTP for all pipelines", hint=f"set {shared} instead"
            )


def check_variables(environ: Mapping[str, str], names: list[str]) -> None:
    """Raise ConfigError for a variable that would lead all pipelines to one database or slot."""
    for variable in (one for one in _OWN_VARIABLES if one in environ):
        raise ConfigError(
            f"{variable} is set, but it would apply to every pipeline: {', '.join(names)}",
            hint=f"unset it, or name the pipeline: {_prefix(names[0])}{variable.removeprefix(PREFIX)}",
        )


def conflict(configs: Mapping[str, Config], where: str) -> ConfigError | None:
    """Return the error for the first two pipelines that cannot run side by side; None if all can."""
    for (one, first), (two, second) in combinations(configs.items(), 2):
        mine, other = dict(_claims(first)), dict(_claims(second))
        for claim in mine.keys() & other.keys():
            return ConfigError(
                f"{where}: the pipelines {one} and {two} use the same {claim[0]} {claim[-1]!r}",
                hint=f"change {TABLE}.{one}.{mine[claim]} or {TABLE}.{two}.{other[claim]}",
            )
    return None


def _claims(config: Config) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what only one pipeline may have, with its key: (what, where, name)."""
    host, database = _place(config)
    yield ("replication slot", host, config.slot), "source.slot"
    if config.source.create:  # else capture never changes it
        yield ("publication", host, database, config.publication), "source.publication"
    for name, sink in config.sinks.items():
        key = f"sinks.{name}"
        if isinstance(sink, Warehouse):
            path = sink.path if "://" in sink.path else os.path.abspath(sink.path)  # noqa: PTH100 - pure: no file is read
            yield ("lake", path.rstrip("/")), f"{key}.path"
        if isinstance(sink, Cache):
            for pattern, template in sink.keys.items():
                if "{name}" not in template:
                    yield ("key template", sink.url, template), f'{key}.keys."{pattern}"'
        if sink.listen and not sink.listen.endswith(":0"):
            yield ("address", sink.listen), f"{key}.listen"


def _place(config: Config) -> tuple[str, str]:
    """Return server and database of the source, as far as its DSN says."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        found = {key: str(value) for key, value in conninfo_to_dict(config.source.dsn.reveal()).items()}
    except ProgrammingError:
        return config.source.dsn.reveal(), ""
    host = found.get("service") or found.get("host") or found.get("hostaddr") or "localhost"
    return f"{host}:{found.get('port', _DEFAULT_PORT)}", found.get("dbname", found.get("user", ""))


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key; a value of `own` replaces the shared one."""
    found = dict(shared)
    for key, value in own.items():
        there = found.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            found[key] = _merged(there, value)
        else:
            found[key] = value
    return found


def _check_shared(raw: Mapping[str, Any], where: str) -> None:
    source = raw.get("source")
    own = [f"source.{key}" for key in _OWN_KEYS if isinstance(source, Mapping) and key in source]
    for key in (*(one for one in ("name", "sinks") if one in raw), *own):
        raise ConfigError(
            f"{where}: {key} cannot be set at the top of a file with [{TABLE}.*]: it belongs to one pipeline",
            hint=f"move it into a pipeline, for example {TABLE}.shop.{key}"
            if key != "name"
            else f"remove it; the name of a pipeline is the name of its table [{TABLE}.NAME]",
        )


def _check_variable_names(names: list[str], where: str) -> None:
    """Refuse names whose variables could be those of another pipeline, such as `shop` and `shop_source`."""
    sections = {*Config.__struct_fields__, "sink"}
    for one, two in ((one, two) for one in names for two in names if two.startswith(f"{one}_")):
        rest = two.removeprefix(f"{one}_")
        taken = next((word for word in sections if rest == word or rest.startswith(f"{word}_")), None)
        if taken is not None:
            raise ConfigError(
                f"{where}: the pipeline names {one!r} and {two!r} are not distinct in variables: {_prefix(two)}... "
                f"could be {taken!r} of {one!r}",
                hint="rename one of them before its first start: its topics begin with the name",
            )


def _owner(variable: str, names: list[str]) -> str | None:
    """Return the pipeline of a variable: the longest name that fits."""
    fits = [name for name in names if variable.startswith(_prefix(name))]
    return max(fits, key=len) if fits else None


def _prefix(name: str) -> str:
    return f"{VARIABLE}{name.upper()}_"
