"""``python -m cdc.demo``: exit code 0 if Kafka held exactly what PostgreSQL held, 1 otherwise."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

from rich.text import Text

from cdc.demo.demo_stack import OWNER
from cdc.demo.screen import Screen
from cdc.demo.sink_tour import SERVERS as STORE_SERVERS
from cdc.demo.tour import Options, Tour
from cdc.errors import EXIT_FAILED, EXIT_OK, TailraceError
from cdc.local.owned_stack import OwnedStack, owned_stack
from cdc.local.stack import DEFAULT_SERVERS

_STACK: Final = "demo"
_INTERRUPTED: Final = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    given = _parser().parse_args(arguments)
    screen = Screen()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        servers = DEFAULT_SERVERS if given.capture_only else (*DEFAULT_SERVERS, *STORE_SERVERS)
        with owned_stack(OWNER, given.stack, servers) as demo:
            if given.end:
                screen.step("Ended", f"stack {given.stack} has no servers or files of a demo any more")
                return EXIT_OK
            return _demonstrate(screen, demo, given)
    except KeyboardInterrupt:
        screen.step("Stopped", "interrupted; the demo's servers were stopped", good=False)
        return _INTERRUPTED
    except TailraceError as error:
        _show(screen, error)
        return EXIT_FAILED


def _demonstrate(screen: Screen, demo: OwnedStack, given: argparse.Namespace) -> int:
    screen.heading("Tailrace", "Every committed change of PostgreSQL, in order, exactly once, in Kafka.")
    options = Options(given.seconds, given.branches, tamper=given.tamper, keep=given.keep, sinks=not given.capture_only)
    exact = Tour(demo, screen, options).run()
    if given.keep:
        demo.keeps_all = True
        _show_commands(screen, demo)
    elif not exact:
        demo.keeps_files = True
        screen.note(f"the logs are in {demo.folder}")
    return EXIT_OK if exact else EXIT_FAILED


def _show_commands(screen: Screen, demo: OwnedStack) -> None:
    screen.step("Kept", "servers and capture are still running; try these commands:")
    for command in (
        f"cdc tail -c {demo.config}",
        f"cdc status -c {demo.config}",
        f"psql '{demo.stack.postgres.printable_dsn}'",
        f'eval "$(cdc local env --stack {demo.stack.name})"',
    ):
        screen.note(Text(command, style="bold"))
    screen.note(f"to stop everything: python -m cdc.demo --stack {demo.stack.name} --end")


def _show(screen: Screen, error: TailraceError) -> None:
    screen.step("Failed", error.message, good=False)
    for line in error.hint.splitlines():
        screen.note(line)
    if error.command:
        screen.note(Text(error.command, style="bold"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cdc.demo",
        description="Capture a live workload from a real PostgreSQL into a real Kafka, kill capture in the middle, "
        "maintain lake tables and views with Spark, an index in OpenSearch and a cache in Valkey, and prove at the end "
        "that all of them hold exactly what PostgreSQL holds. Takes about four minutes, two with capture alone, and "
        "stops its servers.",
    )
    parser.add_argument(
        "--seconds", type=_between(4, 3600), default=30, metavar="N", help="duration of the load (default: 30)"
    )
    parser.add_argument(
        "--branches", type=_between(1, 100), default=5, metavar="N", help="size of the bank (default: 5)"
    )
    parser.add_argument("--stack", default=_STACK, metavar="NAME", help=f"name of its servers (default: {_STACK})")
    parser.add_argument("--capture-only", action="store_true", help="omit the lake, indices and caches")
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    parser.add_argument("--end", action="store_true", help="end what an earlier --keep left, then exit")
    parser.add_argument(
        "--tamper",
        action="store_true",
        help="change one row while capture is stopped, to see that the comparison finds it (exit code 1)",
    )
    return parser


def _between(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}")
        return int(text)

    return number


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
