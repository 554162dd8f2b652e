"""What a row is called in the store: a template with the key's columns in it, so that no two rows share a name. Pure.

A value in a name is percent-encoded as RFC 3986 has it (`urllib.parse.quote(value, safe="")`), so it never holds a
separator. Beside the name of a row stands that of its mark, which holds the version; no row can be called so, and both
hash to the same slot.
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
    """The names of one table's rows. `head` begins all of them, and no other table's.

    Raises ConfigError for a template that two keys could share a name by.
    """

    def __init__(self, topic: Topic, name: str, sink: str, template: str = DEFAULT) -> None:
        # The topic's own words for schema and table: escaped, and different for different tables.
        words = {"name": name, "sink": sink, "table": topic.topic.removeprefix(f"{name}.")}
        literals, self._columns = _parsed(template, words, topic)
        self.head = literals[0]
        self._literals = literals
        self._topic = topic.topic
        only = msgspec.json.encode(topic.key[0]) if len(topic.key) == len(self._columns) == 1 else None
        self._simple = None if only is None else b"{%b:" % only

    def value(self, key: bytes) -> str:
        """The name of a row, by its key as the topic has it. Raises TopicMismatch when it is none."""
        if self._simple is not None and key.startswith(self._simple):
            token = key[len(self._simple) : -1]
            if token.isdigit():  # most keys; what follows would find the same
                return f"{self.head}{token.decode()}{self._literals[1]}"
        try:
            values = _values(key)
            parts = [_part(bytes(values[column])) for column in self._columns]
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
            raise TopicMismatch(
                f"a key in {self._topic} is no JSON object of {', '.join(self._columns)}",
                hint="another program writes to the topic; Tailrace must be its only writer",
                topic=self._topic,
            ) from None
        if len(parts) == 1:
            return f"{self.head}{parts[0]}{self._literals[1]}"
        return self.head + "".join(f"{part}{after}" for part, after in zip(parts, self._literals[1:], strict=True))


def mark(value: str) -> str:
    """The name of the mark beside a row."""
    return f"cdc:{{{value}}}"


def value_of(mark_name: str) -> str:
    """The name of the row that a mark is for."""
    return mark_name[5:-1]


def check_apart(heads: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigError when names of two tables could be the same; takes (table, head)."""
    ordered = sorted((head, table) for table, head in heads)
    for (head, table), (next_head, next_table) in pairwise(ordered):
        if next_head.startswith(head):
            raise ConfigError(
                f"rows of {table} and {next_table} could have one name in the store: "
                f"theirs begin with {head!r} and {next_head!r}",
                hint="give each table a beginning of its own in the sink's `keys`, or put {table} there",
            )


def _parsed(template: str, words: Mapping[str, str], topic: Topic) -> tuple[Sequence[str], Sequence[str]]:
    """Literals and the columns between them: one literal more than columns, in turn."""
    pieces = _PIECE.split(template)
    literals = [""]
    columns: list[str] = []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            if _LITERAL.fullmatch(piece) is None:
                raise _refused(template, topic, "it takes letters, digits and _ . : / - beside what is in braces")
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
            raise _refused(template, topic, f"{{{piece}}} is none of {known}")
    missing = [column for column in topic.key if column not in columns]
    if missing:
        raise _refused(template, topic, f"it lacks {missing[0]} of the key, so rows would share a name")
    if not literals[0]:
        raise _refused(template, topic, "it begins with a value, so tables could share a name")
    if any(_SEPARATOR.search(literal) is None for literal in literals[1:-1]):
        raise _refused(template, topic, "two values need : or / between them, or keys would share a name")
    return literals, columns


def _refused(template: str, topic: Topic, why: str) -> ConfigError:
    return ConfigError(
        f"the key template {template!r} does not do for {topic.table}: {why}",
        hint=f'as in keys = {{"{topic.table}" = "{DEFAULT}"}}',
        table=topic.table,
    )


def _part(token: bytes) -> str:
    """A value of a key: text as it is, everything else as JSON has it."""
    text = _text(token) if token[0] == _QUOTE else token.decode()
    return text if _PLAIN(text) else quote(text, safe="")
