"""What a parent process that runs several pipelines asks of the process of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """How capture belongs to its parent process; the defaults are those of a process of its own.

    Attributes:
        until_eof: stop at the end of standard input, so that capture ends with the process that holds the other side.
        report_fd: the pipe for reports, see `sinks.state.report_sender`.
        http_socket: the Unix socket to serve HTTP on instead of http.listen.
    """

    until_eof: bool = False
    report_fd: int | None = None
    http_socket: str | None = None


ALONE: Final = Part()
