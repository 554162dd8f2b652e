"""Strings that must never be printed or logged: passwords, DSNs, tokens."""

from __future__ import annotations

import re
from typing import Final

# Up to the last @: a password with an unescaped @ or / is invalid for libpq, but it is still a password.
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^:/@\s]*):.*@", re.DOTALL)
SECRET_PARAMETERS: Final = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Parameters of a libpq connection string whose values are secret (libpq 18)."""
_KEY_PASSWORD: Final = re.compile(
    rf"((?:{'|'.join(SECRET_PARAMETERS)})\s*=\s*)('(?:[^'\\]|\\.)*'|(?:\\.|\S)+)", re.IGNORECASE | re.DOTALL
)


class Secret:
    """A string with masked `repr`, `str` and formatting; only `reveal()` returns the text."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text. Call it only to pass the text to a driver."""
        return self._value

    def masked(self) -> str:
        """Return the text with every password replaced by ``***``, for messages that must name a server."""
        return _KEY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", self._value))

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)
