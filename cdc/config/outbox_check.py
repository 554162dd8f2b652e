"""Checks settings of `[outbox]` that depend on each other: topic names, columns, extra columns. Pure."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from cdc.config.outbox_settings import AGGREGATE, PIPELINE, Outbox
from cdc.config.settings import Config
from cdc.errors import ConfigError

FIELDS: Final = frozenset(
    {
        "id", "aggregate_type", "aggregate_id", "type", "payload", "payload_bytes", "version", "content_type",
        "headers", "ordering_key", "created_at",
    }
)  # fmt: skip
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]*")
_PLACEMENT: Final = re.compile(r"(header|envelope)(:[^:]+)?")
_RESERVED: Final = frozenset({"id", "type", "version", "content-type", "payload"})
_OURS: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)\.")
_TAKEN: Final = frozenset({"views"})
_LONGEST: Final = 100  # of the pattern's fixed part; Kafka allows 249 characters with the type


def checked(config: Config, where: str) -> Config:
    """Return the configuration with the outbox table excluded from `source.tables`. Raises ConfigError."""
    outbox = config.outbox
    if outbox is None:
        return config
    _check_topic(config.name, outbox, f"{where}: outbox.topic")
    for field in outbox.columns:
        if field not in FIELDS:
            raise ConfigError(
                f"{where}: unknown field {field!r} in outbox.columns",
                hint=f"expected one of {', '.join(sorted(FIELDS))}; publish another column with outbox.extra, as "
                f'{{{field} = "header"}}',
            )
    for column, placement in outbox.extra.items():
        _check_placement(column, placement, where)
    if outbox.publish_table:
        return config
    # `outbox.table_partitions` names the partitions; the rows of a partition arrive as rows of the table.
    table = literal_pattern(outbox.table)
    left_out = (f"!{table}", f"!{table}_p{'[0-9]' * 8}", f"!{table}_default")
    return structs.replace(config, source=structs.replace(config.source, tables=(*config.source.tables, *left_out)))


def literal_pattern(table: str) -> str:
    """Return a shell pattern that matches exactly this text."""
    return re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", table)


def _check_topic(name: str, outbox: Outbox, key: str) -> None:
    pattern = outbox.topic
    if pattern.count(AGGREGATE) != 1:
        said = f"{key} is {pattern!r}; it must contain {AGGREGATE} exactly once"
        raise ConfigError(said, hint=f'for example "{PIPELINE}.events.{AGGREGATE}"')
    fixed = pattern.replace(PIPELINE, name).replace(AGGREGATE, "")
    if _LEGAL.fullmatch(fixed) is None or len(fixed) > _LONGEST:
        raise ConfigError(
            f"{key} is {pattern!r}; expected letters, digits, dots, _ and -, at most {_LONGEST} without the type"
        )
    head = pattern.replace(PIPELINE, name).partition(AGGREGATE)[0]
    own = f"{name}."
    if own.startswith(head) or (head.startswith(own) and not _is_space(head.removeprefix(own))):
        raise ConfigError(
            f"{key} is {pattern!r}: names of event topics could clash with other topics of this pipeline",
            hint=f'add a word of its own after {{name}}, for example "{PIPELINE}.events.{AGGREGATE}"',
        )


def _is_space(rest: str) -> bool:
    match = _OURS.match(rest)
    return match is not None and match[1] not in _TAKEN


def _check_placement(column: str, placement: str, where: str) -> None:
    match = _PLACEMENT.fullmatch(placement)
    if match is None:
        raise ConfigError(
            f"{where}: invalid placement {column!r} = {placement!r} in outbox.extra",
            hint='expected "header", "header:NAME", "envelope" or "envelope:NAME"',
        )
    name = match[2][1:] if match[2] else column
    if name in _RESERVED:
        raise ConfigError(
            f"{where}: outbox.extra has {column!r} = {placement!r}, but every event already has {name!r}",
            hint=f'choose another name, for example "{match[1]}:{name}_2"',
        )
