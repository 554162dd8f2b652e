"""The error for a clause that cannot be used, with its place in the text."""

from __future__ import annotations


class PatternRefused(Exception):
    """A MATCH_RECOGNIZE clause that is invalid or not supported.

    Attributes:
        message: what is wrong.
        hint: what to do about it.
        place: in the text that was read, in characters; -1 if the whole clause is concerned.
    """

    def __init__(self, message: str, hint: str, place: int = -1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place
