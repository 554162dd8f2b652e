"""Creates the inbox table: the events that each consumer has processed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from outbox.revisions import settings_of

revision = "0002"
down_revision = "0001"
phase = "pre"
drops = ("inbox",)


def upgrade() -> None:
    """Create the table."""
    names = settings_of(op.get_context()).names
    op.create_table(
        names.inbox,
        sa.Column("consumer", sa.Text, nullable=False),
        sa.Column("event_id", sa.Uuid, nullable=False),
        sa.Column(
            "received_at",
            postgresql.TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("clock_timestamp()"),
        ),
        sa.PrimaryKeyConstraint("consumer", "event_id", name=f"{names.inbox}_pkey"),
        schema=names.schema,
    )
    op.create_index(
        f"{names.inbox}_received_at", names.inbox, ["received_at"], schema=names.schema, postgresql_using="brin"
    )


def downgrade() -> None:
    """Drop the table. Consumers then process repeated deliveries again."""
    names = settings_of(op.get_context()).names
    op.drop_table(names.inbox, schema=names.schema)
