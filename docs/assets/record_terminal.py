"""Records docs/assets/terminal.svg: what `cdc tail` and `cdc status` print, from a real run on local servers.

Run it after a change of their output: ``python docs/assets/record_terminal.py``. It starts servers of its own with
`cdc local`, captures a small shop, and removes all of it at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

TARGET: Final = Path(__file__).with_name("terminal.svg")
STACK: Final = "readme-picture"
CDC: Final = str(Path(sys.executable).with_name("cdc"))
COLUMNS: Final = 98
START_S: Final = 60.0

TABLES: Final = """
create table customers (id int generated always as identity primary key, name text, email text);
create table orders (id int generated always as identity primary key, customer_id int, total numeric(9, 2));
alter table orders replica identity full;
insert into customers (name, email) values ('Zoe', 'zoe@example.org');
"""
CHANGES: Final = (
    "insert into customers (name, email) values ('Ann', 'ann@example.org')",
    "insert into orders (customer_id, total) values (2, 3.00)",
    "update orders set total = 4.50 where id = 1",
    "delete from orders where id = 1",
)
THEME: Final = TerminalTheme(
    (16, 27, 32),
    (222, 232, 235),
    [(40, 56, 63), (240, 112, 104), (120, 205, 140), (235, 195, 110), (108, 170, 230), (205, 140, 220),
     (108, 196, 216), (222, 232, 235)],
    [(110, 135, 143), (250, 140, 130), (150, 225, 165), (250, 215, 140), (140, 195, 245), (225, 170, 235),
     (140, 215, 232), (255, 255, 255)],
)  # fmt: skip
_FONT: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Rich names fonts of another server; the reader's own monospace font will do."""


def run(*arguments: str) -> str:
    """Run one of our commands, and return what it prints."""
    done = subprocess.run([CDC, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def on_terminal(arguments: list[str], folder: Path, environ: dict[str, str]) -> str:
    """Run one of our commands on a terminal, and return its results; what it waits for is left out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    child = subprocess.Popen(
        [CDC, *arguments], cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL
    )
    os.close(theirs)
    shown = io.BytesIO()
    with contextlib.suppress(OSError):  # EIO: the command has ended
        while data := os.read(ours, 65536):
            shown.write(data)
    os.close(ours)
    if child.wait(30):
        sys.exit(f"cdc {' '.join(arguments)} failed: {shown.getvalue().decode()}")
    return shown.getvalue().decode().replace("\r\n", "\n")


def free_port() -> int:
    """A port for /status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def session(folder: Path, servers: dict[str, Any]) -> list[tuple[str, str]]:
    """(command, what it shows), while capture runs."""
    dsn = servers["TAILRACE_SOURCE_DSN"]
    shop = psycopg.connect(dsn, autocommit=True)
    shop.execute(TABLES)
    config = str(folder / "cdc.toml")
    environ = {**os.environ, "TERM": "xterm-256color", "TAILRACE_HTTP_LISTEN": f"127.0.0.1:{free_port()}"}
    environ["TAILRACE_SOURCE_DSN"] = dsn
    run("init", "--local", "--dsn", dsn, "--kafka", servers["TAILRACE_KAFKA_BOOTSTRAP"], "--name", "shop", "-o", config)
    with (folder / "run.log").open("wb") as out:
        daemon = subprocess.Popen([CDC, "run"], cwd=folder, env=environ, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S
        while _log(folder).count(b"snapshot_complete") < 2 and time.monotonic() < deadline:
            if daemon.poll() is not None:
                sys.exit(_log(folder).decode())
            time.sleep(0.2)
        for statement in CHANGES:
            shop.execute(statement)
            time.sleep(0.4)
        commands = [["tail", "--from", "1m", "--op", "c,u,d", "-n", "4"], ["status"]]
        return [(f"cdc {' '.join(words)}", on_terminal(words, folder, environ)) for words in commands]
    finally:
        shop.close()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)


def _log(folder: Path) -> bytes:
    return (folder / "run.log").read_bytes()


def picture(lines: list[tuple[str, str]]) -> str:
    """The session as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (command, shown) in enumerate(lines):
        if number:
            console.print()
        console.print(Text.assemble(("$ ", "bold bright_cyan"), (command, "bold bright_white")))
        console.print(Text.from_ansi(shown.rstrip("\n")), soft_wrap=True)
    svg = console.export_svg(title="Tailrace", theme=THEME, unique_id="terminal")
    svg = _FONT.sub("", svg).replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Start servers, record, remove them."""
    run("local", "up", "--stack", STACK, "--fast-start")
    try:
        servers = json.loads(run("local", "env", "--stack", STACK, "--json"))
        with tempfile.TemporaryDirectory() as folder:
            lines = session(Path(folder), servers)
    finally:
        run("local", "down", "--stack", STACK, "--wipe")
    TARGET.write_text(picture(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
