"""Owns the servers and files of one program, such as the demo: a stack of `cdc local`, and a folder with its files.

The folder marks the stack as the program's. So a later run can wipe what a killed run left, but it never wipes another
stack. A lock, which ends with the process, keeps two runs apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdc.artifacts.cache_folder import locked, write_file
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.process_identity import Identity, identify, kill_tree
from cdc.local.stack import SERVERS, Stack

_GONE_S: Final = 10.0
_STOP_S: Final = 20.0  # a Java server that writes its archive of classes at its first stop may take minutes
_PROCESSES: Final = "processes.json"
_RUNNING: Final = "running.json"
_KEPT: Final = "kept"


@dataclass(frozen=True, slots=True)
class Owner:
    """A program that owns stacks.

    Attributes:
        name: of its folder in the cache, and of its locks.
        title: as in "another <title> uses the stack".
        command: the program's command with another stack.
    """

    name: str
    title: str
    command: str


@dataclass(slots=True)
class OwnedStack:
    """Servers and files of one run. `keeps_files` and `keeps_all` decide what stays after the run.

    Attributes:
        keeps_files: servers end and lose their data, the folder stays.
        keeps_all: servers and processes stay.
        hurries: servers that keep their data are killed too, as in a crash.
        has_data: whether an earlier run kept its data, and this run continues with it.
    """

    stack: Stack
    folder: Path
    keeps_files: bool = False
    keeps_all: bool = False
    hurries: bool = False
    has_data: bool = False

    @property
    def config(self) -> Path:
        """The cdc.toml of the run."""
        return self.folder / "cdc.toml"

    @property
    def lake(self) -> Path:
        """The folder of the lake."""
        return self.folder / "lake"

    @property
    def keeps_data(self) -> bool:
        """Whether data and files stay, also after a kill; servers and processes end."""
        return (self.folder / _KEPT).exists()

    def keep_data(self, *, keep: bool) -> None:
        """Decide `keeps_data`."""
        if keep:
            (self.folder / _KEPT).touch()
        else:
            (self.folder / _KEPT).unlink(missing_ok=True)

    def remember(self, pid: int) -> None:
        """Record a process that a later run must end if this one is killed."""
        identity = identify(pid)
        if identity is not None:
            file = self.folder / _PROCESSES
            text = json.dumps([*_remembered(file), [identity.pid, identity.started]])
            file.write_text(text, encoding="utf-8")

    def announce(self, address: str) -> None:
        """Record the address that a second run shows, because this one holds the stack."""
        write_file(self.folder / _RUNNING, json.dumps({"pid": os.getpid(), "address": address}))


@contextlib.contextmanager
def owned_stack(
    owner: Owner,
    stack_name: str,
    servers: Sequence[str] = SERVERS,
    *,
    leave: Callable[[Path], bool] = lambda folder: True,  # noqa: ARG005 - the default does nothing
) -> Iterator[OwnedStack]:
    """Provide a stack: an empty one, or the data that `keep_data` kept. On exit, end all that the run started.

    Args:
        owner: the program.
        stack_name: name of the stack.
        servers: servers of the stack.
        leave: is called with the folder of a run when its processes have ended, before its files are removed. It
            returns False if the files must stay.

    Raises:
        LocalError: another run uses the stack, or the stack has data of another program.
    """
    machine = Machine.here()
    stack = Stack(stack_name, servers, machine=machine)
    whole = Stack(stack_name, SERVERS, machine=machine)  # an earlier run may have left any server
    folder = machine.cache / owner.name / stack_name
    with _held(machine, owner, stack_name, folder):
        if stack.home.exists() and not folder.exists():
            raise LocalError(
                f"stack {stack_name!r} exists and does not belong to a {owner.title}",
                hint=f"a {owner.title} wipes its stack; use another name",
                command=owner.command,
            )
        owned = OwnedStack(stack, folder, has_data=(folder / _KEPT).exists())
        _end_processes(folder)
        if not owned.has_data:
            _clear(whole, folder, leave)
        machine.folder(folder)
        write_file(folder / _RUNNING, json.dumps({"pid": os.getpid()}))
        try:
            yield owned
        except BaseException as error:
            owned.keeps_files = not isinstance(error, KeyboardInterrupt)
            _end(owned, whole, leave)
            raise
        if not owned.keeps_all:
            _end(owned, whole, leave)


def _end(owned: OwnedStack, whole: Stack, leave: Callable[[Path], bool]) -> None:
    """End processes and servers, and remove what need not stay."""
    _end_processes(owned.folder)
    if owned.keeps_data:
        _stop(whole, hurries=owned.hurries)
        (owned.folder / _RUNNING).unlink(missing_ok=True)
    else:
        _clear(whole, owned.folder, leave, keep_files=owned.keeps_files)


def _stop(stack: Stack, *, hurries: bool) -> None:
    """Stop servers in order, and kill those that are not gone at the deadline: they recover at the next start."""

    def kill() -> None:
        for server in stack.servers:
            with contextlib.suppress(LocalError):
                server.kill()

    late = threading.Timer(_STOP_S, kill)
    late.daemon = True
    late.start()
    try:
        stack.down("kill" if hurries else "fast")
    finally:
        late.cancel()


def _clear(stack: Stack, folder: Path, leave: Callable[[Path], bool], *, keep_files: bool = False) -> None:
    """Remove the data of a run whose processes have ended; with `keep_files`, the folder stays."""
    left = leave(folder) if folder.exists() else True
    if stack.home.exists():
        stack.down("kill", wipe=True)
    if left and not keep_files:
        shutil.rmtree(folder, ignore_errors=True)


def _end_processes(folder: Path) -> None:
    """Kill the recorded processes and their children."""
    for pid, started in _remembered(folder / _PROCESSES):
        kill_tree(Identity(pid, started), deadline_s=_GONE_S)
    (folder / _PROCESSES).unlink(missing_ok=True)


def _remembered(file: Path) -> list[tuple[int, str]]:
    """Return the recorded processes as pid and start time; none if the file is missing or incomplete."""
    with contextlib.suppress(OSError, ValueError):
        return [(int(pid), str(started)) for pid, started in json.loads(file.read_text(encoding="utf-8"))]
    return []


@contextlib.contextmanager
def _held(machine: Machine, owner: Owner, stack_name: str, folder: Path) -> Iterator[None]:
    """Hold the lock of this run; it ends with the process."""
    file = machine.cache / "locks" / f"{owner.name}-{stack_name}"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(file, machine=machine, deadline_s=0))
        except LocalError as error:
            raise LocalError(
                f"another {owner.title} uses stack {stack_name!r}{_described(folder / _RUNNING)}",
                hint="wait for its end, stop it with Ctrl-C in its terminal, or use another stack",
                command=owner.command,
            ) from error
        yield


def _described(file: Path) -> str:
    """Return process and address of a run, as far as they are known, in parentheses."""
    running: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        running = dict(json.loads(file.read_text(encoding="utf-8")))
    known = [f"pid {running['pid']}" if "pid" in running else "", str(running.get("address", ""))]
    text = ", ".join(part for part in known if part)
    return f" ({text})" if text else ""
