"""Defines every error Tailrace raises, as one tree. Policy reads the class, never the message.

    TailraceError
    |- UsageError                 the command line is wrong                              exit 2
    |- ConfigError                a setting is wrong or missing                          exit 2
    |- LocalError                 a local server cannot be fetched, started or stopped   exit 1
    |  `- LocalStopped            it was stopped on purpose while it started
    |- CutNotReached              the log does not reach an LSN in time                  exit 1
    |- SourceError                PostgreSQL is the cause
    |  |- SourceUnreachable       no connection, or it broke: wait and retry
    |  |- SlotHeld                another process uses the slot: wait and retry
    |  |- SlotBlocked             open transactions delay a new slot or a copy: wait and retry
    |  |- SourceRefused           rights, settings, publication, keys: MISCONFIGURED
    |  |- SourceGap               changes are lost to the log: GAP
    |  `- SourceDiverged          the history of the database is not that of the log: DIVERGED
    |- BrokerError                Kafka is the cause
    |  |- BrokerUnreachable       wait and retry
    |  |- OutcomeUnknown          a transaction may or may not be committed: new producer, read back
    |  |- ProducerFenced          another producer has our transactional id: FENCED, or our own timeout
    |  |- BrokerRefused           credentials, ACLs, limits: MISCONFIGURED
    |  |- MemberDropped           a consumer group refuses a member after an outage: join again
    |  |- CaptureNotStarted       a sink started before its pipeline ever ran: wait
    |  `- TopicMismatch           a topic differs from the recorded one: MISCONFIGURED
    |     `- TopicMissing         a topic or partition does not exist: retried for a while first
    |- RegistryError              the schema registry is the cause
    |  |- RegistryUnreachable     wait and retry
    |  `- RegistryRefused         credentials, rights, an incompatible schema: MISCONFIGURED
    |- ProgressDamaged            the restart state cannot be trusted: MISCONFIGURED
    |- LogDamaged                 the topics do not match the cut index: DIVERGED
    |- RowRefused                 a row cannot be encoded or is too large: MISCONFIGURED
    |- SpoolFailed                the temporary folder is full or not writable: wait and retry
    |- CredentialUnavailable      a file or command gives no password or token: wait and retry
    |- MachineExhausted           no file descriptor, process or memory: wait and retry
    |- DecodeError                invalid bytes from a server: reconnect
    |- PoisonedStream             the same invalid bytes again: MISCONFIGURED
    |- SinkError                  a sink is the cause
    |  |- SinkGap                 records that the sink needs are gone from the log: GAP
    |  |- SinkStale               the sink belongs to another history of the log: STALE
    |  |- SinkUnfit               a value or setting does not fit the data of the sink: MISCONFIGURED
    |  |- SinkUnreachable         the store does not answer or is full: wait and retry
    |  |- SinkBehind              the sink does not reach an LSN in time                 exit 1
    |  |- SinkBusy                another process rebuilds or repairs the sink           exit 1
    |  |- KeyBlocked              the store refused a record of the key; its row is older
    |  |- ViewRefused             SQL that cannot be used for a view: MISCONFIGURED
    |  |- LakeDamaged             files of the lake were changed: MISCONFIGURED
    |  |- LakeOverloaded          a cut fails even in small pieces: MISCONFIGURED
    |  `- LakeUnready             storage, Java or Spark are not available: wait and retry
    |     `- SparkFailed          Spark or its JVM failed: new JVM, smaller pieces
    `- InvariantError             a bug in Tailrace

`retry` says what ends the error: ``timed`` (time), ``operator`` (an operator), ``never`` (it is a bug).
Messages never contain row values or secrets; named facts are attributes.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from cdc.command_text import with_pipeline
from cdc.lsn import Lsn

Retry = Literal["timed", "operator", "never"]

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_OPERATOR = 3

OUT_OF_FILES = "raise the limits of this process (ulimit -n, LimitNOFILE), or stop other processes that use them up"


class TailraceError(Exception):
    """The base class of all errors.

    Args:
        message: what failed and why, in one sentence, without row values or secrets.
        hint: what the operator can do.
        command: one command or statement to try, ready to copy.
        facts: named facts for the log (slot, lsn, table, topic, ...).
    """

    retry: ClassVar[Retry] = "operator"
    exit_code: ClassVar[int] = EXIT_OPERATOR
    state: ClassVar[str | None] = None

    def __init_subclass__(cls, *, waiting: bool = False) -> None:
        """`waiting`: time ends the error; the process is in state WAITING and tries again."""
        if waiting:
            cls.retry, cls.exit_code, cls.state = "timed", EXIT_FAILED, "WAITING"

    def __init__(self, message: str, *, hint: str = "", command: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.command = with_pipeline(command)
        self.facts = facts

    @classmethod
    def of_newer_release(cls, record: str, found: object, known: int, **facts: object) -> Self:
        """Return the error for a record whose version this release does not know."""
        return cls(
            f"{record} has version {found}; this release reads version {known}",
            hint="a newer release of Tailrace wrote it; run that release or a later one. Nothing was changed",
            command="cdc --version",
            **facts,
        )

    def add_place(self, text: str, **facts: object) -> None:
        """Append the place of the failure, which the raising code did not know."""
        self.message = f"{self.message} ({text})"
        self.args = (self.message,)
        self.facts.update(facts)


class UsageError(TailraceError):
    """The command line is wrong: an unknown name or an invalid combination of options."""

    exit_code = EXIT_USAGE


class ConfigError(TailraceError):
    """A setting is wrong, missing or unknown; the message names the key."""

    exit_code = EXIT_USAGE
    state = "MISCONFIGURED"


class LocalError(TailraceError):
    """A local server cannot be fetched, started or stopped."""

    exit_code = EXIT_FAILED


class LocalStopped(LocalError):
    """A local server was stopped on purpose while it started; it must not be started again."""


class CutNotReached(TailraceError):
    """The log does not reach an LSN in time: capture is behind or does not run."""

    retry = "timed"
    exit_code = EXIT_FAILED


class SourceError(TailraceError):
    """PostgreSQL is the cause."""


class SourceUnreachable(SourceError, waiting=True):
    """PostgreSQL cannot be reached, or the connection broke."""


class SlotHeld(SourceError, waiting=True):
    """Another process streams from the slot (55006) or creates it. The slot is the lock, so capture waits."""


class SlotBlocked(SourceError, waiting=True):
    """Open transactions delay the creation of a slot, or a copy of tables without a key, for too long.

    The message names the transactions. Nothing was left behind on the server.
    """


class SourceRefused(SourceError):
    """PostgreSQL refuses the operation because of rights, settings, publication or keys."""

    state = "MISCONFIGURED"


class SourceGap(SourceError):
    """Changes between `known_to` and `resumes_at` are not in the log and can no longer be read."""

    state = "GAP"

    def __init__(
        self,
        message: str,
        *,
        known_to: Lsn | None = None,
        resumes_at: Lsn | None = None,
        hint: str = "",
        command: str = "",
        **facts: object,
    ) -> None:
        super().__init__(message, hint=hint, command=command, known_to=known_to, resumes_at=resumes_at, **facts)
        self.known_to = known_to
        self.resumes_at = resumes_at


class SourceDiverged(SourceError):
    """The history of the database differs from that of the log: a restore, a promoted standby, another cluster."""

    state = "DIVERGED"


class BrokerError(TailraceError):
    """Kafka is the cause."""


class BrokerUnreachable(BrokerError, waiting=True):
    """No broker answers, or no broker can handle the request now."""


class OutcomeUnknown(BrokerError):
    """A Kafka transaction may or may not be committed; a new producer reads the outcome back."""

    retry = "timed"
    exit_code = EXIT_FAILED


class ProducerFenced(BrokerError):
    """Another producer took over the transactional id, or the transaction timed out."""

    state = "FENCED"


class BrokerRefused(BrokerError):
    """The broker refuses the request because of credentials, ACLs or limits."""

    state = "MISCONFIGURED"


class MemberDropped(BrokerError, waiting=True):
    """The consumer group dropped this member during an outage; it joins again."""


class CaptureNotStarted(BrokerError, waiting=True):
    """The sink started before capture of its pipeline ever ran; it waits and then starts by itself."""


class TopicMismatch(BrokerError):
    """A topic has other settings, another partition count or another id than expected."""

    state = "MISCONFIGURED"


class TopicMissing(TopicMismatch):
    """The broker does not know a topic or partition.

    This is transient when the topic is new or the broker has just started, so `cdc.run.retry_policy` retries it first.
    """


class RegistryError(TailraceError):
    """The schema registry is the cause."""


class RegistryUnreachable(RegistryError, waiting=True):
    """The schema registry does not answer, or cannot handle the request now."""


class RegistryRefused(RegistryError):
    """The schema registry refuses the request: an incompatible schema, credentials or rights."""

    state = "MISCONFIGURED"


class ProgressDamaged(TailraceError):
    """The restart state is missing, belongs to another pipeline, or has an unsupported version."""

    state = "MISCONFIGURED"


class LogDamaged(TailraceError):
    """The audit found missing, altered or additional records: the topics are not what capture wrote."""

    state = "DIVERGED"


class RowRefused(TailraceError):
    """A committed row cannot be published; capture stops and never skips it."""

    state = "MISCONFIGURED"


class SpoolFailed(TailraceError, waiting=True):
    """The temporary folder is full or cannot be written."""


class CredentialUnavailable(TailraceError, waiting=True):
    """A file with a password cannot be read, or a command for a password or token failed. Shows none of its output."""


class MachineExhausted(TailraceError, waiting=True):
    """The machine has no file descriptor, thread or memory left for this process."""


class DecodeError(TailraceError, waiting=True):
    """A server sent invalid bytes: message `tag` needs `need` bytes at `offset` and has `have`.

    Capture reconnects and acknowledges nothing; the same bytes a second time end in `PoisonedStream`.
    """

    def __init__(self, tag: str, offset: int, *, need: int = 0, have: int = 0, detail: str = "") -> None:
        what = detail or f"needs {need} bytes, has {have}"
        super().__init__(f"cannot decode message {tag!r} at byte {offset}: {what}", tag=tag, offset=offset)
        self.tag = tag
        self.offset = offset
        self.need = need
        self.have = have


class PoisonedStream(TailraceError):
    """The stream cannot be decoded, even after reading it again; waiting does not help."""

    state = "MISCONFIGURED"


class SinkError(TailraceError):
    """A sink is the cause."""


class SinkGap(SinkError):
    """Records that the sink must read are gone from the log, or the log does not match the cut index."""

    state = "GAP"


class SinkStale(SinkError):
    """The data of the sink belongs to another history of the log: another epoch, or recreated topics."""

    state = "STALE"


class SinkUnfit(SinkError):
    """A value does not fit its column, or a setting contradicts the data of the sink."""

    state = "MISCONFIGURED"


class SinkUnreachable(SinkError, waiting=True):
    """The store does not answer or accepts no writes now; the last request may or may not have taken effect."""


class SinkBehind(SinkError):
    """The sink does not reach an LSN in time."""

    retry = "timed"
    exit_code = EXIT_FAILED


class SinkBusy(SinkError):
    """Another process rebuilds, rolls back or repairs the sink."""

    retry = "timed"
    exit_code = EXIT_FAILED


class KeyBlocked(SinkError):
    """The store refused a record of the key; its row stays older until the dead letter is handled."""


class ViewRefused(SinkError):
    """The SQL cannot be used for a view; the message names file, line and reason."""

    state = "MISCONFIGURED"

    @property
    def reason(self) -> str:
        """Why the view is left behind, and what to do."""
        return "; ".join(part for part in (self.message, self.hint) if part)


class LakeDamaged(SinkError):
    """Files of the lake are not as the driver wrote them: a corrupt manifest, a commit by another program."""

    state = "MISCONFIGURED"


class LakeUnready(SinkError, waiting=True):
    """Storage, Java or Spark is not available now."""


class LakeOverloaded(SinkError):
    """Spark failed in every attempt at a cut, even in ever smaller pieces: it needs more memory."""

    state = "MISCONFIGURED"


class SparkFailed(LakeUnready):
    """Spark or its JVM failed; a new JVM tries again.

    Attributes:
        counts: whether Spark itself failed; False when a server that it reads from is the cause.
    """

    counts: bool = True


class InvariantError(TailraceError):
    """A bug in Tailrace; nothing was published or acknowledged because of it."""

    retry = "never"
    exit_code = EXIT_FAILED
