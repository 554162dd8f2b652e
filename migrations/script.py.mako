"""${message}

Revision ${up_revision}, after ${down_revision | comma,n}. Set `phase`: "pre" runs before the deployment of the release
that needs it (the previous release must work with it), "post" after the last process of the old release has ended.
"""

from __future__ import annotations

from typing import Any

from alembic import op

from outbox.revisions import settings_of

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
phase = "pre"
drops = ()  # fields of outbox.table_names.Names: tables whose rows a downgrade deletes


def upgrade() -> None:
    """Apply the revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Revert the revision."""
    ${downgrades if downgrades else "pass"}
