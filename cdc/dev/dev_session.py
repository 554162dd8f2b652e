"""Starts everything of `cdc dev` on its stack, watches it, restarts capture if it ends, and stops it in order.

The servers and the data belong to `cdc.local.owned_stack`, which ends them after this session.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import psycopg

from cdc.artifacts.download_progress import Progress
from cdc.config.load import load
from cdc.dev.chosen_parts import Parts
from cdc.dev.dev_config import Addresses, own_config, shop_config
from cdc.dev.own_database import OwnDatabase
from cdc.dev.part_lines import Sample
from cdc.errors import EXIT_OPERATOR, EXIT_USAGE, LocalError, TailraceError
from cdc.local.command_process import CaptureProcess, read_status
from cdc.local.owned_stack import OwnedStack
from cdc.local.ports import choose_ports
from cdc.replication.connect import translate
from cdc.shop import rows
from cdc.shop.workload import Endless, Shop

PORT: Final = 8087
"""Of the page, if it is free."""

CAPTURE_STOP_S: Final = 30.0
"""From SIGTERM until capture and sinks are killed; the whole end must take less than a minute."""

_SEED: Final = 18
_ANSWERS_S: Final = 90.0
_POLL_S: Final = 0.1
_RESTART_FIRST_S: Final = 2.0
_RESTART_MAX_S: Final = 60.0
_HEALTHY_S: Final = 60.0  # a run of this length resets the pause


class DevSession:
    """One run. Call `start` once, then `sample` again and again, then `stop`. Not thread-safe."""

    def __init__(
        self, owned: OwnedStack, parts: Parts, *, rate: float, own: OwnDatabase | None = None, program: str = "cdc"
    ) -> None:
        """`own` is the user's own database; without it the session creates the shop, with `rate` changes a second.

        `program` is how another terminal calls `cdc`.
        """
        self.owned = owned
        self.parts = parts
        self.own = own
        self.program = program
        self.token = ""
        self.address = ""
        self._rate = rate
        self._capture: CaptureProcess | None = None
        self._shop: Shop | None = None
        self._ports: dict[str, int] = {}
        self._down: frozenset[str] = frozenset()
        self._started_s = time.monotonic()
        self._restart_s: float | None = None
        self._pause_s = _RESTART_FIRST_S
        self._readers = ThreadPoolExecutor(max(1, len(parts.sinks)), thread_name_prefix="status")

    def start(self, progress: Progress, doing: Callable[[str], None]) -> None:
        """Start servers, shop and capture, and wait until capture answers. `doing` is called with each step.

        Raises: TailraceError if a part cannot start. `stop` ends what has started.
        """
        doing(f"starting {', '.join(self.parts.servers)}")
        self.owned.stack.up(progress)
        if self.own is None:
            doing("creating the shop")
            self._create_shop()
        self._write_config()
        doing("starting capture and sinks")
        options = ("--with-sinks",) if self.parts.sinks else ()
        self._capture = CaptureProcess(self.owned, self._ports["http"], *options, with_parent=True)
        self._capture.start()
        self._await_answer(self._capture)
        if self.own is None:
            endless = Endless(self._rate, outbox=self.parts.outbox)
            self._shop = Shop(self.owned.stack.postgres.dsn, _SEED, endless) if self._rate else None
        self.owned.announce(self.address)

    def sample(self) -> tuple[Sample, list[str]]:
        """Read the state of all parts. Returns it, and what has happened since the last call."""
        assert self._capture is not None
        happened = [*self._watch_servers(), *self._watch_capture(self._capture)]
        capture = self._capture.status()
        answers = self._readers.map(lambda sink: read_status(self._ports[sink]), self.parts.sinks)
        shop = self._shop
        changes = (shop.change_count if shop is not None else 0) if self.own is None else None
        sample = Sample(
            at_s=time.monotonic(),
            capture=capture,
            capture_runs=self._capture.pid is not None,
            sinks=dict(zip(self.parts.sinks, answers, strict=True)),
            change_count=changes,
            problem=shop.problem if shop is not None else "",
            servers_down=tuple(name for name in self.parts.servers if name in self._down),
        )
        return sample, happened

    def stop(self, doing: Callable[[str], None]) -> None:
        """Stop the workload, capture and sinks, in this order; kill them at their deadline."""
        if self._shop is not None:
            doing("stopping the workload")
            self._shop.stop()
        if self._capture is not None and self._capture.pid is not None:
            doing("stopping capture and sinks")
            if not self._capture.stop(CAPTURE_STOP_S):
                doing(
                    f"capture or a sink did not stop within {CAPTURE_STOP_S:.0f} s and was killed, which loses nothing"
                )
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _create_shop(self) -> None:
        dsn = self.owned.stack.postgres.dsn
        try:
            with psycopg.connect(dsn) as session:
                if not rows.exists(session):
                    rows.create_tables(session)
                    rows.fill(session, _SEED)
        except psycopg.Error as error:
            raise translate(error, "create the shop") from error
        if self.parts.outbox:
            from outbox.migrate import Migrator

            Migrator(lambda: psycopg.connect(dsn)).up()

    def _write_config(self) -> None:
        """Write cdc.toml, readable only for this user. Token and slot stay those of an earlier run."""
        stack = self.owned.stack
        self._ports = choose_ports(["http", *self.parts.sinks], wanted={}, remembered={"http": PORT})
        self.address = f"http://127.0.0.1:{self._ports['http']}/"
        self.token = _token_of(self.owned.config) or secrets.token_urlsafe(18)
        addresses = Addresses(
            bootstrap=stack.kafka.bootstrap,
            search=stack.opensearch.url if "opensearch" in self.parts.servers else "",
            cache=stack.valkey.url if "valkey" in self.parts.servers else "",
            port=self._ports["http"],
            sink_ports=self._ports,
        )
        if self.own is None:
            dsn, views = stack.postgres.printable_dsn, rows.views_folder()
            text = shop_config(dsn, addresses, self.parts, token=self.token, lake=self.owned.lake, views=views)
        else:
            text = own_config(self.own.source, addresses, self.parts, token=self.token, lake=self.owned.lake)
            if self.own.source.password_file:
                _write_private(Path(self.own.source.password_file), self.own.password.reveal() + "\n")
        _write_private(self.owned.config, text)
        load(self.owned.config, {})

    def _await_answer(self, capture: CaptureProcess) -> None:
        """Wait until /status answers. Raises LocalError with the reason in the log if capture ends before."""
        deadline_s = time.monotonic() + _ANSWERS_S
        while not capture.status():
            capture.check()
            if time.monotonic() > deadline_s:
                raise LocalError(f"capture does not answer after {_ANSWERS_S:.0f} s", hint=capture.end_of_log())
            time.sleep(_POLL_S)

    def _watch_servers(self) -> list[str]:
        down = {server.name: server for server in self.owned.stack.servers if server.pid is None}
        happened = [
            f"{name} has ended; the other parts wait for it\nlog: {server.log}\n"
            f"start it again: {self.program} local up {name} --stack {self.owned.stack.name}"
            for name, server in down.items()
            if name not in self._down
        ]
        happened += [f"{name} runs again" for name in sorted(self._down - set(down))]
        self._down = frozenset(down)
        return happened

    def _watch_capture(self, capture: CaptureProcess) -> list[str]:
        """Restart a capture that has ended, after a pause that grows while it keeps failing."""
        if capture.pid is not None:
            return []
        now_s = time.monotonic()
        if self._restart_s is None:
            code, why = capture.exit_code, capture.end_of_log().splitlines()
            if code in {EXIT_OPERATOR, EXIT_USAGE}:
                self._pause_s = _RESTART_MAX_S
            elif now_s - self._started_s > _HEALTHY_S:
                self._pause_s = _RESTART_FIRST_S
            self._restart_s = now_s + self._pause_s
            ended = f"capture has ended with exit code {code} and restarts in {self._pause_s:.0f} s"
            return ["\n".join([ended, *why, f"log: {capture.log}"])]
        if now_s < self._restart_s:
            return []
        self._pause_s = min(_RESTART_MAX_S, self._pause_s * 2)
        self._restart_s, self._started_s = None, now_s
        capture.start()
        return ["capture starts again"]


def _token_of(config: Path) -> str:
    try:
        token = load(config, {}).http.token
    except TailraceError:
        return ""
    return token.reveal() if token is not None else ""


def _write_private(path: Path, text: str) -> None:
    """Replace a file that only this user can read."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)
