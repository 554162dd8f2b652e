"""The process of one server: started detached, remembered in a state file, ended by identity.

Knows nothing of what runs in it. In the server's folder it owns ``state.json``, ``server.log`` and ``run``, the folder
that the process works in.
"""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cdc.artifacts.cache_folder import write_file
from cdc.errors import LocalError, LocalStopped
from cdc.local.local_server import Condition, Description
from cdc.local.ports import choose_ports, is_free
from cdc.local.process_identity import Identity, alive, descendants, identify, kill_tree, rss_bytes, send, wait_gone
from cdc.local.stack_state import State, parse_state, render_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cdc.artifacts.machine import Machine

_POLL_S: Final = 0.02
# After SIGKILL only the kernel is left to act; it has taken longer only under heavy swapping.
_KILL_DEADLINE_S: Final = 20.0
# Another program may take a port between our asking and the server's binding.
_PORT_TRIES_MAX: Final = 3
_LOG_BYTES_MAX: Final = 16 << 20
_TAIL_LINES: Final = 12


@dataclass(frozen=True, slots=True)
class Launch:
    """How to run a program: arguments and what its environment has beside the few variables it always gets."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


class ServerProcess:
    """The one process of a server whose folder is `home`."""

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
        """As the file says now: another command may have changed it."""
        try:
            return parse_state(self._state_file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return State()

    @property
    def running(self) -> Identity | None:
        """Our process, if it lives."""
        process = self.state.process
        return process if process is not None and alive(process) else None

    @property
    def ports(self) -> Mapping[str, int]:
        """Its ports by role, also while it is stopped; empty before the first start."""
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
            build: given a port for each role, writes what the server reads and says how to run it.
            probe: whether the server answers; called again and again.
            roles: the names of its ports, the one of its clients first.
            wanted: ports that must be the ones given.
            settings: recorded with the process.
            ready_s: how long it may take to answer.

        Raises:
            LocalStopped: another thread stopped it.
            LocalError: a port is taken, the process ended, or it did not answer in time (it is ended then).
        """
        for attempt in range(1, _PORT_TRIES_MAX + 1):
            # Once up, this object's clients hold addresses, so a restart must be where the first start was.
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
        """Wait until a process that runs already answers; raises LocalError as `launch` does."""
        self._wait_ready(probe, ready_s)
        self._held = dict(self.ports)

    def stop(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """End the process: each signal with the seconds it may take, then SIGKILL for it and all below it."""
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
        """SIGKILL the process and all below it; they are gone on return."""
        self.stop(())

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and all below it; SIGSTOP and SIGCONT make it hang and go on."""
        process = self.running
        for member in (process, *descendants(process)) if process is not None else ():
            send(member, number)

    def condition(self, probe: Callable[[], bool]) -> Condition:
        """How the server does; see `Condition`."""
        state = self.state
        if state.process is None:
            return "stopped" if state.ports else "absent"
        if not alive(state.process):
            return "died"
        return "running" if probe() else "starting"

    def describe(self, probe: Callable[[], bool], *, address: str, exports: Mapping[str, str]) -> Description:
        """The part of a description that all servers share; `address` and `exports` come from the server."""
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
        """The last lines of the log."""
        try:
            text = self.log.read_bytes()[-64 * 1024 :].decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def check_settings(self, asked: Mapping[str, str], *, port: int | None) -> None:
        """Raise LocalError when the running process was started otherwise than is asked for now."""
        state = self.state
        differ = sorted(k for k, v in asked.items() if state.settings.get(k) != v)
        if port is not None and port not in state.ports.values():
            differ.append("port")
        if differ:
            raise LocalError(
                f"{self.name} runs already, and with another {', '.join(differ)}",
                hint="stop it first; its data is kept",
                command=self._command("down"),
                server=self.name,
            )

    def run_tool(self, launch: Launch, *, deadline_s: float) -> None:
        """Run one of the server's tools to its end, as the servers' user.

        Raises:
            LocalError: it failed, and what it said; or it took longer than `deadline_s` seconds.
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
            raise LocalError(f"{tool} of {self.name} failed: {said}", hint="its own words say why", server=self.name)

    def _command(self, verb: str) -> str:
        """A command about this server; its folder lies in that of its stack."""
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
        # The server is meant to outlive us: without this, Popen would warn of a process left behind.
        # `cdc.local.process_identity` collects its status if it ends before we do.
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
            hint="the log says why",
            command=self._command("logs"),
            server=self.name,
        )

    def _kill(self, process: Identity, family: Sequence[Identity]) -> None:
        """SIGKILL what is left: the process with all below it, and children that outlived it."""
        gone = kill_tree(process, deadline_s=_KILL_DEADLINE_S)
        for member in family:
            send(member, signal.SIGKILL)
        if not gone or not wait_gone(family, deadline_s=_KILL_DEADLINE_S):
            raise LocalError(
                f"{self.name} (pid {process.pid}) does not end, not even by SIGKILL",
                hint="it may be waiting for a disk that does not answer",
                command=f"ps -o pid,stat,wchan:30,cmd -p {process.pid}",
                server=self.name,
            )

    def _write(self, state: State) -> None:
        """Replace the state file; a reader sees the old one or the new one."""
        write_file(self._state_file, render_state(state))
