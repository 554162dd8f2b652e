"""Starts and ends the JVM that Spark runs in, and leaves neither process nor files behind.

We start it ourselves instead of through pyspark's scripts. Those cost a shell and a second JVM, put every setting on a
command line that all users of the machine can read, share our terminal, and need a module (jdk.incubator.vector) that
reduced JVMs lack. This module does not know pyspark, only the handshake of Spark's PythonGatewayServer. The JVM writes
port and secret to a given file, and ends when its standard input ends, so also if we are killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from cdc.errors import LakeUnready, SinkUnfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.artifacts.java import Java

MEMORY: Final = "spark.driver.memory"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_CLASS_PATH: Final = "spark.driver.extraClassPath"
# What Spark 4.2's JavaModuleOptions opens, without its --add-modules; a test in tests/spark compares both.
_OPENED: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
# A cut is bulk work, in which no pause matters. On two cores, G1's threads take a tenth of the time.
COLLECTOR: Final = "-XX:+UseParallelGC"
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC$")  # a JVM refuses two
# C2 compiles only what is really hot. All code that plans a job is called often, and compiling it well took the time of
# the cuts of the first minutes. 2 cores, 2026-11-24; in brackets the JVM's own 5000, 600 and 15000, and ten times
# these: 500 changes a second appear in a view after 3.7 and 4.4 s at p95 (6.1; 3.9 and 4.5); rounds of 300,000 rows
# into a mirror, 71,755 to 95,552 changes a second (68,280 to 102,670; 45,495 to 96,829).
COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=200000",
)
# Errors only, to a file of bounded size: Spark's output belongs neither on stdout nor between our own log lines.
LOG4J: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:tailrace.spark.log}
appender.file.filePattern = ${sys:tailrace.spark.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5 MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
"""
_RUN: Final = "run-"
_OPTIONS_FILE: Final = "java.options"
# Our own variables, and libpq's, such as PGPASSWORD.
_WITHHELD: Final = ("TAILRACE_", "PG")
# A start takes 3 s on two idle cores (2026-11-21), and longer on a busy machine.
_START_S: Final = 120.0
# Packages that a user names are downloaded first; the connector of an object store has hundreds of megabytes.
_FETCHING_S: Final = 1800.0
_PACKAGES: Final = "spark.jars.packages"
_POLL_S: Final = 0.02
# Time for Spark's shutdown hooks to delete its folders after the end of its input.
_END_S: Final = 10.0
# Its sockets close a moment before its process ends.
_DYING_S: Final = 2.0
_TAIL_BYTES: Final = 2000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The JVM's port, and the secret that it requires."""

    port: int
    secret: str = field(repr=False)


def render_properties(properties: Mapping[str, str]) -> str:
    """Return a Java properties file in Spark's format.

    Raises:
        SinkUnfit: a key is not a Spark setting; Spark would ignore it silently.
    """
    for key in properties:
        if not re.fullmatch(r"spark\.\S+", key):
            raise SinkUnfit(
                f"{key!r} is not the name of a Spark setting", hint="setting names begin with `spark.`", key=key
            )
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def render_command(java: Java, spark_home: Path, folder: Path, properties: Mapping[str, str], log: Path) -> list[str]:
    """Return the command line of the JVM whose settings are in `folder`; secrets are only in files.

    Raises:
        SinkUnfit: the memory is not a size that a JVM accepts.
    """
    memory = properties[MEMORY]
    if not re.fullmatch(r"[1-9][0-9]*[kmgtKMGT]", memory):
        raise SinkUnfit(f"invalid amount of memory for Spark: {memory!r}", hint="expected e.g. 2g or 1500m")
    own = shlex.split(properties.get(_JAVA_OPTIONS, ""))
    class_path = [str(spark_home / "conf"), str(spark_home / "jars" / "*")]
    if properties.get(_CLASS_PATH):
        class_path.insert(0, properties[_CLASS_PATH])
    return [
        str(java.program),
        "-cp",
        os.pathsep.join(class_path),
        f"-Xmx{memory}",
        # After that its state is unreliable. A dead JVM is replaced by a new one.
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        *(() if any(_COLLECTOR.match(option) for option in own) else (COLLECTOR,)),
        *COMPILER,
        *MODULE_OPTIONS,
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
        f"-Dtailrace.spark.log={log}",
        *((f"@{folder / _OPTIONS_FILE}",) if own else ()),
        "org.apache.spark.deploy.SparkSubmit",
        "--load-spark-defaults",
        "--properties-file",
        str(folder / "spark.properties"),
        "pyspark-shell",
    ]


def render_java_options(properties: Mapping[str, str]) -> str:
    """Return the user's own JVM options as a file that `java` reads: they may contain the password of a trust store."""
    own = shlex.split(properties.get(_JAVA_OPTIONS, ""))
    return "".join('"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"\n' for option in own)


def render_environment(environ: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the JVM, which its Python workers inherit: without secrets that it does not need.

    It gets its configuration from its properties file. Variables of Java, Hadoop and object stores stay.

    Args:
        environ: of this process.
        own: variables for the handshake.
    """
    kept = {name: value for name, value in environ.items() if not name.upper().startswith(_WITHHELD)}
    return {**kept, **own}


def render_end(code: int, words: str) -> str:
    """Describe the end of a JVM, by its exit code and its last output line if that line says why it ended."""
    if "OutOfMemoryError" in words:
        return words
    if code == -signal.SIGKILL:
        return "it was killed by SIGKILL, possibly because the machine ran out of memory"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


@dataclass(slots=True)
class RunFolder:
    """A private folder of one JVM. We and the JVM hold its lock, so it is free once both have ended."""

    path: Path
    lock: IO[str]

    @classmethod
    def make(cls, scratch: Path) -> RunFolder:
        """Create a folder below `scratch`, and remove the folders of dead JVMs.

        Raises:
            LakeUnready: the folder cannot be created.
        """
        try:
            scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (scratch / "lock").open("a") as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)  # for milliseconds
                for old in scratch.glob(f"{_RUN}*"):
                    _remove_unless_held(old)
                path = Path(tempfile.mkdtemp(prefix=_RUN, dir=scratch))
                (path / "tmp").mkdir()
                lock = (path / "lock").open("w")
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise LakeUnready(
                f"cannot create a folder for Spark below {scratch}: {error.strerror}",
                hint="Spark needs a local disk with space for its temporary data",
                path=str(scratch),
            ) from error
        return cls(path, lock)

    def remove(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.lock.close()


class Jvm:
    """A running JVM, owned by this process."""

    def __init__(self, process: subprocess.Popen[bytes], folder: RunFolder, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.folder = folder
        self._process = process

    @classmethod
    def start(cls, java: Java, spark_home: Path, folder: RunFolder, properties: Mapping[str, str]) -> Jvm:
        """Start a JVM and wait until it answers. It owns `folder` from here on, even if this fails.

        Raises:
            LakeUnready: it ended, or did not answer in time; the message has its last output.
        """
        output = folder.path.parent / "spark.out"
        log = folder.path.parent / "spark.log"
        command = render_command(java, spark_home, folder.path, properties, log)
        process: subprocess.Popen[bytes] | None = None
        try:
            _write_private(folder.path / "spark.properties", render_properties(properties))
            _write_private(folder.path / "log4j2.properties", LOG4J)
            _write_private(folder.path / _OPTIONS_FILE, render_java_options(properties))
            if output.exists():
                output.replace(output.with_name("spark.out.1"))
            process = _launch(command, folder, spark_home, output)
            within_s = _FETCHING_S if properties.get(_PACKAGES) else _START_S
            return cls(process, folder, _await_endpoint(process, folder.path / "endpoint", java, output, within_s))
        except BaseException as error:
            if process is not None:
                _end(process, deadline_s=0.0)
            folder.remove()
            if isinstance(error, OSError):
                raise LakeUnready(
                    f"cannot start Java {java.version} for Spark: {error.strerror}", path=str(java.program)
                ) from error
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def exit_reason(self) -> str:
        """Describe how it ended; empty while it runs. Waits a moment for one that is about to end."""
        try:
            code = self._process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return ""
        return render_end(code, _last_line(self.folder.path.parent / "spark.out"))

    def end(self) -> None:
        """Close its input, kill it if it does not end, and remove its folder. It has ended on return. Repeatable."""
        _end(self._process, deadline_s=_END_S)
        self.folder.remove()


def _launch(command: list[str], folder: RunFolder, spark_home: Path, output: Path) -> subprocess.Popen[bytes]:
    own = {
        "SPARK_HOME": str(spark_home),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder.path / "endpoint"),
    }
    environ = render_environment(os.environ, own)
    with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=environ,
            pass_fds=[folder.lock.fileno()],
            start_new_session=True,  # Ctrl-C is for this process to handle
        )


def _await_endpoint(
    process: subprocess.Popen[bytes], file: Path, java: Java, output: Path, within_s: float
) -> Endpoint:
    deadline = time.monotonic() + within_s
    while not file.exists():  # the JVM renames it into place
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            what = f"ended with {ended}" if ended is not None else f"did not answer within {within_s:.0f} s"
            raise LakeUnready(
                f"Spark's JVM (Java {java.version}) {what}: {_last_line(output)}",
                hint="the file below has its whole output",
                command=f"cat {shlex.quote(str(output))}",
                path=str(output),
            )
        time.sleep(_POLL_S)
    content = file.read_bytes()
    file.unlink()
    port, length = struct.unpack_from(">ii", content)
    return Endpoint(port, content[8 : 8 + length].decode())


def _end(process: subprocess.Popen[bytes], *, deadline_s: float) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(output: Path) -> str:
    """Return the last informative line; lines of a stack trace are skipped."""
    text = output.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "    at "))]
    return lines[-1] if lines else "it printed nothing"


def _remove_unless_held(folder: Path) -> None:
    try:
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except (BlockingIOError, FileNotFoundError):
        return  # in use, or just removed by its owner


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)


def _escaped(text: str) -> str:
    """Escape special characters for java.util.Properties."""
    special = re.sub(r"([\\=:#! ])", r"\\\1", text)
    return special.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
