"""Writes the sections of cdc.toml for the sinks of the shop. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

STORES: Final = ("search", "cache")
VIEW_STORES: Final = ("documents", "answers")
"""Sinks that keep views of the lake, from the topics of the views."""
LAKE: Final = "lake"

_SINKS: Final[Mapping[str, str]] = {
    "search": """
[sinks.search]
kind = "search"                        # an index per table
url = "{search}"
tables = ["shop.products", "shop.orders"]
index = {{ number_of_replicas = 0 }}     # one node
""",
    "cache": """
[sinks.cache]
kind = "cache"                         # a key per row
url = "{cache}"
tables = ["shop.customers", "shop.products"]
""",
    "documents": """
[sinks.documents]
kind = "search"                        # a view of the lake, as an index
url = "{search}"
tables = ["views.order_document"]
index = {{ number_of_replicas = 0 }}
""",
    "answers": """
[sinks.answers]
kind = "cache"                         # two views, as keys
url = "{cache}"
tables = ["views.top_customers", "views.timeline"]
""",
    "lake": """
[sinks.lake]
kind = "warehouse"                     # tables and views, maintained by Spark
path = "{path}"
tables = ["shop.*"]
history = ["shop.orders"]              # every version of each order
views = "{views}"
""",
}


def sink_section(sink: str, *, search: str, cache: str, path: Path, views: Path, listen: str = "") -> str:
    """Return the section of one sink. `search` and `cache` are the addresses of the stores."""
    text = _SINKS[sink].format(search=search, cache=cache, path=path, views=views)
    return f'{text}listen = "{listen}"\n' if listen else text
