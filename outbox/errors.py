"""What the application's side of the outbox raises: a small tree of its own, without anything of the service.

    OutboxError                   the base: message, hint, facts
    |- EventRefused               the event cannot be written as it is; nothing was written
    |  |- PayloadTooLarge         more bytes than the limit
    |  |- PayloadInvalid          no JSON, or not what the content type says
    |  |- ContractUnknown         no contract for this type and version
    |  `- ContractBroken          the payload breaks its contract; `path` says where
    |- ContractInvalid            a contract's file cannot be used
    |- ContractsUnreachable       the registry of contracts does not answer, or not to us
    |- MessageInvalid             a logical message that is not an event
    |- ConcurrencyConflict        an aggregate is not at the version a command has seen
    |- EventMissing               an aggregate's history has a hole, or a type that nobody can fold
    |- CommandRefused             a command that the aggregate's state does not allow
    |- EventRejected              a consumer's handler will never take this event: a dead letter at once
    |- ConsumerStopped            a consumer's database was away for too long
    `- MigrationRefused           the tables cannot be migrated as things are

No message holds a value of a payload, a header or a key: paths and names only.
"""

from __future__ import annotations


class OutboxError(Exception):
    """Base of the tree.

    Args:
        message: what happened and where, without values.
        hint: what to do about it.
        facts: named facts (type, version, path, limit_bytes, ...).
    """

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts


class EventRefused(OutboxError):
    """The event cannot be written as it is. Nothing was written; the transaction can go on without it."""


class PayloadTooLarge(EventRefused):
    """The event is larger than the limit."""


class PayloadInvalid(EventRefused):
    """The payload is not what its content type says, as text that is not JSON."""


class ContractUnknown(EventRefused):
    """Nobody has recorded a contract for this aggregate type, type and version."""


class ContractBroken(EventRefused):
    """The payload breaks its contract. `path` is where in the payload, as a JSON pointer; `rule` what it broke."""

    def __init__(self, message: str, *, path: str, rule: str, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, path=path, rule=rule, **facts)
        self.path = path
        self.rule = rule


class ContractInvalid(OutboxError):
    """A contract cannot be used: no JSON Schema, a wrong file name, an upcaster that does not fit."""


class ContractsUnreachable(OutboxError):
    """The schema registry that has the contracts does not answer, or does not let us in."""


class MessageInvalid(OutboxError):
    """A logical message is not an event in JSON."""


class ConcurrencyConflict(OutboxError):
    """Somebody else has appended to the aggregate since it was loaded. Load it again and decide anew.

    `actual` is None where the database said no more than that the sequence number is taken: the transaction is over
    then, and has to be rolled back.
    """

    def __init__(self, message: str, *, expected: int, actual: int | None, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, expected=expected, actual=actual, **facts)
        self.expected = expected
        self.actual = actual


class EventMissing(OutboxError):
    """An aggregate's history has a hole, or an event of a type that nobody knows how to fold."""


class CommandRefused(OutboxError):
    """A command that the state of its aggregate does not allow; no event came of it."""


class EventRejected(OutboxError):
    """Raised by a consumer's handler: trying again is of no use. The event becomes a dead letter at once."""


class ConsumerStopped(OutboxError):
    """A consumer's database did not come back in time. Nothing is lost: start it again."""


class MigrationRefused(OutboxError):
    """The tables cannot be migrated as things are; what was begun was undone."""
