"""Writes cli.md and types.md beside itself, from the commands and the encoders.

    python docs/reference/generate_cli.py

tests/tidy/test_docs.py fails while they differ from what this would write.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args, get_type_hints

import click
import msgspec

from cdc.cli.main import cli
from cdc.config.debezium_options import CHOICES, MODES
from cdc.config.settings import Encode
from cdc.encode.builtin_types import SCALARS
from cdc.encode.values import EncodeOptions, resolve
from cdc.model.type_facts import TypeFacts

FOLDER: Final = Path(__file__).resolve().parent
_NOTICE: Final = "<!-- Written by docs/reference/generate_cli.py from {source}; edit that and run it again. -->"
_EXIT_CODES: Final = "Exit codes: 0 ok, 1 failed, 2 usage, 3 needs an operator."
_WIDTH: Final = 100

# What the server prints for a value of the type, as an example of each encoding.
_EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "boolean": ("bool", "t"),
    "integer": ("int8", "9007199254740993"),
    "integer_string": ("int8", "9007199254740993"),
    "float": ("float8", "0.1"),
    "decimal": ("numeric", "12.50"),
    "decimal_number": ("numeric", "12.50"),
    "string": ("text", 'say "hi"'),
    "hexadecimal": ("bytea", "\\xfbff"),
    "base64": ("bytea", "\\xfbff"),
    "base64url": ("bytea", "\\xfbff"),
    "date": ("date", "2026-11-21"),
    "epoch_days": ("date", "2026-11-21"),
    "time": ("timetz", "16:52:38.25+00"),
    "day_micros": ("time", "16:52:38.25"),
    "timestamp": ("timestamp", "2026-11-21 16:52:38.25"),
    "epoch_micros": ("timestamp", "2026-11-21 16:52:38.25"),
    "timestamp_utc": ("timestamptz", "2026-11-21 16:52:38.25+00"),
    "interval": ("interval", "P1Y2M-3DT4H"),
    "interval_parts": ("interval", "P1Y2M-3DT4H"),
    "uuid": ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ("jsonb", '{"a": null}'),
    "json_value": ("jsonb", '{"a": null}'),
    "text": ("hstore", '"a"=>"1", "b"=>NULL'),
    "hstore_json": ("hstore", '"a"=>"1", "b"=>NULL'),
    "array<integer>": ("int2vector", "1 2"),
    "array<string>": ("oidvector", "23 25"),
}
_HSTORE: Final = 1 << 31  # an oid for it, which every database chooses for itself
_EXTENSION_TYPES: Final = {_HSTORE: TypeFacts(_HSTORE, "hstore", "b", extension="hstore")}
_TYPES_PAGE: Final = """\
# Types

{notice}

A value is what `to_jsonb(value)` shows in PostgreSQL, with three exceptions that keep it exact in every language:

- `numeric` is a string.
- `bigint` is a number: JavaScript, which is exact up to 2^53, wants `encode.int64 = "string"`.
- `json` and `jsonb` are a string that holds their text: a nested null could not be told from a missing value.

A null is null. The encoding's name stands in the schema record of the table. What an operator may choose is below.

| Encoding | Types | Text in PostgreSQL | JSON |
|---|---|---|---|
{rows}

Arrays of anything, in any dimension, are JSON arrays of the encoded elements: encoding `array<...>`. Lower bounds are
not shown, as `to_jsonb` does not. A domain has the encoding of its base type. An enum is a string: the label it had
when the row was written. No column is ever left out because its type is unknown.

Composite types, ranges you made and types of extensions (`citext`, `ltree`, `vector`, `geometry`, ...) are their
text: encoding `text`. The stream does not say which fields a composite type had when a row was written, and the
catalog's of today may be others, so its text is not taken apart. A type that is dropped before its rows are read
leaves their text, too, under a `schema_id` of its own.

Dates and times are ISO 8601, intervals too; `infinity`, `-infinity` and years BC stay as PostgreSQL prints them.

## Generated columns

| Column | PostgreSQL 15 to 17 | PostgreSQL 18 |
|---|---|---|
| `generated always as (...) stored` | in no record | in every record |
| `generated always as (...) virtual` | do not exist | in no record: computed when they are read |

A publication of another role needs `publish_generated_columns = stored`; Tailrace sets it in its own.
Stream, snapshots, values that are read again and `cdc verify` agree about it. Columns that are left out are named by
`cdc doctor`, by `columns_left_out` in the log and in `cdc status`, and by `left_out` of the table's schema record.
When a publication of yours begins to publish them, Tailrace finds it, and by `ddl.policy` reads the table again.

`COPY` gives the same texts as the stream under our session settings, so one set of encoders serves both
(`tests/integration/test_copy_text.py`).

## Other forms

`[encode]` chooses them for a whole pipeline, arrays and domains included, keys too. Each has a name of its own in the
schema record, and what is chosen is part of `schema_id`. Sinks read every form into the same types of their own;
arrays, intervals, JSON and hstore are text there, in the form of the log. A choice may change later, but not under a
table whose key it changes: capture then stops before it, because rows under the former keys would stay in the compacted
topic.

| Option | Encoding | Types | Text in PostgreSQL | JSON |
|---|---|---|---|---|
{choices}

- `numeric = "number"`: NaN and the infinities stay strings. Many readers make a double of it.
- `time = "micros"`: days since 1970-01-01, microseconds since midnight, microseconds since 1970-01-01 00:00. A value
  that has no such number stays the string it is otherwise: `infinity`, `-infinity`, a timestamp after 294247-01-10.
  BC is negative. Numbers beyond 2^53 are those before 1684 and after 2255. `timestamptz` and `timetz` are ISO 8601 in
  every form, with the offset as a number (`+00:00`, `+02`): the zone is part of what they say.
- `bytea`: base64 is that of RFC 4648 with padding and without line breaks.
- `interval = "parts"`: months, days and microseconds, which PostgreSQL keeps apart because a month has no fixed
  length; each has a sign of its own. There is no form as one number: it could not be exact.
- `json = "value"`: the JSON itself, byte for byte as PostgreSQL prints it. Lost is the difference between the value
  `null` and SQL's null. `json`, unlike `jsonb`, may hold what some readers refuse (a key twice, half a surrogate
  pair) or round (1e400). The lake reads
  such JSON by value: numbers exactly up to 38 digits without an exponent, names in another order, and it refuses a
  key twice.
- `hstore = "json"`: an object of strings and nulls, as `hstore_to_jsonb` shows.

## Debezium's values

```toml
[encode]
compatibility = "debezium"
"decimal.handling.mode" = "string"   # optional; Debezium's defaults without it
```

With it every value is the one that Debezium's PostgreSQL connector writes in JSON without schemas, in the stream, in
snapshots and where a value is read again. The options are Debezium's, with its names, values and defaults:

| Option | Values, the default first |
|---|---|
{modes}

- Compared with what Debezium 3.7.0 wrote itself, for each type of its own tests and each of these options
  (`tests/unit/cdc/test_debezium_values.py`; `make debezium-values` captures it again).
- `source` also has `ts_ns`, `xmin` (null, as without `xmin.fetch.interval`), `origin` and `origin_lsn` (null); an event
  also has `ts_us` and `ts_ns`. The fields of Tailrace's position stay. Times of an event are those of the commit, and
  `source.snapshot` is `incremental` for every row that was read from a table.
- Not Debezium's: values that an update did not change are read again, where Debezium writes
  `__debezium_unavailable_value`. `before` of a delete has the key columns only, where Debezium has nulls for the
  others. `source.version` is that of the envelope.
- Where Debezium 3.7 leaves a value out or loses it, the usual form stays: composite types, `pg_lsn`, `xid`, `tsquery`,
  multiranges, `regclass`, arrays of `interval`, `money`, `varbit` and `point`; `name` in the stream, arrays of `bit`,
  arrays of several dimensions, `numeric` with a negative scale. Dates before 1582-10-15 are those of its stream, not of
  its snapshot, which counts them by the Julian calendar. A null for NaN and the infinities of `numeric` with
  `precise`, and for times that nanoseconds do not reach, is Debezium's own.
- Format `flat` has the same values in the row alone. Avro is refused, because its types are chosen by the usual
  forms.
- Sinks and the lake do not read these forms. The configuration refuses them next to `compatibility`; a sink with
  another configuration file stops with MISCONFIGURED, naming the column, when a table has such a value.
- `cdc verify` asks PostgreSQL for every value, and PostgreSQL does not write these forms: `cdc verify --topics` is
  refused. `cdc audit` checks the topics as they are. To compare rows, capture the tables under another `name` too.
- It is part of `schema_id`. Another choice later is possible where it changes no key.

## Debezium's names

Without `compatibility`, `[encode]` takes Debezium's options where Tailrace has a form of the same kind. The values
differ in details: Debezium writes the zone of `timestamptz` and `timetz` as `Z`, intervals with every part
(`P1Y2M-3DT4H0M0S`), `bit` as base64, `oid` as a number, `money` by `decimal.handling.mode`, `point` as an object, and
other values for NaN and the infinities. What would be others altogether is refused, with the reason:

| Debezium | Here |
|---|---|
{debezium}
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
    """What becomes of each type PostgreSQL ships, by default and by choice."""
    default = EncodeOptions()
    by_encoding: dict[str, list[tuple[int, str]]] = {}
    for oid, name in SCALARS.items():
        by_encoding.setdefault(resolve(oid, _EXTENSION_TYPES, default).encoding, []).append((oid, name))
    by_encoding["text"] = [(_HSTORE, "hstore")]
    rows = [_row(encoding, types, default) for encoding, types in sorted(by_encoding.items())]
    return _TYPES_PAGE.format(
        notice=_NOTICE.format(source="cdc/encode/values.py and cdc/config/debezium_options.py"),
        rows="\n".join(rows),
        choices="\n".join(_choices()),
        debezium="\n".join(_debezium()),
        modes="\n".join(_modes()),
    )


def _choices() -> Iterator[str]:
    """A row for each encoding that only an option brings."""
    for field in msgspec.structs.fields(Encode):
        if field.name in {"compatibility", "debezium"}:
            continue  # they have a section of their own
        _, *others = get_args(get_args(get_type_hints(Encode, include_extras=True)[field.name])[0])
        for value in others:
            options = dataclasses.replace(EncodeOptions(), **{field.name: value})
            by_encoding: dict[str, list[tuple[int, str]]] = {}
            for oid, name in (*SCALARS.items(), (_HSTORE, "hstore")):
                encoding = resolve(oid, _EXTENSION_TYPES, options).encoding
                if encoding != resolve(oid, _EXTENSION_TYPES, EncodeOptions()).encoding:
                    by_encoding.setdefault(encoding, []).append((oid, name))
            for encoding, types in by_encoding.items():
                yield f'| `{field.name} = "{value}"` {_row(encoding, types, options)}'


def _modes() -> Iterator[str]:
    for option, (_, values) in MODES.items():
        shown = ", ".join(f'`"{value}"`' for value in values)
        yield f'| `"{option}"` | {shown} |'


def _debezium() -> Iterator[str]:
    for name, choice in CHOICES.items():
        for value, ours in choice.same.items():
            yield f'| `"{name}" = "{value}"` | `{choice.key} = "{ours}"` |'
        for value, why in choice.other.items():
            yield f'| `"{name}" = "{value}"` | refused: {why} |'


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(f"{path} {name}", inner)


def _row(encoding: str, types: list[tuple[int, str]], options: EncodeOptions) -> str:
    name, text = _EXAMPLES[encoding]
    oid = next(oid for oid, found in types if found == name)
    encode = resolve(oid, _EXTENSION_TYPES, options).encode
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
