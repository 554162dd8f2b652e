"""The record in ``<name>.__progress`` that says how far the log was read back and found right."""

from __future__ import annotations

import msgspec

AUDIT_VERSION = 1


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the next audit goes on.

    Attributes:
        epoch: of the last cut that was compared.
        end_lsn: of that cut.
        cuts_offset: everything of the cut index before this offset was compared.
    """

    version: int = AUDIT_VERSION
    epoch: int
    end_lsn: int
    cuts_offset: int
