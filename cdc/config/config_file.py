"""A configuration file with the pipeline that is selected in it, and the environment that overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cdc.config import pipelines
from cdc.config.load import load
from cdc.config.settings import Config
from cdc.config.shown import read_raw
from cdc.errors import TailraceError


@dataclass(frozen=True)
class ConfigFile:
    """Where a configuration comes from.

    Attributes:
        path: the file.
        variables: the environment of the process, for all pipelines.
        pipeline: the selected one of `[pipelines.*]`; empty: the only one, or a file without.
    """

    path: Path
    variables: Mapping[str, str] = field(repr=False)
    pipeline: str = ""

    def load(self) -> Config:
        """Read the file and the environment now. Raises ConfigError and UsageError."""
        return load(self.path, self.variables, self.pipeline)

    @cached_property
    def names(self) -> list[str]:
        """The names of all pipelines of the file; empty for a file without `[pipelines]`, or one that is not valid."""
        try:
            return pipelines.names_of(read_raw(self.path), str(self.path))
        except TailraceError:
            return []  # `load` reports it

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The tables of the file for this pipeline, as they were at the first use; empty if it cannot be read."""
        return self._selected[0]

    @cached_property
    def environ(self) -> Mapping[str, str]:
        """The variables of this pipeline, under the names that they have for a single one."""
        return self._selected[1]

    @cached_property
    def _selected(self) -> tuple[dict[str, Any], Mapping[str, str]]:
        raw, where = read_raw(self.path), str(self.path)
        try:
            name = self.pipeline or pipelines.only(self.names, where)
            if not name:
                return raw, self.variables
            return pipelines.selected(raw, name, where), pipelines.scoped(self.variables, name, self.names)
        except TailraceError:
            return {}, self.variables  # `load` reports it

    def __str__(self) -> str:
        return str(self.path)
