"""Entry point of the `cdc` command; says which extra is missing instead of a traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from cdc.cli.main import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in {"cdc", "snapshot", "outbox", "sinks"}:
            raise
        sys.stderr.write(
            f"cdc: the package {error.name!r} is not installed\n"
            "hint: the base package is for writing to an outbox; the service needs its extra\n"
            "try:  pip install 'tailrace[capture]'\n"
        )
        sys.exit(1)
    sys.exit(run())


if __name__ == "__main__":
    main()
