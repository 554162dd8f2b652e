"""Runs the `cdc` command. If a package is not installed, the error names the extra that contains it."""

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
            "hint: the base package only writes to an outbox; the service needs the extra `capture`\n"
            "try:  pip install 'tailrace[capture]'\n"
        )
        sys.exit(1)
    sys.exit(run())


if __name__ == "__main__":
    main()
