"""Alembic's environment for the outbox tables. `outbox.migrate` runs it and passes connection and settings.

It reads no configuration file and no URL. The version table is in the schema of the tables, so that other uses of
Alembic in the database have their own history.
"""

from __future__ import annotations

from typing import Any

from alembic import context

from outbox.revisions import VERSION_TABLE, Settings

_config = context.config
_settings: Settings = _config.attributes["settings"]
_connection: Any = _config.attributes.get("connection")
_common: dict[str, Any] = {
    "version_table": VERSION_TABLE,
    "version_table_schema": _settings.names.schema,
    "transaction_per_migration": True,
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, output_buffer=_config.output_buffer, **_common)
else:
    context.configure(connection=_connection, **_common)

with context.begin_transaction():
    context.run_migrations()
