"""Translates Debezium's options for values into settings of `[encode]`. Pure.

An option with the same result in JSON is accepted. Every other option is rejected with a message that names the
alternative. https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdc.config.settings import Config, Encode
from cdc.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OptionMapping:
    """Maps one of Debezium's options to a setting of `[encode]`.

    Attributes:
        key: the setting.
        same: Debezium's value -> the setting's value.
        other: Debezium's value -> why it is not supported, and the alternative.
    """

    key: str
    same: Mapping[str, str]
    other: Mapping[str, str]


_MILLISECONDS: Final = "its unit, milliseconds or microseconds, depends on the current precision of the column"

CHOICES: Final[Mapping[str, OptionMapping]] = {
    "decimal.handling.mode": OptionMapping(
        "numeric",
        {"string": "string"},
        {
            "precise": "it needs a Kafka Connect schema for the scale of the number, and records have no such schema; "
            'numeric = "string" and numeric = "number" are exact too',
            "double": 'a double has only 15 digits; numeric = "number" writes a number with all digits',
        },
    ),
    "time.precision.mode": OptionMapping(
        "time",
        {"microseconds": "micros"},
        {
            "isostring": 'it appends a Z to values without a time zone; time = "iso" does not',
            "adaptive": f'{_MILLISECONDS}; time = "micros" is always microseconds',
            "adaptive_time_microseconds": f'{_MILLISECONDS}; time = "micros" is always microseconds',
            "connect": 'milliseconds lose the last three digits of PostgreSQL\'s times; use time = "micros"',
            "nanoseconds": 'they overflow 64 bits before 1678 and after 2262; use time = "micros"',
        },
    ),
    "binary.handling.mode": OptionMapping(
        "bytea",
        {"bytes": "base64", "base64": "base64", "base64-url-safe": "base64url"},
        {"hex": 'it writes no leading \\x; bytea = "hex" writes it, like PostgreSQL'},
    ),
    "interval.handling.mode": OptionMapping(
        "interval",
        {"string": "iso"},
        {
            "numeric": "it counts a month as 30.4375 days, so different intervals become the same number; "
            'interval = "parts" keeps months, days and microseconds'
        },
    ),
    "hstore.handling.mode": OptionMapping(
        "hstore",
        {"map": "json"},
        {"json": 'it writes a string that holds JSON; hstore = "json" writes the object itself'},
    ),
}
"""Debezium's option -> its mapping. "Same" refers to Debezium's JSON without schemas."""


def translated(encode: Mapping[str, object], where: str) -> dict[str, object]:
    """Return the table ``[encode]`` with Debezium's options translated; unknown keys stay, with dots.

    Args:
        encode: the table of the file. ``"decimal.handling.mode"`` may be quoted or not.
        where: name of the file, for messages.

    Raises:
        ConfigError: a value is not supported or unknown, or contradicts a setting of ours.
    """
    modes = {"debezium": encode["debezium"]} if "debezium" in encode else {}
    found = dict(flat("", {key: value for key, value in encode.items() if key != "debezium"})) | modes
    for name, choice in CHOICES.items():
        if name not in found:
            continue
        value = found.pop(name)
        ours = _ours(name, choice, value, where)
        if found.setdefault(choice.key, ours) != ours:
            raise ConfigError(
                f"{where}: encode.{name} = {_quoted(value)} means {choice.key} = {_quoted(ours)}, "
                f"but encode.{choice.key} is {_quoted(found[choice.key])}",
                hint="remove one of them",
            )
    return found


MODES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "decimal.handling.mode": ("decimal", ("precise", "double", "string")),
    "time.precision.mode": (
        "time",
        ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    ),
    "binary.handling.mode": ("binary", ("bytes", "base64", "base64-url-safe", "hex")),
    "interval.handling.mode": ("interval", ("numeric", "string")),
    "hstore.handling.mode": ("hstore", ("json", "map")),
}
"""With `compatibility = "debezium"`: Debezium's option -> key in `encode.debezium`, values with the default first."""


def as_modes(encode: Mapping[str, object], where: str) -> dict[str, object]:
    """Like `translated`, with `compatibility = "debezium"`: the options keep their meaning in Debezium.

    Raises:
        ConfigError: Debezium does not know a value, or an option is set twice.
    """
    found = dict(flat("", {key: value for key, value in encode.items() if key != "debezium"}))
    chosen = encode.get("debezium", {})
    modes = dict(chosen) if isinstance(chosen, dict) else {}
    for name, (key, values) in MODES.items():
        if name not in found:
            continue
        value = found.pop(name)
        text = value.lower() if isinstance(value, str) else ""
        if text not in values:
            raise ConfigError(
                f"{where}: encode.{name} is {_quoted(value)}; expected one of {', '.join(map(_quoted, values))}"
            )
        if modes.setdefault(key, text) != text:
            raise ConfigError(
                f"{where}: encode.{name} is {_quoted(value)}, but encode.debezium.{key} is {_quoted(modes[key])}",
                hint="remove one of them",
            )
    return found | {"debezium": modes}


def check_compatibility(config: Config, where: str) -> None:
    """Raise ConfigError for settings that conflict with `encode.compatibility`."""
    encode = config.encode
    if encode.compatibility == "none":
        if encode.debezium:
            raise ConfigError(
                f'{where}: encode.debezium needs encode.compatibility = "debezium"',
                hint='add compatibility = "debezium", or remove encode.debezium',
            )
        return
    form = f'{where}: encode.compatibility = "debezium"'
    known = dict(MODES.values())
    for key, value in encode.debezium.items():
        if value not in known.get(key, ()):
            options = ", ".join(f'"{name}"' for name in MODES)
            raise ConfigError(
                f"{where}: encode.debezium.{key} is {_quoted(value)}; "
                + (f"expected one of {', '.join(map(_quoted, known[key]))}" if key in known else "unknown key"),
                hint=f"set Debezium's options in [encode] under their own names: {options}",
            )
    for key in ("numeric", "int64", "time", "bytea", "interval", "json", "hstore"):
        default = getattr(Encode(), key)
        if getattr(encode, key) != default:
            name = next((name for name, choice in CHOICES.items() if choice.key == key), "")
            raise ConfigError(
                f"{form} decides the form of every value, but encode.{key} is {_quoted(getattr(encode, key))}",
                hint=f"remove encode.{key}" + (f', or set "{name}"' if name else ""),
            )
    if encode.format == "avro":
        raise ConfigError(
            f'{form} supports JSON only, but encode.format is "avro"',
            hint='set encode.format = "json" or "flat", or remove encode.compatibility',
        )
    if config.sinks:
        raise ConfigError(
            f"{form} writes values that sinks cannot read: sinks.{min(config.sinks)}",
            hint="remove the sinks or encode.compatibility; a second pipeline with another `name` can capture the same "
            "tables",
        )


def _ours(name: str, choice: OptionMapping, value: object, where: str) -> str:
    text = value.lower() if isinstance(value, str) else ""
    if text in choice.same:
        return choice.same[text]
    if text in choice.other:
        raise ConfigError(
            f"{where}: encode.{name} = {_quoted(value)} is not supported: {choice.other[text]}",
            hint="docs/reference/types.md describes every form",
        )
    known = ", ".join(_quoted(one) for one in (*choice.same, *choice.other))
    raise ConfigError(f"{where}: encode.{name} is {_quoted(value)}; expected one of {known}")


def flat(prefix: str, table: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return pairs of dotted name and value: TOML reads ``a.b = 1`` as a table in a table."""
    pairs: list[tuple[str, object]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        pairs += flat(f"{name}.", value) if isinstance(value, dict) else [(name, value)]
    return pairs


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
