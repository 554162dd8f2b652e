"""Creates the heartbeat table, which capture updates so that its slot advances in an idle database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from outbox.revisions import settings_of

revision = "0003"
down_revision = "0002"
phase = "pre"
drops = ()  # capture writes its row again


def upgrade() -> None:
    """Create the table."""
    names = settings_of(op.get_context()).names
    op.create_table(
        names.heartbeat,
        sa.Column("name", sa.Text, nullable=False),
        sa.Column(
            "beat_at", postgresql.TIMESTAMP(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")
        ),
        sa.Column("beat_count", sa.BigInteger, nullable=False, server_default=sa.text("1")),
        sa.PrimaryKeyConstraint("name", name=f"{names.heartbeat}_pkey"),
        schema=names.schema,
    )


def downgrade() -> None:
    """Drop the table."""
    names = settings_of(op.get_context()).names
    op.drop_table(names.heartbeat, schema=names.schema)
