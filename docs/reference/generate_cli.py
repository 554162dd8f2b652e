"""Writes cli.md and types.md beside itself, from the commands and the encoders.

    python docs/reference/generate_cli.py

tests/tidy/test_docs.py fails while they differ from what this would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from cdc.cli.main import cli
from cdc.encode.builtin import SCALARS
from cdc.encode.values import EncodeOptions, resolve
from cdc.model.types import TypeFacts

FOLDER: Final = Path(__file__).resolve().parent
_NOTICE: Final = "<!-- Written by docs/reference/generate_cli.py from {source}; edit that and run it again. -->"
_EXIT_CODES: Final = "Exit codes: 0 ok, 1 failed, 2 usage, 3 needs an operator."
_WIDTH: Final = 100

# What the server prints for a value of the type, as an example of each encoding.
_EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "boolean": ("bool", "t"),
    "integer": ("int8", "9007199254740993"),
    "float": ("float8", "0.1"),
    "decimal": ("numeric", "12.50"),
    "string": ("text", 'say "hi"'),
    "hexadecimal": ("bytea", "\\x00ff"),
    "date": ("date", "2026-11-21"),
    "time": ("timetz", "16:52:38.25+00"),
    "timestamp": ("timestamp", "2026-11-21 16:52:38.25"),
    "timestamp_utc": ("timestamptz", "2026-11-21 16:52:38.25+00"),
    "interval": ("interval", "P1DT2H"),
    "uuid": ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ("jsonb", '{"a": null}'),
    "array<integer>": ("int2vector", "1 2"),
    "array<string>": ("oidvector", "23 25"),
}
_TYPES_PAGE: Final = """\
# Types

{notice}

A value is what `to_jsonb(value)` shows in PostgreSQL, with three exceptions that keep it exact in every language:

- `numeric` is a string; a number with `encode.numeric = "number"` (NaN and the infinities stay strings).
- `bigint` is a number; a string with `encode.int64 = "string"`, for JavaScript, which is exact up to 2^53.
- `json` and `jsonb` are a string that holds their text: a nested null could not be told from a missing value.

A null is null. The encoding's name stands in the schema record of the table.

| Encoding | Types | Text in PostgreSQL | JSON |
|---|---|---|---|
{rows}

Arrays of anything, in any dimension, are JSON arrays of the encoded elements: encoding `array<...>`. A domain has the
encoding of its base type. An enum is a string. Composite types, ranges you made and types of extensions are their text:
encoding `text`. No column is ever left out because its type is unknown.

Dates and times are ISO 8601, intervals too; `infinity`, `-infinity` and years BC stay as PostgreSQL prints them.
"""


def pages() -> dict[str, str]:
    """File name -> text of every page this writes."""
    return {"cli.md": cli_page(), "types.md": types_page()}


def cli_page() -> str:
    """The help of every command that is built."""
    lines = [
        "# Commands",
        "",
        _NOTICE.format(source="cdc/cli"),
        "",
        f"{_EXIT_CODES} Results go to stdout, everything else to stderr. `-c` may stand before or after the command.",
    ]
    for path, command in _commands("cdc", cli):
        context = click.Context(command, info_name=path, max_content_width=_WIDTH, terminal_width=_WIDTH)
        context.help_option_names = ["-h", "--help"]
        text = command.get_help(context)
        lines += ["", f"## {path}", "", "```text", *(line.rstrip() for line in text.splitlines()), "```"]
    return "\n".join(lines) + "\n"


def types_page() -> str:
    """What becomes of each type PostgreSQL ships."""
    by_encoding: dict[str, list[tuple[int, str]]] = {}
    for oid, name in SCALARS.items():
        by_encoding.setdefault(resolve(oid, _NO_TYPES, EncodeOptions()).encoding, []).append((oid, name))
    rows = [_row(encoding, types) for encoding, types in sorted(by_encoding.items())]
    return _TYPES_PAGE.format(notice=_NOTICE.format(source="cdc/encode/values.py"), rows="\n".join(rows))


_NO_TYPES: Final[dict[int, TypeFacts]] = {}


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(f"{path} {name}", inner)


def _row(encoding: str, types: list[tuple[int, str]]) -> str:
    name, text = _EXAMPLES[encoding]
    oid = next(oid for oid, found in types if found == name)
    encode = resolve(oid, _NO_TYPES, EncodeOptions()).encode
    shown = (text.encode() if encode is None else encode(text.encode())).decode()
    names = ", ".join(f"`{found}`" for _, found in sorted(types, key=lambda pair: pair[1]))
    return f"| {encoding} | {names} | `{text}` | `{shown}` |"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {FOLDER / name}\n")


if __name__ == "__main__":
    main()
