"""The requests of operators: one struct per action, read from JSON, and the arguments that may be recorded. Pure.

{"action": "sink.pause", "sink": "search"}
{"action": "snapshot.start", "tables": ["public.orders"], "where": "id >= 100"}
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from cdc.errors import UsageError
from snapshot.condition import LENGTH_MAX
from snapshot.table_patterns import PATTERN_MAX

_NAME_MAX: Final = 200
_TABLES_MAX: Final = 1000  # as in one signal
_KEYS_MAX: Final = 10_000  # as in one signal
_HIDDEN: Final = frozenset({"where", "key", "keys"})
"""Fields that may hold values of rows."""

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=_NAME_MAX)]
Tables: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=PATTERN_MAX)], ...], Meta(min_length=1, max_length=_TABLES_MAX)
]
"""Names or patterns. An empty list is refused, because a program might mean no table, and not all."""

ErrorClass: TypeAlias = Annotated[str, Meta(min_length=1, max_length=_NAME_MAX)]
RowKey: TypeAlias = dict[str, Any] | str | int | float | bool
"""A key as in the topic, or the value of its only column."""


class _Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="action"):
    """The common form of requests."""


class SinkPause(_Request, frozen=True, tag="sink.pause"):
    """Stop a search or cache sink from applying records, also after a restart."""

    sink: Name


class SinkResume(_Request, frozen=True, tag="sink.resume"):
    """Let a paused sink continue from its position."""

    sink: Name


class SnapshotStart(_Request, frozen=True, tag="snapshot.start"):
    """Copy rows of tables into the log again: all, those that match a condition, or those with these keys."""

    tables: Tables
    where: Annotated[str, Meta(min_length=1, max_length=LENGTH_MAX)] | UnsetType = UNSET
    keys: Annotated[tuple[msgspec.Raw, ...], Meta(min_length=1, max_length=_KEYS_MAX)] | UnsetType = UNSET


class SnapshotPause(_Request, frozen=True, tag="snapshot.pause"):
    """Pause the snapshots of tables; without any, all."""

    tables: Tables | UnsetType = UNSET


class SnapshotResume(_Request, frozen=True, tag="snapshot.resume"):
    """Resume the paused snapshots of tables; without any, all."""

    tables: Tables | UnsetType = UNSET


class SnapshotStop(_Request, frozen=True, tag="snapshot.stop"):
    """Stop the snapshots of tables; without any, all."""

    tables: Tables | UnsetType = UNSET


class DeadLettersRetry(_Request, frozen=True, tag="dead_letters.retry"):
    """Apply dead letters of a sink again. Without filters, those of all keys."""

    sink: Name
    tables: Tables | UnsetType = UNSET
    error: ErrorClass | UnsetType = UNSET
    key: RowKey | UnsetType = UNSET


class DeadLettersSkip(_Request, frozen=True, tag="dead_letters.skip"):
    """Skip dead letters of a sink and unblock their keys. Without filters, those of all keys."""

    sink: Name
    tables: Tables | UnsetType = UNSET
    error: ErrorClass | UnsetType = UNSET
    key: RowKey | UnsetType = UNSET


class DdlAccept(_Request, frozen=True, tag="ddl.accept"):
    """Accept the open DDL findings of tables; without any, all."""

    tables: Tables | UnsetType = UNSET


class ViewSwap(_Request, frozen=True, tag="view.swap"):
    """Make the new version of a view of a lake active."""

    lake: Name
    view: Name


class ViewRollback(_Request, frozen=True, tag="view.rollback"):
    """Make the previous version of a view of a lake active again."""

    lake: Name
    view: Name


class LogLevel(_Request, frozen=True, tag="log.level"):
    """Set the level of the log of this process until it ends."""

    level: Literal["debug", "info", "warning"]


class ConfigReload(_Request, frozen=True, tag="config.reload"):
    """Read the configuration of capture again, and take over what can change while it runs."""


SnapshotRequest: TypeAlias = SnapshotStart | SnapshotPause | SnapshotResume | SnapshotStop
DeadLettersRequest: TypeAlias = DeadLettersRetry | DeadLettersSkip
ViewRequest: TypeAlias = ViewSwap | ViewRollback
ActionRequest: TypeAlias = (
    SinkPause
    | SinkResume
    | SnapshotStart
    | SnapshotPause
    | SnapshotResume
    | SnapshotStop
    | DeadLettersRetry
    | DeadLettersSkip
    | DdlAccept
    | ViewSwap
    | ViewRollback
    | LogLevel
    | ConfigReload
)


def action_of(request: ActionRequest) -> str:
    """Return the name of the action, for example ``sink.pause``."""
    return str(type(request).__struct_config__.tag)


ACTIONS: Final = tuple(str(kind.__struct_config__.tag) for kind in get_args(ActionRequest))
"""The names of all actions."""


def parse(body: bytes) -> ActionRequest:
    """Return the request of a JSON body. Raises UsageError."""
    try:
        return cast("ActionRequest", msgspec.json.decode(body, type=ActionRequest))
    except msgspec.ValidationError as error:
        raise UsageError(f"invalid action: {error}", hint=f"actions: {', '.join(ACTIONS)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UsageError(
            "invalid action: the body is not JSON", hint='expected e.g. {"action": "sink.pause", "sink": "search"}'
        ) from None


def recorded_arguments(request: ActionRequest) -> dict[str, Any]:
    """Return the given arguments as a record may have them: row keys and conditions only as true."""
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    return {name: True if name in _HIDDEN else value for name, value in given.items() if value is not UNSET}
