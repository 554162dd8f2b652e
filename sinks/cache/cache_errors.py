"""Translates errors of the Redis client. Messages of the server are dropped, because some of them quote arguments."""

from __future__ import annotations

import ssl
from typing import Final

import redis.exceptions as theirs

from cdc.errors import SinkError, SinkUnfit, SinkUnreachable

_PASSING: Final = frozenset({"MISCONF", "NOREPLICAS", "BUSY", "LOADING", "MASTERDOWN", "READONLY", "OOM", "UNBLOCKED"})
"""Error codes that pass without a change to the sink, such as a full disk, too few replicas, or a failover."""


class ServerRestarted(theirs.ConnectionError):
    """The server was restarted or promoted, or is another one, since its positions were read: writes may be lost."""


class NoPrimary(theirs.ConnectionError):
    """The server is a replica."""


def translate(error: Exception, *, where: str, doing: str) -> SinkError:
    """Return the error to raise. `where` is the address of the store, `doing` a verb and its object."""
    if isinstance(error, ServerRestarted):
        return SinkUnreachable(
            f"the store at {where} was restarted or promoted since its positions were read",
            hint="the sink applies again what the store may have lost",
        )
    if isinstance(error, theirs.MovedError | theirs.AskError | theirs.ClusterCrossSlotError):
        return cluster(where)
    if isinstance(error, theirs.AuthenticationError | theirs.AuthenticationWrongNumberOfArgsError):
        return SinkUnfit(
            f"the store at {where} rejected the user name and password",
            hint="check the options of the sink: username, and password or password_file",
        )
    if isinstance(error, theirs.NoPermissionError | theirs.AuthorizationError):
        return SinkUnfit(
            f"the store at {where} does not permit the sink's user to {doing}",
            hint="docs/howto/cache.md lists the required rights as an ACL rule",
        )
    untrusted = _untrusted(error)
    if untrusted is not None:
        return SinkUnfit(
            f"the certificate of the store at {where} is not trusted: {untrusted.verify_message}",
            hint="set the option ssl_ca_certs of the sink to the file of the certificate authority",
        )
    if isinstance(error, theirs.ConnectionError | theirs.TimeoutError | theirs.ClusterDownError | theirs.TryAgainError):
        return SinkUnreachable(f"cannot {doing}: the store at {where} does not answer ({type(error).__name__})")
    code = _code(error)
    if isinstance(error, theirs.ReadOnlyError | theirs.OutOfMemoryError) or code in _PASSING:
        return SinkUnreachable(f"cannot {doing}: the store at {where} accepts no writes now ({code})")
    return SinkUnfit(
        f"cannot {doing}: the store at {where} refuses it ({code})",
        hint="check that it is Redis 7 or Valkey, and that no other program writes keys that begin with cdc:",
    )


def cluster(where: str) -> SinkUnfit:
    """Return the error for a Redis Cluster."""
    return SinkUnfit(
        f"the store at {where} is a Redis Cluster, which is not supported",
        hint="use one primary, with replicas and Sentinel for high availability",
    )


def _untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the certificate error that caused the client's error; None: another cause."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _code(error: Exception) -> str:
    """Return the code at the start of a reply, such as ``OOM``; for other errors the class name."""
    given = getattr(error, "status_code", None) or str(error).partition(" ")[0]
    return given if given.isalpha() and given.isupper() else type(error).__name__
