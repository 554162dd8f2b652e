"""A PostgreSQL server, from the programs of `cdc.local.postgres_programs`: 18, or an older major.

They are called directly: the package's own manager knows neither root nor logical replication. It listens on loopback
and on a socket that only the servers' user can open. Superuser `postgres`, database `shop`; the password is random and
lies in `pgpass` beside the data, in the format of PGPASSFILE, which only the servers' user may read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from cdc.artifacts.cache_folder import write_file
from cdc.errors import LocalError
from cdc.local.local_server import Description, ServerOptions, StopMode
from cdc.local.ports import LOOPBACK
from cdc.local.postgres_programs import DEFAULT_MAJOR, MAJORS, PgPrograms
from cdc.local.process import Launch, ServerProcess
from cdc.local.process_identity import command_line, identify, processes_in_folder, send, wait_gone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

USER: Final = "postgres"
DATABASE: Final = "shop"
_BUILTIN_LOCALES_SINCE: Final = 17

# Replaying a large WAL after a crash takes long before the server answers; 300 s are some 20 GB.
_READY_S: Final = 300.0
_STOP_S: Final = 30.0
_IMMEDIATE_S: Final = 10.0
_INITDB_S: Final = 120.0
_ORPHANS_S: Final = 10.0
# sockaddr_un holds 108 bytes on Linux and 104 on macOS; PostgreSQL adds its file name to the folder's.
_SOCKET_FOLDER_BYTES_MAX: Final = 80

_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": LOOPBACK,
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_prepared_transactions": "20",  # two-phase commit is part of what is captured
    "shared_buffers": "128MB",
    "log_line_prefix": "%m [%p] %a ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def render_conf(settings: Mapping[str, str], *, include: Path) -> str:
    """The text of our configuration file: the cluster's own, then `settings`; what ALTER SYSTEM sets goes over both."""
    lines = [f"include = {_quoted(str(include))}\n"]
    lines += [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
    return "".join(lines)


def _quoted(value: str) -> str:
    r"""A value as guc-file.l reads it back: ``'`` is doubled, ``\`` and line ends are escaped."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


class Postgres:
    """One PostgreSQL server with its data under `home`."""

    name = "postgres"

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self.home = home
        self.options = options
        self._machine = machine
        self._data = home / "data"
        self._bin = Path()
        found = self._data_major()
        # Data of a major that is not there can still be described and wiped; `prepare` refuses it.
        self._programs = PgPrograms(options.version or (found if found in MAJORS else DEFAULT_MAJOR), machine)
        self._process = ServerProcess(home, machine, name=self.name, version=self._programs.version)

    @property
    def port(self) -> int:
        """The TCP port; 0 before the first start."""
        return self._process.ports.get("postgres", 0)

    @property
    def dsn(self) -> str:
        """A connection URI of the superuser for the database `shop`. It holds the password: do not print it."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """As `dsn` for another database; the name is taken as it is."""
        password = self._password()
        return f"postgresql://{USER}{f':{password}' if password else ''}@{LOOPBACK}:{self.port}/{database}"

    @property
    def printable_dsn(self) -> str:
        """As `dsn`, with the name of the password file in place of the password."""
        passfile = f"?passfile={quote(str(self.passfile))}" if self.passfile.exists() else ""
        return f"postgresql://{USER}@{LOOPBACK}:{self.port}/{DATABASE}{passfile}"

    @property
    def passfile(self) -> Path:
        """The password file, as libpq reads it. Data of earlier versions has none and asks for no password."""
        return self.home / "pgpass"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._process.log

    @property
    def data(self) -> Path:
        """The data directory (PGDATA)."""
        return self._data

    @property
    def programs(self) -> Path:
        """The folder of postgres and initdb, of the default major also psql, pgbench and all others.

        Known after `prepare`.
        """
        return self._bin

    @property
    def pid(self) -> int | None:
        """The postmaster's pid while it lives."""
        running = self._process.running
        return running.pid if running else None

    def prepare(self, progress: Progress) -> None:
        """See `Server`."""
        self._machine.folder(self.home)
        found, wanted = self._data_major(), self._programs.major
        if found not in {"", wanted}:
            raise LocalError(
                f"the data in {self._data} is of PostgreSQL {found}, not {wanted}",
                hint="remove it, or take another stack",
                command=f"cdc local down postgres --wipe --stack {self.home.parent.name}",
            )
        self._bin = self._programs.install(progress) / "bin"
        if not found:
            progress.step("creating a PostgreSQL cluster")
            self._initdb()

    def start(self) -> bool:
        """See `Server`."""
        if self._process.running is not None:
            self._process.check_settings(self.options.settings, port=self.options.port)
            self._process.await_ready(self.ready, _READY_S)
            return False
        if not self._bin.name:
            raise LocalError("postgres was not prepared", hint="call prepare first")
        self._clear_up()
        port = self.options.port
        self._process.launch(
            self._launch,
            self.ready,
            roles=("postgres",),
            wanted={"postgres": port} if port else {},
            settings=self.options.settings,
            ready_s=_READY_S,
        )
        self._create_database()
        return True

    def ready(self) -> bool:
        """See `Server`."""
        import psycopg

        if not self.port or self._process.running is None:
            return False
        try:
            with psycopg.connect(self.dsn_of("postgres"), connect_timeout=3, sslmode="disable") as connection:
                # Another server may have the port: only one with our data directory is ours.
                row = connection.execute("select current_setting('data_directory')").fetchone()
        except psycopg.OperationalError:
            return False
        return row is not None and Path(row[0]).resolve() == self._data.resolve()

    def stop(self, mode: StopMode = "fast") -> None:
        """See `Server`. `fast` lets walsenders send what there is, which a stuck reader delays up to 30 s."""
        fast = [(signal.SIGINT, _STOP_S)] if mode == "fast" else []
        immediate = [(signal.SIGQUIT, _IMMEDIATE_S)] if mode != "kill" else []
        self._process.stop([*fast, *immediate])
        if self._socket_folder != self._process.run:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL the postmaster and all its children; they are gone on return, and `start` works."""
        self.stop("kill")

    def pause(self) -> None:
        """Make it hang: it keeps its connections and answers nothing, until `resume` or its end."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.signal(signal.SIGCONT)

    def restart(self, mode: StopMode = "fast", *, settings: Mapping[str, str] | None = None) -> None:
        """Stop and start on the same port; `settings` replace the extra ones from now on."""
        self.stop(mode)
        if settings is not None:
            self.options = replace(self.options, settings=settings)
        self.start()

    def describe(self) -> Description:
        """See `Server`."""
        exports = {
            "PGHOST": LOOPBACK,
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGDATABASE": DATABASE,
            **({"PGPASSFILE": str(self.passfile)} if self.passfile.exists() else {}),
            "TAILRACE_SOURCE_DSN": self.printable_dsn,
        }
        return self._process.describe(self.ready, address=self.printable_dsn, exports=exports)

    def _password(self) -> str:
        """The superuser's password; empty when the data asks for none."""
        try:
            return self.passfile.read_text(encoding="utf-8").split("\n", 1)[0].rpartition(":")[2]
        except FileNotFoundError:
            return ""
        except PermissionError as error:
            raise LocalError(
                f"{self.passfile} cannot be read: it belongs to another user",
                hint="the user who started these servers may use them; start your own",
                command="cdc local up postgres --stack mine",
                path=str(self.passfile),
            ) from error

    def _data_major(self) -> str:
        """The major that made the data; empty when there is none."""
        try:
            return (self._data / "PG_VERSION").read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def _initdb(self) -> None:
        """Make the cluster beside its place and rename it, so that a half-made one is never taken for one."""
        part = self.home / "data.part"
        shutil.rmtree(part, ignore_errors=True)
        self._machine.private_folder(part)
        password = secrets.token_urlsafe(24)
        self._write_private(self.passfile, f"{LOOPBACK}:*:*:{USER}:{password}\nlocalhost:*:*:{USER}:{password}\n")
        given = self.home / "password"
        self._write_private(given, password)
        # The C locale orders by bytes, as Kafka's keys do, and is the same on every machine.
        argv = [str(self._bin / "initdb"), "-D", str(part), "-U", USER, "-A", "scram-sha-256", "--pwfile", str(given)]
        argv += ["-E", "UTF8"]
        argv += ["--locale=C"]
        if int(self._programs.major) >= _BUILTIN_LOCALES_SINCE:
            argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        argv += ["--no-sync"] if self.options.fast_start else []
        try:
            self._process.run_tool(Launch(argv), deadline_s=_INITDB_S)
        finally:
            given.unlink(missing_ok=True)
        part.rename(self._data)

    def _write_private(self, path: Path, text: str) -> None:
        """Write a file that only the servers' user may read; `home` is a folder of ours."""
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            account = self._machine.account
            if account is not None:
                os.fchown(handle, account.uid, account.gid)

    def _launch(self, ports: Mapping[str, int]) -> Launch:
        settings = {
            **_SETTINGS,
            "port": str(ports["postgres"]),
            "unix_socket_directories": str(self._machine.private_folder(self._socket_folder)),
            **self.options.settings,
        }
        conf = self.home / "postgresql.conf"
        write_file(conf, render_conf(settings, include=self._data / "postgresql.conf"))
        return Launch([str(self._bin / "postgres"), "-D", str(self._data), "-c", f"config_file={conf}"])

    @property
    def _socket_folder(self) -> Path:
        if len(str(self._process.run)) <= _SOCKET_FOLDER_BYTES_MAX:
            return self._process.run
        short = hashlib.sha256(str(self.home).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"tailrace-{short}"

    def _create_database(self) -> None:
        import psycopg

        with psycopg.connect(self.dsn_of("postgres"), autocommit=True, sslmode="disable") as connection:
            if connection.execute("select 1 from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                connection.execute(f"create database {DATABASE}")

    def _clear_up(self) -> None:
        """Remove what a postmaster that was killed leaves in the next one's way: backends and lock files."""
        # Backends hold its shared memory until they notice, which they do as soon as they wait for something.
        orphans = [p for p in processes_in_folder(self._data) if command_line(p.pid).startswith("postgres: ")]
        if not wait_gone(orphans, deadline_s=_ORPHANS_S):
            for orphan in orphans:
                send(orphan, signal.SIGKILL)
            wait_gone(orphans, deadline_s=_ORPHANS_S)
        # PostgreSQL takes a lock file for dead when no process has its pid. But a zombie has one, until an init that
        # may be slow or missing (in a container) collects it, and so has whoever got the pid after it.
        for lock in (self._data / "postmaster.pid", *self._socket_folder.glob(".s.PGSQL.*.lock")):
            with contextlib.suppress(FileNotFoundError, ValueError):
                pid = int(lock.read_text().split("\n", 1)[0])
                if identify(pid) is None or str(self._data) not in command_line(pid):
                    lock.unlink()
