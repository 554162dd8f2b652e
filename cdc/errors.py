"""Every error Tailrace raises, as one tree. Policy reads the class, never the message.

    TailraceError
    |- UsageError                 the command line is wrong                      exit 2
    |- ConfigError                a setting is wrong or missing                  exit 2
    |- LocalError                 a local server could not be had or started     exit 1
    |  `- LocalStopped            it was stopped on purpose while it started
    |- CutNotReached              the log does not reach an LSN in time          exit 1
    |- SourceError                PostgreSQL
    |  |- SourceUnreachable       no connection, or it broke: wait and retry
    |  |- SlotHeld                another process reads the slot: wait
    |  |- SlotBlocked             a new slot or a copy waits for transactions: wait and retry
    |  |- SourceRefused           rights, settings, publication, keys: MISCONFIGURED
    |  |- SourceGap               WAL we need is gone or was not published: GAP
    |  `- SourceDiverged          not the history we captured: DIVERGED
    |- BrokerError                Kafka
    |  |- BrokerUnreachable       wait and retry
    |  |- OutcomeUnknown          a transaction may or may not be committed: new producer, read back
    |  |- ProducerFenced          another producer has our transactional id: FENCED, or a timeout of ours
    |  |- BrokerRefused           credentials, ACLs, limits: MISCONFIGURED
    |  |- MemberDropped           a consumer group refuses a member after an outage: join again
    |  |- CaptureNotStarted       a sink is there before its pipeline: wait
    |  `- TopicMismatch           a topic is not the one we recorded: MISCONFIGURED
    |     `- TopicMissing         the broker does not know a topic or partition: retried for a while first
    |- RegistryError              the schema registry
    |  |- RegistryUnreachable     wait and retry
    |  `- RegistryRefused         credentials, rights, a schema that is not compatible: MISCONFIGURED
    |- ProgressDamaged            the restart state cannot be trusted: MISCONFIGURED
    |- LogDamaged                 the log does not hold what the cut index says: DIVERGED
    |- RowRefused                 a row cannot be encoded or is too large: MISCONFIGURED
    |- SpoolFailed                the temporary folder is full or cannot be written: wait and retry
    |- MachineExhausted           no file, process or memory to be had: wait and retry
    |- DecodeError                bytes that are not the protocol: the connection is made anew
    |- PoisonedStream             the same bytes each time: MISCONFIGURED
    |- SinkError                  a sink
    |  |- SinkGap                 what it must read is gone from the log: GAP
    |  |- SinkStale               it belongs to another history of the log: STALE
    |  |- SinkUnfit               a value or a setting does not fit what is kept: MISCONFIGURED
    |  |- SinkUnreachable        its store does not answer, or has no room now: wait and retry
    |  |- SinkBehind              it does not reach an LSN in time               exit 1
    |  |- SinkBusy                somebody else rebuilds or repairs it           exit 1
    |  |- KeyBlocked              a record of a key was refused, so its newest is not there
    |  |- ViewRefused             a view's SQL cannot be run as a view: MISCONFIGURED
    |  |- LakeDamaged             files of the lake are not as we left them: MISCONFIGURED
    |  |- LakeOverloaded          a cut fails however small its pieces are: MISCONFIGURED
    |  `- LakeUnready             storage, Java or Spark are not there: wait and retry
    |     `- SparkFailed          Spark or its JVM failed: a new JVM and smaller pieces
    `- InvariantError             our own mistake

`retry` says who can mend it: ``timed`` (time does), ``operator`` (a person must), ``never`` (a bug).
No message ever holds a row value or a secret; facts are attributes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from cdc.lsn import Lsn

Retry = Literal["timed", "operator", "never"]

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_OPERATOR = 3

OUT_OF_FILES = "raise the limits of this process (ulimit -n, LimitNOFILE), or free what others hold"


class TailraceError(Exception):
    """Base of the tree.

    Args:
        message: what happened and where, one sentence, no row values, no secrets.
        hint: what to do about it, in words.
        command: a command or statement to try, copied as it is.
        facts: named facts for the log (slot, lsn, table, topic, ...).
    """

    retry: ClassVar[Retry] = "operator"
    exit_code: ClassVar[int] = EXIT_OPERATOR
    state: ClassVar[str | None] = None

    def __init__(self, message: str, *, hint: str = "", command: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.command = command
        self.facts = facts

    def add_place(self, text: str, **facts: object) -> None:
        """Say where it was, as whoever passes the error on knows and whoever raised it did not."""
        self.message = f"{self.message} ({text})"
        self.args = (self.message,)
        self.facts.update(facts)


class UsageError(TailraceError):
    """The command line asks for something that does not exist."""

    exit_code = EXIT_USAGE


class ConfigError(TailraceError):
    """A setting is wrong, missing or unknown; the message names the key."""

    exit_code = EXIT_USAGE
    state = "MISCONFIGURED"


class LocalError(TailraceError):
    """A local server could not be fetched, started or stopped."""

    exit_code = EXIT_FAILED


class LocalStopped(LocalError):
    """A local server was stopped on purpose while it started, so nobody is to start it once more."""


class CutNotReached(TailraceError):
    """The log does not reach an LSN in time: capture is behind, or does not run."""

    retry = "timed"
    exit_code = EXIT_FAILED


class SourceError(TailraceError):
    """PostgreSQL is the cause."""


class SourceUnreachable(SourceError):
    """No connection to PostgreSQL, or it broke."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class SlotHeld(SourceError):
    """Another process streams from our slot (55006), or makes it. The slot is the lock, so we wait."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class SlotBlocked(SourceError):
    """A slot, or a copy of tables without a key, has to wait too long for transactions, which are named.

    Nothing was left behind.
    """

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class SourceRefused(SourceError):
    """PostgreSQL will not do it as things are: rights, settings, publication, keys."""

    state = "MISCONFIGURED"


class SourceGap(SourceError):
    """Changes between `known_to` and `resumes_at` are not in the log and cannot be had any more."""

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
    """The database has another history than the log: restored, promoted behind us, another cluster."""

    state = "DIVERGED"


class BrokerError(TailraceError):
    """Kafka is the cause."""


class BrokerUnreachable(BrokerError):
    """No broker answers, or none that can take the request now."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class OutcomeUnknown(BrokerError):
    """A Kafka transaction failed or may have: throw the producer away, make a new one, read back."""

    retry = "timed"
    exit_code = EXIT_FAILED


class ProducerFenced(BrokerError):
    """The broker has seen a newer producer with our transactional id, or timed our transaction out."""

    state = "FENCED"


class BrokerRefused(BrokerError):
    """Credentials, ACLs or limits of the broker forbid it."""

    state = "MISCONFIGURED"


class MemberDropped(BrokerError):
    """A consumer group refuses a member after an outage; a new member takes its place."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class CaptureNotStarted(BrokerError):
    """A sink was started before capture of its pipeline ever ran: it waits, and begins by itself."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class TopicMismatch(BrokerError):
    """A topic has other settings, another partition count or another id than it must."""

    state = "MISCONFIGURED"


class TopicMissing(TopicMismatch):
    """The broker does not know a topic or partition.

    That passes when the topic is new or the broker has just started, so `cdc.run.retry_policy` retries it before it
    ends anything.
    """


class RegistryError(TailraceError):
    """The schema registry is the cause."""


class RegistryUnreachable(RegistryError):
    """The schema registry does not answer, or cannot do it now."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class RegistryRefused(RegistryError):
    """The schema registry will not have it: a schema that is not compatible, credentials, rights."""

    state = "MISCONFIGURED"


class ProgressDamaged(TailraceError):
    """The restart state is missing, foreign, or of a version we do not read."""

    state = "MISCONFIGURED"


class LogDamaged(TailraceError):
    """The read-back audit found records missing, altered or too many: the log is not what capture wrote."""

    state = "DIVERGED"


class RowRefused(TailraceError):
    """A committed row cannot be published as it is; capture stops rather than leave it out."""

    state = "MISCONFIGURED"


class SpoolFailed(TailraceError):
    """The temporary folder of this machine cannot hold what is to be worked through."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class MachineExhausted(TailraceError):
    """This machine does not give what every step needs: a file to open, a thread, memory."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class DecodeError(TailraceError):
    """Bytes that are not the protocol: `need` bytes at `offset` of a message `tag`, `have` there are.

    The connection is dropped and nothing is acknowledged; the same bytes twice are a stop.
    """

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"

    def __init__(self, tag: str, offset: int, *, need: int = 0, have: int = 0, detail: str = "") -> None:
        what = detail or f"needs {need} bytes, has {have}"
        super().__init__(f"cannot decode message {tag!r} at byte {offset}: {what}", tag=tag, offset=offset)
        self.tag = tag
        self.offset = offset
        self.need = need
        self.have = have


class PoisonedStream(TailraceError):
    """The stream cannot be decoded, however often it is read: time does not mend that."""

    state = "MISCONFIGURED"


class SinkError(TailraceError):
    """A sink is the cause."""


class SinkGap(SinkError):
    """What the sink must read next is not in the log any more, or the log does not hold what the cut index says."""

    state = "GAP"


class SinkStale(SinkError):
    """What the sink holds belongs to another history of the log: another epoch, or topics that were made again."""

    state = "STALE"


class SinkUnfit(SinkError):
    """A value does not fit its column, or a setting contradicts what the sink holds."""

    state = "MISCONFIGURED"


class SinkUnreachable(SinkError):
    """The store a sink writes to does not answer, or takes nothing now; what was asked of it may be done or not."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class SinkBehind(SinkError):
    """The sink does not reach an LSN in time."""

    retry = "timed"
    exit_code = EXIT_FAILED


class SinkBusy(SinkError):
    """Somebody else rebuilds, rolls back or repairs the sink."""

    retry = "timed"
    exit_code = EXIT_FAILED


class KeyBlocked(SinkError):
    """The store refused a record of a key: what it has of it is older, until the dead letter is settled."""


class ViewRefused(SinkError):
    """A view's SQL cannot be run as a view; names file and reason."""

    state = "MISCONFIGURED"


class LakeDamaged(SinkError):
    """Files of the lake are not as we left them: a corrupt manifest, a commit of somebody else."""

    state = "MISCONFIGURED"


class LakeUnready(SinkError):
    """Storage, Java or Spark cannot be used now."""

    retry = "timed"
    exit_code = EXIT_FAILED
    state = "WAITING"


class LakeOverloaded(SinkError):
    """Spark failed in every attempt at a cut, although each attempt used smaller pieces: it needs more memory."""

    state = "MISCONFIGURED"


class SparkFailed(LakeUnready):
    """Spark or its JVM failed; a new JVM tries again.

    Attributes:
        counts: whether the failure is Spark's own; false when a server that it reads from is the cause.
    """

    counts: bool = True


class InvariantError(TailraceError):
    """Something that can only be a bug of ours; nothing was published or acknowledged because of it."""

    retry = "never"
    exit_code = EXIT_FAILED
