"""The record in ``<name>.__progress`` that says how far the log was audited."""

from __future__ import annotations

import msgspec

AUDIT_VERSION = 1


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the next audit continues.

    Attributes:
        epoch: of the last compared cut.
        end_lsn: of that cut.
        cuts_offset: everything in the cut index before this offset was compared.
    """

    version: int = AUDIT_VERSION
    epoch: int
    end_lsn: int
    cuts_offset: int
