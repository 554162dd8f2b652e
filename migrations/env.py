"""Alembic's environment of the outbox tables; run by `outbox.migrate`, which hands in connection and settings.

Knows no configuration file and no URL. The version table lies in the schema of the tables, so that the history is
theirs alone, whatever else uses Alembic in the database.
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
