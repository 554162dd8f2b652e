"""Lists every setting of a configuration with its value and origin, without secrets. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import structs

from cdc.config.environment import PASSWORD_KEY, in_file, overrides
from cdc.config.secret import Secret
from cdc.config.settings import Config

Origin: TypeAlias = Literal["file", "environment", "default"]
_MASKED: Final = "***"


def settings_shown(config: Config, raw: Mapping[str, Any], environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return key, value and origin of each setting, in the order of the reference.

    `raw` is the parsed file. A value that the environment overrides has the origin ``environment``. A DSN and addresses
    are shown without their passwords, every other secret as ``***``.
    """
    given = {one.key for one in overrides(raw, environ)}
    if PASSWORD_KEY in given:
        given.add("source.dsn")  # it holds the password

    def origin(path: tuple[str, ...]) -> Origin:
        if any(".".join(path[:length]) in given for length in range(1, len(path) + 1)):
            return "environment"
        named = [(*path[:-1], path[-1] + suffix) for suffix in ("", "_file", "_command")]
        return "default" if all(in_file(raw, one) is None for one in named) else "file"

    return [
        {"key": ".".join(path), "value": _text(path, value), "origin": origin(path)}
        for path, value in _leaves(config, ())
    ]


def differing(old: Config, new: Config) -> list[str]:
    """Return the keys whose values differ, secrets included, in the order of the reference."""
    before, after = ({".".join(path): value for path, value in _leaves(one, ())} for one in (old, new))
    return [key for key in {**before, **after} if key not in before or key not in after or before[key] != after[key]]


def read_raw(file: Path | None) -> dict[str, Any]:
    """Return the parsed file; empty if there is none, or it cannot be read any more."""
    try:
        return {} if file is None else tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the settings below a section; a table without entries is one setting."""
    if isinstance(value, msgspec.Struct):
        for field in structs.fields(value):
            yield from _leaves(getattr(value, field.name), (*path, field.encode_name))
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, str(name)))
    elif value is not None:
        yield path, value


def _text(path: tuple[str, ...], value: object) -> str:
    if isinstance(value, Secret) and path[-1] != "dsn":
        return _MASKED
    if isinstance(value, Secret):
        return value.masked()
    if path[-1].endswith("_command") and isinstance(value, tuple) and len(value) > 1:
        return msgspec.json.encode([value[0], _MASKED]).decode()  # its arguments may hold a secret
    # An address that is not a secret may have a password all the same, such as that of the registry.
    return Secret(msgspec.json.encode(value).decode()).masked()
