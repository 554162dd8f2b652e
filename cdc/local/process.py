"""Starts, watches and ends the process of a server. It runs detached, and a state file records it.

This module knows nothing about the program. In the server's folder it owns ``state.json``, ``server.log`` and ``run``,
the working directory of the process.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import write_file
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError, LocalStopped
from cdc.local.ports import choose_ports, is_free
from cdc.local.process_identity import Identity, alive, descendants, identify, kill_tree, rss_bytes, send, wait_gone
from cdc.local.server_description import Condition, Description
from cdc.local.stack_state import State, parse_state, render_state

_POLL_S: Final = 0.02
# After SIGKILL only the kernel has to act; it needs longer only under heavy swapping.
_KILL_DEADLINE_S: Final = 20.0
# Another program may take a port after the check and before the server binds it.
_PORT_TRIES_MAX: Final = 3
_LOG_BYTES_MAX: Final = 16 << 20
_TAIL_LINES: Final = 12


@dataclass(frozen=True, slots=True)
class Launch:
    """How to run a program: its arguments, and variables in addition to the few that every server gets."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


class ServerProcess:
    """The process of the server in the folder `home`."""

    def __init__(self, home: Path, machine: Machine, *, name: str, version: str) -> None:
        self.home = home
        self.machine = machine
        self.name = name
        self.version = version
        self.log = home / "server.log"
        self.run = home / "run"
        self._state_file = home / "state.json"
        self._held: dict[str, int] = {}

    @property
    def state(self) -> State:
        """The current content of the state file: another command may have changed it."""
        try:
            return parse_state(self._state_file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return State()

    @property
    def running(self) -> Identity | None:
        """The recorded process if it runs, else None."""
        process = self.state.process
        return process if process is not None and alive(process) else None

    @property
    def ports(self) -> Mapping[str, int]:
        """Ports by role, also of a stopped server; empty before the first start."""
        return self.state.ports

    def launch(
        self,
        build: Callable[[Mapping[str, int]], Launch],
        probe: Callable[[], bool],
        *,
        roles: Sequence[str],
        wanted: Mapping[str, int],
        settings: Mapping[str, str],
        ready_s: float,
    ) -> None:
        """Start the process and wait until it answers.

        Args:
            build: writes the server's configuration for the given ports by role, and returns how to run it.
            probe: returns whether the server answers; called repeatedly.
            roles: names of the ports, the clients' port first.
            wanted: ports that must be used.
            settings: recorded with the process.
            ready_s: deadline for an answer, in seconds.

        Raises:
            LocalStopped: another thread stopped the process.
            LocalError: a port is in use, the process ended, or it did not answer in time and was ended.
        """
        for attempt in range(1, _PORT_TRIES_MAX + 1):
            # After the first start, clients of this object know its ports, so a restart must use the same ones.
            fixed = {**self._held, **wanted}
            ports = choose_ports(roles, wanted=fixed, remembered=self.ports)
            self._spawn(build(ports), ports, settings)
            try:
                self._wait_ready(probe, ready_s)
            except LocalStopped:
                raise
            except LocalError:
                stolen = any(not is_free(port) for role, port in ports.items() if role not in fixed)
                self.kill()
                if not stolen or attempt == _PORT_TRIES_MAX:
                    raise
                self._write(replace(self.state, ports={}))
                continue
            self._held = dict(ports)
            return

    def await_ready(self, probe: Callable[[], bool], ready_s: float) -> None:
        """Wait until a running process answers. Raises LocalError like `launch`."""
        self._wait_ready(probe, ready_s)
        self._held = dict(self.ports)

    def stop(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """End the process: send each signal and wait its seconds, then send SIGKILL to the process tree."""
        process = self.running
        if process is not None:
            family = (process, *descendants(process))
            for number, deadline_s in steps:
                if not send(process, number) or wait_gone([process], deadline_s=deadline_s):
                    break
            self._kill(process, family)
        if self.state.process is not None:
            self._write(replace(self.state, process=None))

    def kill(self) -> None:
        """Send SIGKILL to the process and its descendants; they are gone on return."""
        self.stop(())

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and its descendants, for example with SIGSTOP and SIGCONT."""
        process = self.running
        for member in (process, *descendants(process)) if process is not None else ():
            send(member, number)

    def condition(self, probe: Callable[[], bool]) -> Condition:
        """Return the condition of the server; see `Condition`."""
        state = self.state
        if state.process is None:
            return "stopped" if state.ports else "absent"
        if not alive(state.process):
            return "died"
        return "running" if probe() else "starting"

    def describe(self, probe: Callable[[], bool], *, address: str, exports: Mapping[str, str]) -> Description:
        """Return the description of the server with its `address` and `exports`."""
        state = self.state
        condition = self.condition(probe)
        lives = condition in {"running", "starting"} and state.process is not None
        return Description(
            name=self.name,
            condition=condition,
            version=state.version or self.version,
            address=address if state.ports else "",
            pid=state.process.pid if lives and state.process else None,
            ports=state.ports,
            rss_bytes=rss_bytes(state.process) if lives and state.process else None,
            uptime_s=max(0.0, time.time() - state.started_s) if lives else None,
            data=str(self.home),
            log=str(self.log),
            exports=exports if state.ports else {},
        )

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        try:
            text = self.log.read_bytes()[-64 * 1024 :].decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def check_settings(self, asked: Mapping[str, str], *, port: int | None) -> None:
        """Raise LocalError if the running process has another port or other settings than requested."""
        state = self.state
        differ = sorted(k for k, v in asked.items() if state.settings.get(k) != v)
        if port is not None and port not in state.ports.values():
            differ.append("port")
        if differ:
            raise LocalError(
                f"{self.name} is already running with another {', '.join(differ)}",
                hint="stop it first; its data is kept",
                command=self._command("down"),
                server=self.name,
            )

    def run_tool(self, launch: Launch, *, deadline_s: float) -> None:
        """Run a tool of the server to its end, as the servers' user.

        Raises:
            LocalError: the tool failed (the message has its output) or took longer than `deadline_s` seconds.
        """
        account = self.machine.account
        tool = launch.argv[0].rpartition("/")[2]
        try:
            done = subprocess.run(
                launch.argv,
                env=self._environment(launch),
                cwd=self.machine.private_folder(self.run),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=deadline_s,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalError(f"{tool} of {self.name} cannot be run: {error}", server=self.name) from error
        if done.returncode != 0:
            said = done.stdout.decode(errors="replace").strip()
            raise LocalError(
                f"{tool} of {self.name} failed: {said}", hint="the output of the tool says why", server=self.name
            )

    def _command(self, verb: str) -> str:
        """Return a command about this server; the parent of its folder is named like its stack."""
        return f"cdc local {verb} {self.name} --stack {self.home.parent.name}"

    def _environment(self, launch: Launch) -> dict[str, str]:
        run = str(self.run)
        return {"PATH": self.machine.path, "HOME": run, "TMPDIR": run, "LC_ALL": "C", **launch.env}

    def _spawn(self, launch: Launch, ports: Mapping[str, int], settings: Mapping[str, str]) -> None:
        account = self.machine.account
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                launch.argv,
                env=self._environment(launch),
                cwd=self.machine.private_folder(self.run),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the server outlives this command and its terminal
                umask=0o077,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        identity = identify(child.pid) or Identity(child.pid, "")
        # The server outlives this process: without this, Popen would warn about a running child.
        # `cdc.local.process_identity` collects the exit status if the server ends first.
        child.returncode = 0
        self._write(State(identity, dict(ports), dict(settings), self.version, time.time()))

    def _wait_ready(self, probe: Callable[[], bool], ready_s: float) -> None:
        end = time.monotonic() + ready_s
        while self.running is not None:
            if probe():
                return
            if time.monotonic() > end:
                break
            time.sleep(_POLL_S)
        if self.state.process is None:
            raise LocalStopped(f"{self.name} was stopped while it started", server=self.name)
        what = "ended" if self.running is None else f"did not answer within {ready_s:.0f} s"
        raise LocalError(
            f"{self.name} {what}; the end of {self.log}:\n{self.tail()}",
            hint="the log shows the reason",
            command=self._command("logs"),
            server=self.name,
        )

    def _kill(self, process: Identity, family: Sequence[Identity]) -> None:
        """Send SIGKILL to the process, its descendants, and children that outlived it."""
        gone = kill_tree(process, deadline_s=_KILL_DEADLINE_S)
        for member in family:
            send(member, signal.SIGKILL)
        if not gone or not wait_gone(family, deadline_s=_KILL_DEADLINE_S):
            raise LocalError(
                f"{self.name} (pid {process.pid}) does not end, even after SIGKILL",
                hint="it may wait for a disk that does not respond",
                command=f"ps -o pid,stat,wchan:30,cmd -p {process.pid}",
                server=self.name,
            )

    def _write(self, state: State) -> None:
        """Replace the state file atomically."""
        write_file(self._state_file, render_state(state))
