"""Creates the table for dead letters of consumers: events that failed, and later events with the same key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from outbox.revisions import settings_of

revision = "0005"
down_revision = "0004"
phase = "pre"
drops = ("dead_letter",)


def upgrade() -> None:
    """Create the table."""
    names = settings_of(op.get_context()).names
    name = names.dead_letter
    op.create_table(
        name,
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("consumer", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("record_offset", sa.BigInteger, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=True),
        sa.Column("headers", postgresql.JSONB, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("attempt_count", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column(
            "parked_at",
            postgresql.TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("clock_timestamp()"),
        ),
        sa.Column("wish", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name=f"{name}_pkey"),
        sa.UniqueConstraint("consumer", "topic", "partition", "record_offset", name=f"{name}_record_key"),
        sa.CheckConstraint("wish in ('retry', 'skip')", name=f"{name}_wish_known"),
        schema=names.schema,
    )
    op.create_index(f"{name}_key", name, ["consumer", sa.text("md5(key)"), "id"], schema=names.schema)


def downgrade() -> None:
    """Drop the table with its rows."""
    names = settings_of(op.get_context()).names
    op.drop_table(names.dead_letter, schema=names.schema)
