"""Runs a PostgreSQL server with the programs of `cdc.local.postgres_programs`: 18, or an older major version.

The programs are called directly, because the package's own manager supports neither root nor logical replication. The
server listens on loopback and on a socket that only the servers' user can open. The superuser is `postgres`, the
database `shop`. The random password is in `pgpass` next to the data, in the format of PGPASSFILE, and only the servers'
user can read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cdc.artifacts.cache_folder import write_file
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local.local_server import LocalServer, ServerOptions, StopMode
from cdc.local.ports import LOOPBACK
from cdc.local.postgres_programs import DEFAULT_MAJOR, MAJORS, PgPrograms
from cdc.local.process import Launch
from cdc.local.process_identity import command_line, identify, processes_in_folder, send, wait_gone

USER: Final = "postgres"
DATABASE: Final = "shop"
_BUILTIN_LOCALES_SINCE: Final = 17

_IMMEDIATE_S: Final = 10.0
_INITDB_S: Final = 120.0
_ORPHANS_S: Final = 10.0
# sockaddr_un has 108 bytes on Linux and 104 on macOS, and PostgreSQL appends its file name to the folder.
_SOCKET_FOLDER_BYTES_MAX: Final = 80

_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": LOOPBACK,
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_prepared_transactions": "20",  # capture supports two-phase commit
    "shared_buffers": "128MB",
    "log_line_prefix": "%m [%p] %a ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def render_conf(settings: Mapping[str, str], *, include: Path) -> str:
    """Return the configuration file: it includes the cluster's own, then `settings`. ALTER SYSTEM overrides both."""
    lines = [f"include = {_quoted(str(include))}\n"]
    lines += [f"{name} = {_quoted(value)}\n" for name, value in settings.items()]
    return "".join(lines)


def _quoted(value: str) -> str:
    r"""Quote a value for guc-file.l: ``'`` is doubled, ``\`` and line breaks are escaped."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"


class Postgres(LocalServer):
    """One PostgreSQL server with its data in `home`."""

    name = "postgres"
    _ready_s = 300.0  # replaying WAL after a crash takes long; 300 s are about 20 GB

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self._bin = Path()
        found = _major_of(home / "data")
        # Data of an unavailable major version can be described and wiped; `prepare` rejects it.
        self._programs = PgPrograms(options.version or (found if found in MAJORS else DEFAULT_MAJOR), machine)
        super().__init__(home, machine, options, version=self._programs.version)

    @property
    def dsn(self) -> str:
        """The superuser's connection URI for the database `shop`. It contains the password: do not print it."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """Return `dsn` for another database; the name is not escaped."""
        password = self._password()
        return f"postgresql://{USER}{f':{password}' if password else ''}@{LOOPBACK}:{self.port}/{database}"

    @property
    def printable_dsn(self) -> str:
        """`dsn` with the path of the password file instead of the password."""
        passfile = f"?passfile={quote(str(self.passfile))}" if self.passfile.exists() else ""
        return f"postgresql://{USER}@{LOOPBACK}:{self.port}/{DATABASE}{passfile}"

    @property
    def passfile(self) -> Path:
        """The password file for libpq. Data of earlier versions has none and needs no password."""
        return self.home / "pgpass"

    @property
    def address(self) -> str:
        """See `LocalServer`."""
        return self.printable_dsn

    @property
    def programs(self) -> Path:
        """The folder of postgres and initdb, and in the default major version of all other programs.

        Known after `prepare`.
        """
        return self._bin

    def prepare(self, progress: Progress) -> None:
        """See `LocalServer`."""
        self._machine.folder(self.home)
        found, wanted = _major_of(self._data), self._programs.major
        if found not in {"", wanted}:
            raise LocalError(
                f"the data in {self._data} is of PostgreSQL {found}, not {wanted}",
                hint="remove the data, or use another stack",
                command=f"cdc local down postgres --wipe --stack {self.home.parent.name}",
            )
        self._bin = self._programs.install(progress) / "bin"
        if not found:
            progress.step("creating a PostgreSQL cluster")
            self._initdb()

    def stop(self, mode: StopMode = "fast") -> None:
        """See `LocalServer`. At `fast`, walsenders send the remaining WAL; a stuck reader delays that up to 30 s."""
        fast = [(signal.SIGINT, self._stop_s)] if mode == "fast" else []
        immediate = [(signal.SIGQUIT, _IMMEDIATE_S)] if mode != "kill" else []
        self._process.stop([*fast, *immediate])
        if self._socket_folder != self._process.run:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def _start(self) -> None:
        if not self._bin.name:
            raise self._unprepared()
        self._clear_up()
        self._launch(self._command)
        self._create_database()

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.dsn_of("postgres"), connect_timeout=3, sslmode="disable") as connection:
                # Another server may have the port: only a server with this data directory counts.
                row = connection.execute("select current_setting('data_directory')").fetchone()
        except psycopg.OperationalError:
            return False
        return row is not None and Path(row[0]).resolve() == self._data.resolve()

    def _exports(self) -> Mapping[str, str]:
        return {
            "PGHOST": LOOPBACK,
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGDATABASE": DATABASE,
            **({"PGPASSFILE": str(self.passfile)} if self.passfile.exists() else {}),
            "TAILRACE_SOURCE_DSN": self.printable_dsn,
        }

    def _password(self) -> str:
        """Return the superuser's password; empty if the data needs none."""
        try:
            return self.passfile.read_text(encoding="utf-8").split("\n", 1)[0].rpartition(":")[2]
        except FileNotFoundError:
            return ""
        except PermissionError as error:
            raise LocalError(
                f"{self.passfile} cannot be read: it belongs to another user",
                hint="only the user who started these servers can use them; start your own stack",
                command="cdc local up postgres --stack mine",
                path=str(self.passfile),
            ) from error

    def _initdb(self) -> None:
        """Create the cluster in a temporary folder and rename it, so that an incomplete cluster is never used."""
        part = self.home / "data.part"
        shutil.rmtree(part, ignore_errors=True)
        self._machine.private_folder(part)
        password = secrets.token_urlsafe(24)
        self._write_private(self.passfile, f"{LOOPBACK}:*:*:{USER}:{password}\nlocalhost:*:*:{USER}:{password}\n")
        given = self.home / "password"
        self._write_private(given, password)
        # The C locale orders by bytes like Kafka's keys, and is the same on every machine.
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
        """Write a file that only the servers' user can read."""
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            account = self._machine.account
            if account is not None:
                os.fchown(handle, account.uid, account.gid)

    def _command(self, ports: Mapping[str, int]) -> Launch:
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
        """Remove what a killed postmaster leaves: backends and lock files, which would prevent the next start."""
        # Backends hold the shared memory until they notice the end of the postmaster, at their next wait.
        orphans = [p for p in processes_in_folder(self._data) if command_line(p.pid).startswith("postgres: ")]
        if not wait_gone(orphans, deadline_s=_ORPHANS_S):
            for orphan in orphans:
                send(orphan, signal.SIGKILL)
            wait_gone(orphans, deadline_s=_ORPHANS_S)
        # PostgreSQL ignores a lock file if no process has its pid. But a zombie still has the pid until init collects
        # it, which may be slow or missing in a container, and a new process may have got the same pid.
        for lock in (self._data / "postmaster.pid", *self._socket_folder.glob(".s.PGSQL.*.lock")):
            with contextlib.suppress(FileNotFoundError, ValueError):
                pid = int(lock.read_text().split("\n", 1)[0])
                if identify(pid) is None or str(self._data) not in command_line(pid):
                    lock.unlink()


def _major_of(data: Path) -> str:
    """Return the major version that created the data; empty without data."""
    try:
        return (data / "PG_VERSION").read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
