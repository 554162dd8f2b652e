"""Finds the cause that an error stands for, by its class and by the rule that raised it. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from cdc.config.credential import BY_HAND, FILE_UNREADABLE
from cdc.kafka.oauth_token import FORMS as TOKEN_FORMS
from cdc.replication.error_mapping import DIRECT, DISK_FULL
from cdc.why.evidence import Failure

CREDENTIAL: Final = "credential-unavailable"

_BY_CLASS: Final = {
    "CredentialUnavailable": CREDENTIAL,
    "SourceUnreachable": "source-unreachable",
    "SlotHeld": "slot-held",
    "SlotBlocked": "long-transaction",
    "SourceDiverged": "source-diverged",
    "SourceGap": "slot-lost",
    "LogDamaged": "log-damaged",
    "ProgressDamaged": "progress-damaged",
    "TopicMissing": "topic-missing",
    "TopicMismatch": "topic-changed",
    "BrokerUnreachable": "broker-unreachable",
    "OutcomeUnknown": "broker-unreachable",
    "MemberDropped": "broker-unreachable",
    "BrokerRefused": "broker-refused",
    "ProducerFenced": "capture-fenced",
    "RowRefused": "row-refused",
    "DecodeError": "stream-poisoned",
    "PoisonedStream": "stream-poisoned",
    "SpoolFailed": "disk-full",
    "MachineExhausted": "machine-exhausted",
    "RegistryUnreachable": "registry-unreachable",
    "RegistryRefused": "registry-refused",
}

# A rule of `cdc.startup.judgement` says what a class leaves open.
_BY_RULE: Final = {
    ("server", "SourceRefused"): "source-settings",
    ("replication_connection", "SourceRefused"): "source-rights",
    ("source", "SourceRefused"): "source-rights",
    ("tables", "SourceRefused"): "tables-unfit",
    ("keys", "SourceRefused"): "tables-unfit",
    ("publication", "SourceRefused"): "publication-unfit",
    ("publication", "SourceGap"): "publication-changed",
    ("slot", "SourceRefused"): "slot-unfit",
    ("log", "SourceGap"): "slot-moved",
    ("replication_factor", "BrokerRefused"): "broker-settings",
    ("topic", "ConfigError"): "broker-settings",
    ("format", "TopicMismatch"): "format-changed",
    ("format", "SourceRefused"): "format-changed",
    ("format", "ConfigError"): "format-changed",
}
_BY_HINT: Final = {
    DIRECT: "source-pooler",
    DISK_FULL: "source-disk-full",
    **dict.fromkeys((BY_HAND, FILE_UNREADABLE, TOKEN_FORMS), CREDENTIAL),
}
_OUT_OF_FILES: Final = os.strerror(errno.EMFILE)
"""Kafka's client only prints why it could not open a socket, and calls the broker unreachable."""

_RIGHTS: Final = frozenset({"not_published", "not_readable"})

_KAFKA: Final = frozenset({
    "broker-unreachable", "broker-refused", "broker-settings", "topic-missing", "topic-changed", "progress-damaged",
    "log-damaged",
})  # fmt: skip
_CAPTURE: Final = frozenset({
    "row-refused", "stream-poisoned", "disk-full", "machine-exhausted", "capture-fenced", "capture-refused",
    "format-changed", "registry-unreachable", "registry-refused", CREDENTIAL,
})  # fmt: skip


def code_of(failure: Failure, rule: str = "", left_out: Sequence[str] = ()) -> str:
    """Return the code of an error.

    Args:
        failure: the error.
        rule: `Verdict.rule` of a forecast, if it found the error.
        left_out: why selected tables are not captured: `cdc.model.left_out.Reason`.
    """
    if _OUT_OF_FILES in failure.message:
        return "machine-exhausted"
    if failure.hint in _BY_HINT:
        return _BY_HINT[failure.hint]
    found = _BY_RULE.get((rule, failure.error)) or _BY_CLASS.get(failure.error, "capture-refused")
    return "source-rights" if found == "tables-unfit" and left_out and set(left_out) <= _RIGHTS else found


def part_of(code: str) -> str:
    """Return the part of the pipeline that an error of capture with this code is about."""
    if code in _KAFKA:
        return "kafka"
    return "capture" if code in _CAPTURE else "source"
