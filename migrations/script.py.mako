"""${message}

Revision ${up_revision}, after ${down_revision | comma,n}. Say in `phase` when it is to run: "pre" before the release
that needs it is deployed (the release before must work with it), "post" when no process of the old one runs any more.
"""

from __future__ import annotations

from typing import Any

from alembic import op

from outbox.migrate import settings_of

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
phase = "pre"
drops = ()  # fields of outbox.table_names.Names: tables whose rows are lost on the way down


def upgrade() -> None:
    """Make it."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Undo it."""
    ${downgrades if downgrades else "pass"}
