"""`cdc dev`: local servers, the sample shop or the user's database, capture and all sinks, until Ctrl-C."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli.finding_text import show_finding
from cdc.config.secret import Secret
from cdc.errors import EXIT_FAILED, EXIT_OK, SourceRefused, TailraceError, UsageError

if TYPE_CHECKING:
    from cdc.cli.dev_screen import DevScreen
    from cdc.cli.dev_signals import DevSignals
    from cdc.dev.dev_session import DevSession
    from cdc.dev.own_database import OwnDatabase
    from cdc.dev.part_lines import Sample
    from cdc.local.owned_stack import OwnedStack, Owner

_STACK: Final = "dev"
_OPTIONAL: Final = ("search", "cache", "lake")
_RATE: Final = 20.0
_LEFT_OUT_MAX: Final = 5  # tables named on the terminal
_REFRESH_S: Final = 1.0
_RATE_SAMPLES: Final = 11  # the rates shown are those of the last ten seconds


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command line. `dsn` is None for the sample shop."""

    stack: str
    dsn: Secret | None
    without: tuple[str, ...]
    rate: float
    keep: bool


@click.command("dev")
@click.option("--dsn", metavar="DSN", help="Capture this database  [default: a sample shop with a workload].")
@click.option(
    "--without", multiple=True, type=click.Choice(_OPTIONAL), help="Leave out a sink, e.g. the lake; repeatable."
)
@click.option(
    "--rate",
    metavar="N",
    type=click.FloatRange(0, 10_000),
    help="Changed rows per second of the shop; 0: none  [default: 20].",
)
@click.option("--keep", is_flag=True, help="Keep the data for the next start, until --end.")
@click.option(
    "--stack",
    "stack_name",
    metavar="NAME",
    default=_STACK,
    show_default=True,
    help="Name of the servers and their data.",
)
@click.option("--end", is_flag=True, help="End and remove what a killed run or --keep left, then exit.")
def command(
    dsn: str | None, without: tuple[str, ...], rate: float | None, keep: bool, stack_name: str, end: bool
) -> int:
    """Run servers, capture, all sinks and the page until Ctrl-C.

    Starts PostgreSQL, Kafka, OpenSearch and Valkey on this machine without Docker, a sample shop with a workload,
    capture and all sinks, and prints the addresses. Opens no browser. The first Ctrl-C ends everything in order, the
    second one at once.

    With --dsn there is neither a shop nor a local PostgreSQL: your database is captured, after the checks of `cdc
    doctor`. The end drops slot and publication again, unless --keep is given.
    """
    from cdc.cli.dev_screen import DevScreen
    from cdc.cli.dev_signals import DevSignals

    if dsn is not None and rate is not None:
        raise UsageError("--rate is for the sample shop", hint="omit it with --dsn: nothing writes to your database")
    screen, signals = DevScreen(), DevSignals()
    try:
        if end:
            return _end(screen, stack_name)
        secret = None if dsn is None else Secret(dsn)
        return _run(screen, signals, _Options(stack_name, secret, without, _RATE if rate is None else rate, keep))
    finally:
        signals.ignored = True
        screen.close()


def _end(screen: DevScreen, stack_name: str) -> int:
    from cdc.local.owned_stack import owned_stack

    with owned_stack(_owner(stack_name), stack_name, leave=lambda folder: _leave(screen, folder)) as owned:
        owned.keep_data(keep=False)
    screen.said(f"ended: nothing of stack {stack_name} runs, and its data is removed")
    return EXIT_OK


def _run(screen: DevScreen, signals: DevSignals, options: _Options) -> int:
    from cdc.dev.chosen_parts import choose_parts
    from cdc.dev.dev_session import DevSession
    from cdc.local.owned_stack import owned_stack

    parts = choose_parts(options.without, own_database=options.dsn is not None, installed=_installed)
    for one in parts.left_out:
        screen.said(f"without {one.what}: the extra {one.extra!r} is not installed; {one.command}")
    in_order, last_words = False, "ended"
    try:
        with owned_stack(
            _owner(options.stack), options.stack, parts.servers, leave=lambda folder: _leave(screen, folder)
        ) as owned:
            own = _own_database(screen, owned, options)
            owned.keep_data(keep=options.keep or owned.has_data)
            last_words = _last_words(owned, own, options.stack)
            session = DevSession(owned, parts, rate=options.rate, own=own, program=_program())
            in_order = _work(screen, session, keeps=owned.keeps_data)
            owned.hurries = not in_order
            signals.ignored = not (in_order and owned.keeps_data)  # the end of servers that keep no data is quick
            screen.doing("stopping the servers")
    except KeyboardInterrupt:
        in_order = False
    screen.said(last_words)
    return EXIT_OK if in_order else EXIT_FAILED


def _work(screen: DevScreen, session: DevSession, *, keeps: bool) -> bool:
    """Run the session until a signal, and stop it. Returns False if a second signal interrupted the stop."""
    from cdc.cli.progress_bars import DownloadBars

    try:
        with DownloadBars() as bars:
            session.start(bars, screen.doing)
        screen.addresses(session, session.program, keeps=keeps)
        _watch(screen, session)
    except KeyboardInterrupt:
        screen.close()
        screen.said("ending everything in order; Ctrl-C again ends it at once")
    finally:
        screen.close()
        in_order = _stopped(screen, session)
    return in_order


def _stopped(screen: DevScreen, session: DevSession) -> bool:
    try:
        session.stop(screen.doing)
    except KeyboardInterrupt:
        screen.said("ending at once")
        return False
    return True


def _watch(screen: DevScreen, session: DevSession) -> None:
    """Show the state of all parts until a signal."""
    from cdc.dev.part_lines import part_lines

    never = threading.Event()
    samples: deque[Sample] = deque(maxlen=_RATE_SAMPLES)
    while True:
        sample, happened = session.sample()
        for text in happened:
            screen.happened(text)
        samples.append(sample)
        screen.show(part_lines(samples[0], sample, servers=session.parts.servers, sinks=session.parts.sinks))
        never.wait(_REFRESH_S)


def _own_database(screen: DevScreen, owned: OwnedStack, options: _Options) -> OwnDatabase | None:
    """Check the user's database and print what is not ready. Raises SourceRefused if something must be repaired."""
    from cdc.dev.own_database import drop_left_slot, own_config_of, read_own
    from cdc.doctor.new_config import without_password

    earlier = own_config_of(owned.folder) if owned.has_data else None
    if owned.has_data:
        before = without_password(earlier.source.dsn) if earlier is not None else ""
        if before != (without_password(options.dsn) if options.dsn is not None else ""):
            raise UsageError(
                f"stack {options.stack!r} keeps the data of {f'database {before}' if before else 'the sample shop'}",
                hint="use another stack for another source, or remove the data",
                command=f"cdc dev --end --stack {options.stack}",
            )
        screen.said(f"continuing with the data that an earlier run kept in {owned.folder}")
    if options.dsn is None:
        return None
    screen.doing("checking the database")
    own = read_own(options.dsn, owned.folder, os.environ)
    for finding in own.findings:
        if finding.level != "ok":
            show_finding(finding)
    wrong = sum(finding.level == "error" for finding in own.findings)
    if wrong:
        raise SourceRefused(
            f"the database is not ready: {wrong} check{'s' if wrong > 1 else ''} failed",
            hint="repair what is marked with a cross above, then start again; nothing was changed",
        )
    for text in own.left_out[:_LEFT_OUT_MAX]:
        screen.said(f"left out: {text}")
    if len(own.left_out) > _LEFT_OUT_MAX:
        screen.said(f"left out: {len(own.left_out) - _LEFT_OUT_MAX} more tables")
    if not owned.has_data:
        drop_left_slot(own, options.dsn)
    screen.said(f"{own.tables} table{'s' if own.tables > 1 else ''} to capture; the copies are in {owned.stack.home}")
    return own


def _leave(screen: DevScreen, folder: Path) -> bool:
    """Drop slot and publication in the user's own database. Returns whether nothing is left there."""
    from cdc.dev.own_database import own_config_of, release

    config = own_config_of(folder)
    if config is None:
        return True
    try:
        dropped = release(config)
    except TailraceError as error:
        screen.happened(f"slot {config.slot} is still in your database: {error.message}")
        screen.said("PostgreSQL keeps WAL for it until you drop it:")
        screen.said(
            f"  select pg_drop_replication_slot('{config.slot}'); drop publication if exists {config.publication};"
        )
        return False
    screen.said(f"dropped slot {'and publication ' if dropped else ''}{config.slot} in your database")
    if not dropped:
        screen.said(f"publication {config.publication} stays: it belongs to another role, and costs nothing")
    return True


def _last_words(owned: OwnedStack, own: OwnDatabase | None, stack: str) -> str:
    if not owned.keeps_data:
        return "ended: nothing runs any more, and the data is removed"
    again = "cdc dev" if stack == _STACK else f"cdc dev --stack {stack}"
    text = f"ended: nothing runs any more; the data stays in {owned.folder} and {owned.stack.home} until {again} --end"
    if own is not None:
        text += f"; slot {own.source.slot} stays too, and PostgreSQL keeps WAL for it"
    return text


def _owner(stack: str) -> Owner:
    from cdc.local.owned_stack import Owner

    return Owner("dev", "`cdc dev`", f"cdc dev --stack {stack}-2")


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _program() -> str:
    """Return how to call this `cdc` in another terminal, whose PATH may lack the virtual environment."""
    ours = Path(sys.executable).with_name("cdc")
    found = shutil.which("cdc")
    if found is not None and Path(found) == ours:
        return "cdc"
    if not ours.exists():
        return f"{sys.executable} -m cdc"
    return str(ours.relative_to(Path.cwd()) if ours.is_relative_to(Path.cwd()) else ours)
