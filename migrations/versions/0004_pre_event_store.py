"""Creates the event store and the table for snapshots of aggregate states."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from outbox.revisions import settings_of

revision = "0004"
down_revision = "0003"
phase = "pre"
drops = ("event_store",)


def upgrade() -> None:
    """Create both tables."""
    names = settings_of(op.get_context()).names
    store, snapshot = names.event_store, names.snapshot
    op.create_table(
        store,
        sa.Column("position", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("aggregate_type", sa.Text, nullable=False),
        sa.Column("aggregate_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("payload", postgresql.JSON, nullable=False),
        sa.Column("headers", postgresql.JSONB, nullable=False, server_default=sa.text("'{}'")),
        _created_at(),
        sa.PrimaryKeyConstraint("aggregate_type", "aggregate_id", "sequence", name=f"{store}_pkey"),
        sa.UniqueConstraint("id", name=f"{store}_id_key"),
        sa.UniqueConstraint("position", name=f"{store}_position_key"),
        sa.CheckConstraint("sequence > 0", name=f"{store}_sequence_from_one"),
        schema=names.schema,
    )
    op.create_table(
        snapshot,
        sa.Column("aggregate_type", sa.Text, nullable=False),
        sa.Column("aggregate_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("state_version", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.Column("state", postgresql.JSON, nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("aggregate_type", "aggregate_id", name=f"{snapshot}_pkey"),
        schema=names.schema,
    )


def downgrade() -> None:
    """Drop both tables. The events of the store are lost."""
    names = settings_of(op.get_context()).names
    op.drop_table(names.snapshot, schema=names.schema)
    op.drop_table(names.event_store, schema=names.schema)


def _created_at() -> sa.Column[object]:
    return sa.Column(
        "created_at",
        postgresql.TIMESTAMP(timezone=True),
        nullable=False,
        server_default=sa.text("clock_timestamp()"),
    )
