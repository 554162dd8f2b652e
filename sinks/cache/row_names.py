"""Builds the names of rows in the store from a template with the key columns; no two rows share a name. Pure.

Values are percent-encoded as in RFC 3986 (`urllib.parse.quote(value, safe="")`), so they never contain a separator.
Each row has a version mark under a name that no row can have; both names hash to the same slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import quote

import msgspec

from cdc.errors import ConfigError, TopicMismatch
from sinks.contract import Topic

DEFAULT: Final = "{name}:{sink}:{table}:{key}"
_WORDS: Final = ("name", "sink", "table")
_PIECE: Final = re.compile(r"\{([^{}]*)\}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9_.:/-]*")
_SEPARATOR: Final = re.compile(r"[:/]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch
_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text: Final = msgspec.json.Decoder(str).decode
_QUOTE: Final = 0x22


class Names:
    """The names of a table's rows. All of them begin with `head`, and no name of another table does.

    Raises ConfigError for a template that would give two keys the same name.
    """

    def __init__(self, topic: Topic, name: str, sink: str, template: str = DEFAULT) -> None:
        # Schema and table as in the topic's name: escaped, and unique for each table.
        words = {"name": name, "sink": sink, "table": topic.topic.removeprefix(f"{name}.")}
        literals, self._columns = _parsed(template, words, topic)
        self.head = literals[0]
        self._literals = literals
        self._topic = topic.topic
        only = msgspec.json.encode(topic.key[0]) if len(topic.key) == len(self._columns) == 1 else None
        self._simple = None if only is None else b"{%b:" % only

    def value(self, key: bytes) -> str:
        """Return the name of a row, from its key as the topic has it. Raises TopicMismatch for an invalid key."""
        if self._simple is not None and key.startswith(self._simple):
            token = key[len(self._simple) : -1]
            if token.isdigit():  # a fast path for most keys
                return f"{self.head}{token.decode()}{self._literals[1]}"
        try:
            values = _values(key)
            parts = [_part(bytes(values[column])) for column in self._columns]
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
            raise TopicMismatch(
                f"a key in {self._topic} is not a JSON object with {', '.join(self._columns)}",
                hint="another program writes to the topic; Tailrace must be its only writer",
                topic=self._topic,
            ) from None
        if len(parts) == 1:
            return f"{self.head}{parts[0]}{self._literals[1]}"
        return self.head + "".join(f"{part}{after}" for part, after in zip(parts, self._literals[1:], strict=True))


def mark(value: str) -> str:
    """Return the name of a row's version mark."""
    return f"cdc:{{{value}}}"


def value_of(mark_name: str) -> str:
    """Return the name of the row of a version mark."""
    return mark_name[5:-1]


def check_apart(heads: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigError when rows of two tables could have the same name; takes (table, head)."""
    ordered = sorted((head, table) for table, head in heads)
    for (head, table), (next_head, next_table) in pairwise(ordered):
        if next_head.startswith(head):
            raise ConfigError(
                f"rows of {table} and {next_table} could have the same name in the store: "
                f"their names begin with {head!r} and {next_head!r}",
                hint="give each table a different prefix in the sink's `keys`, or use {table}",
            )


def _parsed(template: str, words: Mapping[str, str], topic: Topic) -> tuple[Sequence[str], Sequence[str]]:
    """Return the literals of a template and the columns between them; there is one literal more than columns."""
    pieces = _PIECE.split(template)
    literals = [""]
    columns: list[str] = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            if _LITERAL.fullmatch(piece) is None:
                raise _refused(template, topic, "outside braces it may only contain letters, digits and _ . : / -")
            literals[-1] += piece
        elif piece in words:
            literals[-1] += words[piece]
        elif piece == "key":
            columns += topic.key
            literals += [":"] * (len(topic.key) - 1) + [""]
        elif piece in topic.key:
            columns.append(piece)
            literals.append("")
        else:
            known = ", ".join(f"{{{word}}}" for word in (*_WORDS, "key", *topic.key))
            raise _refused(template, topic, f"unknown {{{piece}}}; expected one of {known}")
    missing = [column for column in topic.key if column not in columns]
    if missing:
        raise _refused(template, topic, f"it lacks the key column {missing[0]}, so several rows would share a name")
    if not literals[0]:
        raise _refused(template, topic, "it begins with a value, so two tables could share a name")
    if any(_SEPARATOR.search(literal) is None for literal in literals[1:-1]):
        raise _refused(template, topic, "two values need : or / between them, or two keys could share a name")
    return literals, columns


def _refused(template: str, topic: Topic, why: str) -> ConfigError:
    return ConfigError(
        f"invalid key template {template!r} for {topic.table}: {why}",
        hint=f'for example keys = {{"{topic.table}" = "{DEFAULT}"}}',
        table=topic.table,
    )


def _part(token: bytes) -> str:
    """Return the text of a key value: text as it is, everything else as JSON."""
    text = _text(token) if token[0] == _QUOTE else token.decode()
    return text if _PLAIN(text) else quote(text, safe="")
