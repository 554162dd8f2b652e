"""Secrets that are read whenever they are used: from a file, or from the output of a command.

So a rotated password and a token of a few minutes reach each new connection without a restart. What a command prints,
also on stderr, is never shown: it may be the secret.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc.config.secret import Secret
from cdc.errors import CredentialUnavailable

TIMEOUT_S: Final = 15.0
"""For one run of a command. Command-line tools of clouds take one to five seconds."""

OUTPUT_BYTES_MAX: Final = 64 << 10  # tokens have a few kilobytes
_READ_BYTES: Final = 8 << 10
_END_S: Final = 1.0  # from the end of the output to the end of the process
# `cdc why` recognises a failed file or command by these hints, because each server's error wraps its own.
BY_HAND: Final = (
    "run the command by hand as the user of this process; its output is not shown here, because it may be the secret"
)
FILE_UNREADABLE: Final = (
    "write the secret into the file, readable for the user of this process; it is read again for each connection"
)


class Changing(Secret):
    """A secret that `reveal` reads again each time. Raises CredentialUnavailable there.

    `key` is the setting that names the file or command.
    """

    __slots__ = ("key",)

    def __init__(self, value: str, key: str) -> None:
        super().__init__(value)
        self.key = key

    def masked(self) -> str:
        """Return no part of it."""
        return "***"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


class FileSecret(Changing):
    """The text of a file, or its first line."""

    __slots__ = ("_first_line",)

    def __init__(self, path: str, key: str, *, first_line: bool = False) -> None:
        super().__init__(path, key)
        self._first_line = first_line

    def reveal(self) -> str:
        """Read the file."""
        try:
            text = Path(self._value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialUnavailable(f"{self.key}: {unreadable(error)}", hint=FILE_UNREADABLE) from None
        if self._first_line:
            return text.splitlines()[0] if text else ""
        return text.rstrip("\r\n")


class CommandSecret(Changing):
    """The single line that a command prints. No shell is involved."""

    __slots__ = ("_command", "_timeout_s")

    def __init__(self, command: Sequence[str], key: str, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(shlex.join(command), key)
        self._command = tuple(command)
        self._timeout_s = timeout_s

    def reveal(self) -> str:
        """Run the command."""
        text = output_of(self._command, self.key, timeout_s=self._timeout_s).strip("\r\n")
        lines = text.count("\n") + 1
        if lines > 1:
            raise _failed(self.key, self._command, f"printed {lines} lines; expected one")
        return text

    def within(self, timeout_s: float) -> CommandSecret:
        """Return the same command with another time limit."""
        return CommandSecret(self._command, self.key, timeout_s=timeout_s)


class Dsn(Secret):
    """A connection string whose password is read for each connection."""

    __slots__ = ("password",)

    def __init__(self, value: str, password: Secret) -> None:
        super().__init__(value)
        self.password = password

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dsn) and super().__eq__(other) and self.password == other.password

    def __hash__(self) -> int:
        return hash((self._value, self.password))


def with_text(dsn: Secret, text: str) -> Secret:
    """Return a DSN with another connection string and the same password."""
    return Dsn(text, dsn.password) if isinstance(dsn, Dsn) else Secret(text)


def in_time(dsn: Secret, timeout_s: float) -> Secret:
    """Return a DSN whose password command, if it has one, is ended after `timeout_s`."""
    if isinstance(dsn, Dsn) and isinstance(dsn.password, CommandSecret):
        return Dsn(dsn.reveal(), dsn.password.within(timeout_s))
    return dsn


def output_of(command: Sequence[str], key: str, *, timeout_s: float = TIMEOUT_S) -> str:
    """Run a command without a shell and return what it prints. Raises CredentialUnavailable, without the output."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its children can be ended with it
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise _failed(key, command, f"cannot be run: {why}") from None
    try:
        text, ended = _read(process, time.monotonic() + timeout_s)
        code = process.wait(_END_S) if ended else None
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if code is None:
        long = len(text) > OUTPUT_BYTES_MAX
        raise _failed(
            key, command, f"printed more than {OUTPUT_BYTES_MAX} bytes" if long else f"timed out after {timeout_s:g} s"
        )
    if code != 0:
        raise _failed(key, command, f"failed with exit code {code}")
    try:
        found = text.decode()
    except UnicodeDecodeError:
        raise _failed(key, command, "printed text that is not UTF-8") from None
    if not found.strip():
        raise _failed(key, command, "printed nothing")
    return found


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file cannot be read, without its bytes: they are part of a secret."""
    return f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else "the file is not UTF-8 text"


def _read(process: subprocess.Popen[bytes], ends_s: float) -> tuple[bytes, bool]:
    """Return the output, and whether it ended in time and within its limit."""
    assert process.stdout is not None
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(text) <= OUTPUT_BYTES_MAX:
            if not selector.select(max(0.0, ends_s - time.monotonic())):
                return text, False
            part = os.read(process.stdout.fileno(), _READ_BYTES)
            if not part:
                return text, True
            text += part
    return text, False


def _failed(key: str, command: Sequence[str], why: str) -> CredentialUnavailable:
    return CredentialUnavailable(f"{key}: {command[0]} {why}", hint=BY_HAND)  # its arguments may hold a secret
