"""Where things lie in a lake folder (DESIGN section 13). Pure: names in, paths below the folder out.

A *table* of the lake is its path below the folder, as ``mirror/public.orders``. Identifiers are escaped as in topic
names, so two tables never share a folder; what a file system would not take as one name is cut and ends in a hash.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cdc.model.topic_names import data_topic, escape

CUTS_FOLDER: Final = "_cuts"
CURRENT_FILE: Final = "current.json"
PENDING_FILE: Final = "pending.json"
BESIDE: Final = "~"
_NAME_LENGTH_MAX: Final = 240  # file systems take 255 bytes; some of them are left for suffixes of tools


def archive(topic: str) -> str:
    """The raw changes of a topic, whose name is legal as it is."""
    return f"archive/{topic}"


def mirror(namespace: str, table: str) -> str:
    """The newest row of each key."""
    return f"mirror/{_folder(f'{escape(namespace)}.{escape(table)}')}"


def history(namespace: str, table: str) -> str:
    """Each version of each key."""
    return f"history/{_folder(f'{escape(namespace)}.{escape(table)}')}"


def split_table(table: str, topic: str) -> tuple[str, str]:
    """Schema and name of ``schema.table``, either of which may hold dots; the topic, never that of two, tells where."""
    name = topic.partition(".")[0]
    dots = (index for index, letter in enumerate(table) if letter == ".")
    splits = ((table[:index], table[index + 1 :]) for index in dots)
    first, _, rest = table.partition(".")
    return next((split for split in splits if data_topic(name, *split) == topic), (first, rest))


def view(name: str, generation: int = 1) -> str:
    """A view's result; another generation is built beside it, under the name that `beside` gives it."""
    name, mark, number = name.partition(BESIDE)
    generation = int(number) if mark else generation
    return f"views/{_folder(escape(name))}/g{generation}"


def is_view(table: str) -> bool:
    """Whether it is a table of a view's generation, or of its sums."""
    return table.startswith("views/")


def beside(name: str, generation: int) -> str:
    """What a generation of a view is called that does not serve: no name of a view has the mark in it."""
    return f"{name}{BESIDE}{generation}"


def is_beside(name: str) -> bool:
    """Whether this is a generation that does not serve."""
    return BESIDE in name


def split_beside(name: str) -> tuple[str, int]:
    """The view, and which generation of it; 0 for the one that serves."""
    plain, _, number = name.partition(BESIDE)
    return plain, int(number or 0)


def sql_file(sha: str) -> str:
    """The text of a generation of a view, in the folder of cuts."""
    return f"{sha}.sql"


def swap_request_file(view: str) -> str:
    """What somebody asks the driver to do with a view, in the folder of cuts."""
    return f"wish-{escape(view)}.json"


def is_swap_request(file: str) -> bool:
    """Whether a file in the folder of cuts is one of `swap_request_file`."""
    return file.startswith("wish-") and file.endswith(".json")


def view_state(name: str, generation: int = 1) -> str:
    """Sums and counts that a view is kept from, beside its result."""
    name, mark, number = name.partition(BESIDE)
    generation = int(number) if mark else generation
    return f"views/{_folder(escape(name))}/s{generation}"


def cut_file(cut: int) -> str:
    """The manifest of one cut, in the folder of cuts."""
    return f"{cut:012d}.json"


def cut_of(file: str) -> int | None:
    """Which cut a file in the folder of cuts is of; None for the others."""
    stem, dot, suffix = file.partition(".")
    return int(stem) if dot and suffix == "json" and len(stem) >= 12 and stem.isascii() and stem.isdigit() else None


def _folder(name: str) -> str:
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    # `h` is no hex digit, so no name that was not cut looks like this one.
    return f"{name[: _NAME_LENGTH_MAX - 18]}-h{hashlib.sha256(name.encode()).hexdigest()[:16]}"
