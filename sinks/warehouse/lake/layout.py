"""Defines the paths of tables and files in a lake folder. Pure: names in, paths below the folder out.

A *table* of the lake is its path below the folder, as ``mirror/public.orders``. Identifiers are escaped as in topic
names, so two tables never share a folder. A name that is too long for a file system is cut and ends in a hash.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cdc.model.topic_names import data_topic, escape

CUTS_FOLDER: Final = "_cuts"
ICEBERG_FOLDER: Final = "_iceberg"
CURRENT_FILE: Final = "current.json"
PENDING_FILE: Final = "pending.json"
BESIDE: Final = "~"
_NAME_LENGTH_MAX: Final = 240  # file systems allow 255 bytes; the rest is for suffixes that tools add


def archive(topic: str) -> str:
    """The raw changes of a topic. The topic's name is a valid path."""
    return f"archive/{topic}"


def is_archive(table: str) -> bool:
    """Whether this is the archive of a topic."""
    return table.startswith("archive/")


def mirror(namespace: str, table: str) -> str:
    """The newest row of each key."""
    return f"mirror/{_folder(f'{escape(namespace)}.{escape(table)}')}"


def history(namespace: str, table: str) -> str:
    """Every version of each key."""
    return f"history/{_folder(f'{escape(namespace)}.{escape(table)}')}"


def split_table(table: str, topic: str) -> tuple[str, str]:
    """Split ``schema.table``, in which both names may contain dots; the topic, unique per table, decides where."""
    name = topic.partition(".")[0]
    dots = (index for index, letter in enumerate(table) if letter == ".")
    splits = ((table[:index], table[index + 1 :]) for index in dots)
    first, _, rest = table.partition(".")
    return next((split for split in splits if data_topic(name, *split) == topic), (first, rest))


def view(name: str, generation: int = 1) -> str:
    """A view's result. A generation that is not active has its own folder, under the name that `beside` returns."""
    name, mark, number = name.partition(BESIDE)
    generation = int(number) if mark else generation
    return f"views/{_folder(escape(name))}/g{generation}"


def is_view(table: str) -> bool:
    """Whether this is a table of a view's generation."""
    return table.startswith("views/")


def beside(name: str, generation: int) -> str:
    """The name of a generation that is not active. No view's name contains the mark."""
    return f"{name}{BESIDE}{generation}"


def is_beside(name: str) -> bool:
    """Whether this names a generation that is not active."""
    return BESIDE in name


def split_beside(name: str) -> tuple[str, int]:
    """Return the view and the number of its generation; 0 for the active one."""
    plain, _, number = name.partition(BESIDE)
    return plain, int(number or 0)


def sql_file(sha: str) -> str:
    """The SQL text of a generation of a view, in the folder of cuts."""
    return f"{sha}.sql"


def swap_request_file(view: str) -> str:
    """A request to activate a generation of a view, in the folder of cuts."""
    return f"wish-{escape(view)}.json"


def is_swap_request(file: str) -> bool:
    """Whether a file in the folder of cuts is such a request."""
    return file.startswith("wish-") and file.endswith(".json")


def old_sums(name: str, generation: int) -> str:
    """Where earlier releases kept sums and counts of a generation of a view (`sinks.warehouse.lake.old_sums`)."""
    return f"views/{_folder(escape(name))}/s{generation}"


def cut_file(cut: int) -> str:
    """The manifest of one cut, in the folder of cuts."""
    return f"{cut:012d}.json"


def cut_of(file: str) -> int | None:
    """Return the cut that a file in the folder of cuts belongs to; None for other files."""
    stem, dot, suffix = file.partition(".")
    return int(stem) if dot and suffix == "json" and len(stem) >= 12 and stem.isascii() and stem.isdigit() else None


def _folder(name: str) -> str:
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    # `h` is not a hex digit, so no uncut name looks like this one.
    return f"{name[: _NAME_LENGTH_MAX - 18]}-h{hashlib.sha256(name.encode()).hexdigest()[:16]}"
