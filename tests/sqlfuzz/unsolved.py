"""Constructs that a view accepts although its answer can differ from PostgreSQL's, with the reason of each.

The generator leaves them out. A key is a rule's full name, or its family, or a construct of queries. An entry goes when
the translation is right, or refuses the construct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNSOLVED: Final[Mapping[str, str]] = {}
