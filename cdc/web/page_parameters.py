"""The query parameters of the routes of the page: their types, checks, and description for OpenAPI. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from cdc.errors import UsageError
from cdc.web.wait_endpoint import unknown_parameter

_FIELDS_MAX: Final = 16
_TEXT_MAX: Final = 200
"""Characters of a text. The head of a request is below 16 KiB, and a character may take 12 bytes there."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. A number has `most`; a text has none, but `length`. One without `default` is required."""

    says: str
    default: str | int | None = ""
    least: int = 0
    most: int | None = None
    length: int = _TEXT_MAX

    def schema(self) -> dict[str, Any]:
        """Return its schema for OpenAPI."""
        if self.most is None:
            return {
                "type": "string",
                "maxLength": self.length,
                **({} if self.default is None else {"default": self.default}),
            }
        return {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}

    def parsed(self, name: str, text: str) -> str | int:
        """Return the value of a text. Raises UsageError."""
        if self.most is None:
            if len(text) > self.length:
                raise UsageError(f"the parameter {name} has {len(text)} characters; at most {self.length} are accepted")
            return text
        if text.isascii() and text.isdigit() and len(text) <= len(str(self.most)):
            value = int(text)
            if self.least <= value <= self.most:
                return value
        raise UsageError(f"invalid {name} {text[:20]!r}; expected {self.least} to {self.most}")


def values_of(query: str, parameters: Mapping[str, Parameter]) -> dict[str, str | int]:
    """Return the value of each parameter. Raises UsageError for unknown, missing and invalid ones."""
    wrong = unknown_parameter(query, tuple(parameters)) if query else ""
    if wrong:
        raise UsageError(wrong)
    given = parse_qs(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    found: dict[str, str | int] = {}
    for name, parameter in parameters.items():
        if len(given.get(name, ())) > 1:
            raise UsageError(f"the parameter {name} is given more than once")
        if name in given:
            found[name] = parameter.parsed(name, given[name][0])
        elif parameter.default is None:
            raise UsageError(f"the parameter {name} is missing: {parameter.says}")
        else:
            found[name] = parameter.default
    return found
