"""``python -m cdc.demo``: exit code 0 when Kafka held exactly what PostgreSQL held, 1 when it did not."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

from rich.text import Text

from cdc.demo.place import Place, take_place
from cdc.demo.screen import Screen
from cdc.demo.stores import SERVERS as STORE_SERVERS
from cdc.demo.tour import Options, Tour
from cdc.errors import EXIT_FAILED, EXIT_OK, TailraceError
from cdc.local.stack import DEFAULT_SERVERS

_STACK: Final = "demo"
_INTERRUPTED: Final = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    given = _parser().parse_args(arguments)
    screen = Screen()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with take_place(
            given.stack, DEFAULT_SERVERS if given.capture_only else (*DEFAULT_SERVERS, *STORE_SERVERS)
        ) as place:
            if given.end:
                screen.step("Ended", f"nothing of a demo is left on stack {given.stack}")
                return EXIT_OK
            return _demonstrate(screen, place, given)
    except KeyboardInterrupt:
        screen.step("Stopped", "interrupted; the demo's servers were stopped", good=False)
        return _INTERRUPTED
    except TailraceError as error:
        _show(screen, error)
        return EXIT_FAILED


def _demonstrate(screen: Screen, place: Place, given: argparse.Namespace) -> int:
    screen.heading("Tailrace", "Every committed change of PostgreSQL, in order, exactly once, in Kafka.")
    options = Options(given.seconds, given.branches, tamper=given.tamper, keep=given.keep, sinks=not given.capture_only)
    verdict = Tour(place, screen, options).run()
    if given.keep:
        place.leave = "everything"
        _say_how_to_look(screen, place)
    elif not verdict.ok:
        place.leave = "files"
        screen.note(f"the log of capture is in {place.folder}")
    return EXIT_OK if verdict.ok else EXIT_FAILED


def _say_how_to_look(screen: Screen, place: Place) -> None:
    screen.step("Kept", "servers and capture are still running; look around:")
    for command in (
        f"cdc tail -c {place.config}",
        f"cdc status -c {place.config}",
        f"psql '{place.stack.postgres.printable_dsn}'",
        f'eval "$(cdc local env --stack {place.stack.name})"',
    ):
        screen.note(Text(command, style="bold"))
    screen.note(f"and to end it all: python -m cdc.demo --stack {place.stack.name} --end")


def _show(screen: Screen, error: TailraceError) -> None:
    screen.step("Failed", error.message, good=False)
    for line in error.hint.splitlines():
        screen.note(line)
    if error.command:
        screen.note(Text(error.command, style="bold"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cdc.demo",
        description="Captures a live workload from a real PostgreSQL into a real Kafka, kills capture in the middle of "
        "it, keeps lake tables and a view by Spark, an index in OpenSearch and a cache in Valkey, and proves at the "
        "end that all of them hold exactly what PostgreSQL holds. Takes less than four minutes, two with capture "
        "alone, and stops its servers again.",
    )
    parser.add_argument(
        "--seconds", type=_between(4, 3600), default=30, metavar="N", help="how long the load runs (30)"
    )
    parser.add_argument("--branches", type=_between(1, 100), default=5, metavar="N", help="100,000 accounts each (5)")
    parser.add_argument("--stack", default=_STACK, metavar="NAME", help=f"name of its servers ({_STACK})")
    parser.add_argument("--capture-only", action="store_true", help="without the lake, index and cache")
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    parser.add_argument("--end", action="store_true", help="end what an earlier --keep left, and nothing else")
    parser.add_argument(
        "--tamper",
        action="store_true",
        help="change one row behind capture's back before the comparison, to see that it is found (exit code 1)",
    )
    return parser


def _between(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}")
        return int(text)

    return number


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
