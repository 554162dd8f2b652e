"""The heartbeat: a row that capture writes, so that its slot moves in a database that is idle."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from outbox.revisions import settings_of

revision = "0003"
down_revision = "0002"
phase = "pre"
drops = ()  # what is in it is made again


def upgrade() -> None:
    """Make the table."""
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
    """Drop it."""
    names = settings_of(op.get_context()).names
    op.drop_table(names.heartbeat, schema=names.schema)
