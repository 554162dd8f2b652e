"""Errors that the outbox library raises in applications; independent of the error classes of the service.

    OutboxError                   base class: message, hint, facts
    |- EventRefused               the event is invalid; nothing was written
    |  |- PayloadTooLarge         the event is larger than the limit
    |  |- PayloadInvalid          the payload is not JSON, or does not match its content type
    |  |- ContractUnknown         no contract exists for this type and version
    |  `- ContractBroken          the payload breaks its contract; `path` says where
    |- ContractInvalid            a contract file cannot be used
    |- ContractsUnreachable       the contract registry does not answer, or denies access
    |- MessageInvalid             a logical message is not an event
    |- ConcurrencyConflict        the aggregate has changed since the command loaded it
    |- EventMissing               an event is missing from a history, or no fold exists for its type
    |- CommandRefused             the state of the aggregate does not allow the command
    |- EventRejected              a consumer's handler rejects the event for good: a dead letter at once
    |- ConsumerStopped            a consumer's database was unavailable for too long
    `- MigrationRefused           the tables cannot be migrated in their present state

No message contains a value of a payload, a header or a key; only paths and names.
"""

from __future__ import annotations


class OutboxError(Exception):
    """Base class of the errors of this library.

    Args:
        message: what failed and where, without values.
        hint: what to do about it.
        facts: named facts (type, version, path, limit_bytes, ...).
    """

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts


class EventRefused(OutboxError):
    """The event is invalid. Nothing was written, and the transaction can continue without it."""


class PayloadTooLarge(EventRefused):
    """The event is larger than the limit."""


class PayloadInvalid(EventRefused):
    """The payload does not match its content type, for example text that is not JSON."""


class ContractUnknown(EventRefused):
    """No contract exists for this aggregate type, event type and version."""


class ContractBroken(EventRefused):
    """The payload breaks its contract. `path` is a JSON pointer into the payload; `rule` is the broken keyword."""

    def __init__(self, message: str, *, path: str, rule: str, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, path=path, rule=rule, **facts)
        self.path = path
        self.rule = rule


class ContractInvalid(OutboxError):
    """A contract cannot be used: an invalid JSON Schema, a wrong file name, or an upcaster that does not fit."""


class ContractsUnreachable(OutboxError):
    """The schema registry with the contracts does not answer, or denies access."""


class MessageInvalid(OutboxError):
    """A logical message is not an event in JSON."""


class ConcurrencyConflict(OutboxError):
    """Another transaction appended to the aggregate after it was loaded. Load it again and decide again.

    `actual` is None if the database reported only that the sequence number is taken. The transaction has failed then
    and must be rolled back.
    """

    def __init__(self, message: str, *, expected: int, actual: int | None, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, expected=expected, actual=actual, **facts)
        self.expected = expected
        self.actual = actual


class EventMissing(OutboxError):
    """An event is missing from an aggregate's history, or the aggregate has no fold for its type."""


class CommandRefused(OutboxError):
    """The state of the aggregate does not allow the command; no event was appended."""


class EventRejected(OutboxError):
    """Raised by a consumer's handler when a retry cannot succeed. The event becomes a dead letter at once."""


class ConsumerStopped(OutboxError):
    """A consumer's database did not come back in time. No event is lost; restart the consumer."""


class MigrationRefused(OutboxError):
    """The tables cannot be migrated in their present state. The failed migration was rolled back."""
