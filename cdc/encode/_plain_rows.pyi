from collections.abc import Callable, Container

from cdc.model.change_records import Record

class PlainRows:
    def __init__(
        self,
        columns: tuple[tuple[bytes, int, Callable[[bytes], bytes] | None], ...],
        key: tuple[int, ...],
        null: bytes,
        opening: bytes,
        rest: bytes,
        position: tuple[bytes, ...],
        partitions: list[list[Record]],
        limit: int,
        /,
    ) -> None: ...
    def take(self, frame: bytes, op: bytes, source: bytes, tail: bytes, ordinal: int, /) -> bool: ...
    def copied(self, text: bytes, rest: bytes, drop: Container[bytes], /) -> tuple[int, int] | None: ...
