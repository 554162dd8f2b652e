"""The key ranges of a version's files, from its log."""

from __future__ import annotations

import pytest

from sinks.warehouse.delta.key_ranges import FileRange, in_order


def files(*ranges: tuple[int | None, int | None, int]) -> list[FileRange]:
    return [FileRange(str(number), size, None, low, high) for number, (low, high, size) in enumerate(ranges)]


@pytest.mark.parametrize(
    ("ranges", "answer"),
    [
        ([], True),
        ([(1, 5, 100)], True),
        ([(1, 5, 100), (5, 9, 100), (10, 10, 100)], True),
        ([(1, 6, 100), (5, 9, 100)], False),
        ([(1, 5, 100), (None, None, 100)], False),
        ([(1, 2, 1), (3, 4, 1), (5, 9, 100)], True),
        ([(1, 2, 1), (3, 4, 1), (5, 9, 1)], False),
    ],
)
def test_files_are_in_order_when_none_overlaps_and_few_are_small(
    ranges: list[tuple[int | None, int | None, int]], answer: bool
) -> None:
    assert in_order(files(*ranges), small_bytes=10) is answer
