"""Debezium's names for how values look, in ours. Pure.

An option that is the same in JSON is taken; one that is not is refused with a sentence that says what there is
instead. https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdc.config.settings import Config, Encode
from cdc.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OptionMapping:
    """What one of Debezium's options means here.

    Attributes:
        key: our option.
        same: Debezium's value -> ours.
        other: Debezium's value -> why it is refused, and what to write instead.
    """

    key: str
    same: Mapping[str, str]
    other: Mapping[str, str]


_MILLISECONDS: Final = "a factor of 1,000 then depends on the precision the column has just now"

CHOICES: Final[Mapping[str, OptionMapping]] = {
    "decimal.handling.mode": OptionMapping(
        "numeric",
        {"string": "string"},
        {
            "precise": "it writes the bytes of a number whose scale is in a Kafka Connect schema, and there is none "
            'here; numeric = "string" is as exact, and so is "number"',
            "double": 'a double has 15 digits; numeric = "number" writes a number with all of them',
        },
    ),
    "time.precision.mode": OptionMapping(
        "time",
        {"microseconds": "micros"},
        {
            "isostring": 'it puts a Z behind values that have no time zone; time = "iso" writes none',
            "adaptive": f'{_MILLISECONDS}; time = "micros" is always microseconds',
            "adaptive_time_microseconds": f'{_MILLISECONDS}; time = "micros" is always microseconds',
            "connect": 'milliseconds lose the last three digits of PostgreSQL\'s times; there is time = "micros"',
            "nanoseconds": 'they overflow 64 bits before 1678 and after 2262; there is time = "micros"',
        },
    ),
    "binary.handling.mode": OptionMapping(
        "bytea",
        {"bytes": "base64", "base64": "base64", "base64-url-safe": "base64url"},
        {"hex": 'it writes no \\x in front; bytea = "hex" does, as PostgreSQL does'},
    ),
    "interval.handling.mode": OptionMapping(
        "interval",
        {"string": "iso"},
        {
            "numeric": "it takes a month for 30.4375 days, so different intervals become one number; "
            'interval = "parts" has months, days and microseconds'
        },
    ),
    "hstore.handling.mode": OptionMapping(
        "hstore",
        {"map": "json"},
        {"json": 'it writes a string that holds JSON; hstore = "json" is the object itself'},
    ),
}
"""Debezium's option -> ours. What is the same is so in Debezium's JSON without schemas."""


def translated(encode: Mapping[str, object], where: str) -> dict[str, object]:
    """The table ``[encode]`` with Debezium's options as ours; keys that are nobody's stay, with dots.

    Args:
        encode: as the file has it. ``"decimal.handling.mode"`` may stand in quotes or not.
        where: name of the file, for messages.

    Raises:
        ConfigError: a value is refused or unknown, or says something else than an option of ours beside it.
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
                f"and encode.{choice.key} is {_quoted(found[choice.key])}",
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
"""With `compatibility = "debezium"`: Debezium's option -> key in `encode.debezium`, values, its default first."""


def as_modes(encode: Mapping[str, object], where: str) -> dict[str, object]:
    """As `translated`, with `compatibility = "debezium"`: the options say what they say in Debezium.

    Raises:
        ConfigError: a value is none that Debezium has, or the same option stands there twice.
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
                f"{where}: encode.{name} is {_quoted(value)}, and encode.debezium.{key} is {_quoted(modes[key])}",
                hint="remove one of them",
            )
    return found | {"debezium": modes}


def check_compatibility(config: Config, where: str) -> None:
    """Refuse what does not go together with `encode.compatibility`. Raises ConfigError."""
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
                hint=f"Debezium's options go into [encode] under their own names: {options}",
            )
    for key in ("numeric", "int64", "time", "bytea", "interval", "json", "hstore"):
        default = getattr(Encode(), key)
        if getattr(encode, key) != default:
            name = next((name for name, choice in CHOICES.items() if choice.key == key), "")
            raise ConfigError(
                f"{form} decides the form of every value, and encode.{key} is {_quoted(getattr(encode, key))}",
                hint=f"remove encode.{key}" + (f', or set "{name}"' if name else ""),
            )
    if encode.format == "avro":
        raise ConfigError(
            f'{form} is for JSON, and encode.format is "avro"',
            hint='set encode.format = "json" or "flat", or remove encode.compatibility',
        )
    if config.sinks:
        raise ConfigError(
            f"{form} writes values that sinks do not read: sinks.{min(config.sinks)}",
            hint="remove the sinks or encode.compatibility; another `name` can capture the same tables twice",
        )


def _ours(name: str, choice: OptionMapping, value: object, where: str) -> str:
    text = value.lower() if isinstance(value, str) else ""
    if text in choice.same:
        return choice.same[text]
    if text in choice.other:
        raise ConfigError(
            f"{where}: encode.{name} = {_quoted(value)} is not to be had: {choice.other[text]}",
            hint="docs/reference/types.md has every form",
        )
    known = ", ".join(_quoted(one) for one in (*choice.same, *choice.other))
    raise ConfigError(f"{where}: encode.{name} is {_quoted(value)}; Debezium has {known}")


def flat(prefix: str, table: Mapping[str, object]) -> list[tuple[str, object]]:
    """Pairs of dotted name and value: TOML reads ``a.b = 1`` as a table in a table."""
    pairs: list[tuple[str, object]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        pairs += flat(f"{name}.", value) if isinstance(value, dict) else [(name, value)]
    return pairs


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
