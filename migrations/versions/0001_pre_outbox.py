"""Creates the outbox table, optionally partitioned by creation time.

A partitioned table has a default partition, so that an insert of an application never fails because of a missing
partition.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from outbox.revisions import settings_of
from outbox.table_partitions import create_default

revision = "0001"
down_revision = None
phase = "pre"
drops = ("outbox",)


def upgrade() -> None:
    """Create the table."""
    settings = settings_of(op.get_context())
    name = settings.names.outbox
    key = ("id", "created_at") if settings.partitioned else ("id",)
    op.create_table(
        name,
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("aggregate_type", sa.Text, nullable=False),
        sa.Column("aggregate_id", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("payload", postgresql.JSON, nullable=True),
        sa.Column("payload_bytes", sa.LargeBinary, nullable=True),
        sa.Column("content_type", sa.Text, nullable=False, server_default=sa.text("'application/json'")),
        sa.Column("headers", postgresql.JSONB, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("ordering_key", sa.Text, nullable=True),
        sa.Column(
            "created_at",
            postgresql.TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("clock_timestamp()"),
        ),
        sa.PrimaryKeyConstraint(*key, name=f"{name}_pkey"),
        sa.CheckConstraint("payload is null or payload_bytes is null", name=f"{name}_one_payload"),
        schema=settings.names.schema,
        postgresql_partition_by="range (created_at)" if settings.partitioned else None,
    )
    if settings.partitioned:
        op.execute(sa.text(create_default(settings.names.schema, name).replace(":", "\\:")))


def downgrade() -> None:
    """Drop the table with its rows."""
    names = settings_of(op.get_context()).names
    op.drop_table(names.outbox, schema=names.schema)
