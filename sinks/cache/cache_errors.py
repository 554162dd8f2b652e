"""What a client's error means: which of ours it is. No message of the server is passed on, for some quote arguments."""

from __future__ import annotations

import ssl
from typing import Final

import redis.exceptions as theirs

from cdc.errors import SinkError, SinkUnfit, SinkUnreachable

_PASSING: Final = frozenset({"MISCONF", "NOREPLICAS", "BUSY", "LOADING", "MASTERDOWN", "READONLY", "OOM", "UNBLOCKED"})
"""Codes of answers that time mends, or whoever looks after the server: a full disk, too few replicas, a replica."""


class ServerRestarted(theirs.ConnectionError):
    """The server is not the one that we read positions of, or it was promoted or started since: writes may be lost."""


class NoPrimary(theirs.ConnectionError):
    """The server is a replica."""


def translate(error: Exception, *, where: str, doing: str) -> SinkError:
    """The error to raise. `where` is the store's address, `doing` a verb and its object."""
    if isinstance(error, ServerRestarted):
        return SinkUnreachable(
            f"the store at {where} was started or promoted since it was last asked what it holds",
            hint="what it may have lost is applied again",
        )
    if isinstance(error, theirs.MovedError | theirs.AskError | theirs.ClusterCrossSlotError):
        return cluster(where)
    if isinstance(error, theirs.AuthenticationError | theirs.AuthenticationWrongNumberOfArgsError):
        return SinkUnfit(
            f"the store at {where} does not take our user name and password",
            hint="they are options of the sink: username, and password or password_file",
        )
    if isinstance(error, theirs.NoPermissionError | theirs.AuthorizationError):
        return SinkUnfit(
            f"the store at {where} does not let our user {doing}",
            hint="docs/howto/cache.md has the rights that are needed, as an ACL rule",
        )
    untrusted = _untrusted(error)
    if untrusted is not None:
        return SinkUnfit(
            f"the certificate of the store at {where} is not trusted: {untrusted.verify_message}",
            hint="ssl_ca_certs among the sink's options names the file of the authority",
        )
    if isinstance(error, theirs.ConnectionError | theirs.TimeoutError | theirs.ClusterDownError | theirs.TryAgainError):
        return SinkUnreachable(f"cannot {doing}: the store at {where} does not answer ({type(error).__name__})")
    code = _code(error)
    if isinstance(error, theirs.ReadOnlyError | theirs.OutOfMemoryError) or code in _PASSING:
        return SinkUnreachable(f"cannot {doing}: the store at {where} takes nothing now ({code})")
    return SinkUnfit(
        f"cannot {doing}: the store at {where} refuses it ({code})",
        hint="is it Redis 7 or Valkey, and does nobody else write keys that begin with cdc:?",
    )


def cluster(where: str) -> SinkUnfit:
    """What Cluster is answered with."""
    return SinkUnfit(
        f"the store at {where} is a Redis Cluster, which is not supported",
        hint="take one primary, with replicas and Sentinel if it must outlive a machine",
    )


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """What the client's error was raised from, or while it was handled."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _code(error: Exception) -> str:
    """The code an answer begins with, ``OOM``; the class of an error that has none."""
    given = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    return given if given.isalpha() and given.isupper() else type(error).__name__
