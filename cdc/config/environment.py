"""Maps environment variables to settings: which ones override the file, and which ones match no setting. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

from cdc.config.section import section_of
from cdc.config.settings import Config

PREFIX: Final = "TAILRACE_"
PASSWORD: Final = "TAILRACE_SOURCE_PASSWORD"  # noqa: S105 - the name of a variable
PASSWORD_KEY: Final = "source.password"  # noqa: S105 - shown for the variable above; the file has no such key
IDENTITY: Final = ("name", "source.dsn", "kafka.bootstrap")
"""Settings that say which pipeline this is: another value leads to another database or to other topics."""

STORE_URLS: Final = {"search": "TAILRACE_SEARCH_URL", "cache": "TAILRACE_CACHE_URL"}
"""Kind of sink -> the variable with the address of its store, used if the file has none."""

_WITH_OPTIONS: Final = ("kafka", "registry")
_OPTION_TABLES: Final = frozenset(f"{section}.options" for section in _WITH_OPTIONS)
_ELSEWHERE: Final = (
    "TAILRACE_CACHE",  # folder of `cdc.local`
    "TAILRACE_CONTRACTS_REGISTRY",
    "TAILRACE_FAILPOINTS",
    "TAILRACE_INBOX_DSN",
    "TAILRACE_MIGRATE_DSN",
    *STORE_URLS.values(),
)
"""Variables that are read, but not by `cdc.config.load` for a setting of their name."""
_OF_TESTS: Final = "TAILRACE_TEST_"
_PLACE: Final = ("service", "host", "hostaddr", "port", "dbname")
"""What leads to a database in a libpq connection string; the user and TLS do not."""


@dataclass(frozen=True, slots=True)
class Override:
    """A setting whose value comes from the environment.

    Attributes:
        in_file: the file has a value for it, too.
        conflicts: it is one of IDENTITY, and the file says something else.
    """

    key: str
    variable: str
    in_file: bool
    conflicts: bool = False


def overrides(raw: Mapping[str, Any], environ: Mapping[str, str]) -> list[Override]:
    """Return the settings that `environ` sets, in the order of the variables. `raw` is the parsed file."""
    found = []
    known = _variables()
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        for key in (known[variable],) if variable in known else _of_tables(variable, raw):
            there = in_file(raw, [key])
            conflicts = key in IDENTITY and there is not None and not _same(key, there, environ[variable])
            found.append(Override(key, variable, there is not None, conflicts))
    return found


def unknown_variables(raw: Mapping[str, Any], environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the TAILRACE_ variables that nothing reads, each with the nearest known name, which may be empty."""
    known = [*_variables(), *_ELSEWHERE]
    prefixes = [prefix for prefix, _ in _prefixes(raw)]
    found = []
    for variable in sorted(environ):
        is_ours = variable.startswith(PREFIX) and not variable.startswith(_OF_TESTS)
        if is_ours and variable not in known and not variable.startswith(tuple(prefixes)):
            near = get_close_matches(variable, [*known, *prefixes], n=1, cutoff=0.75)
            found.append((variable, near[0] if near else ""))
    return found


def in_file(raw: Mapping[str, Any], path: Sequence[str]) -> object | None:
    """Return the value at a path of the parsed file; None if there is none.

    A name of an option may have dots: TOML reads ``options.sasl.password`` as nested tables, and
    ``options."sasl.password"`` as one name.
    """
    at: object = raw
    names = [name for part in path for name in part.split(".")]
    while names:
        if not isinstance(at, Mapping):
            return None
        held = (".".join(names[:length]) for length in range(len(names), 0, -1))
        name = next((name for name in held if name in at), None)
        if name is None:
            return None
        at, names = at[name], names[name.count(".") + 1 :]
    return at


def _variables() -> dict[str, str]:
    """Return variable -> key of every setting outside of tables with free names."""
    found = {f"{PREFIX}NAME": "name", PASSWORD: PASSWORD_KEY}
    for section, hint in get_type_hints(Config).items():
        kind = section_of(hint)
        if kind is not None:
            of_section = get_type_hints(kind)
            plain = [name for name in kind.__struct_fields__ if section_of(of_section[name]) is None]
            found |= {f"{PREFIX}{section}_{name}".upper(): f"{section}.{name}" for name in plain}
    return found


def _prefixes(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the beginnings of variables for options, each with the table that it fills."""
    for section in _WITH_OPTIONS:
        yield f"{PREFIX}{section}_OPTION_".upper(), f"{section}.options"
    for target in _tables(raw, "notify"):
        yield f"{PREFIX}NOTIFY_{target}_".upper(), f"notify.{target}"
    for sink, table in _sinks(raw):
        word, key = ("STORAGE", "storage") if table.get("kind") == "warehouse" else ("OPTION", "options")
        yield f"{PREFIX}SINK_{sink}_{word}_".upper(), f"sinks.{sink}.{key}"


def _of_tables(variable: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that a variable sets which is not the name of a single setting."""
    for prefix, table in _prefixes(raw):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            yield f"{table}.{name.replace('_', '.') if table in _OPTION_TABLES else name}"
    for sink, settings in _sinks(raw):
        if STORE_URLS.get(str(settings.get("kind"))) == variable and "url" not in settings:
            yield f"sinks.{sink}.url"


def _sinks(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from _tables(raw, "sinks").items()


def _tables(raw: Mapping[str, Any], section: str) -> dict[str, Mapping[str, Any]]:
    found = raw.get(section)
    tables = found.items() if isinstance(found, Mapping) else ()
    return {str(name): table for name, table in tables if isinstance(table, Mapping)}


def _same(key: str, there: object, given: str) -> bool:
    if key != "source.dsn" or there == given:
        return there == given
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        pair = [conninfo_to_dict(text) for text in (str(there), given)]
    except ProgrammingError:
        return False
    first, second = ([str(one.get(key, "")) for key in _PLACE] for one in pair)
    return first == second
