"""Creates the mirrors for the benchmark of views directly as Delta tables, and the changes of a cut.

A quarter as many orders as lines, a fortieth as many customers; keys ascend with time, like inserted keys. Each row has
an unused note of forty characters. There is no Kafka: the measurement begins when the mirrors are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

LINES: Final = "mirror/public.order_lines"
ORDERS: Final = "mirror/public.orders"
CUSTOMERS: Final = "mirror/public.customers"
KINDS: Final = ("uniform", "hot")
_REGIONS: Final = 50
_HOT_SHARE: Final = 50  # hot keys are the newest fiftieth
_LATE_SHARE: Final = 0.05
_STATUS: Final = np.array(["new", "paid", "sent"])
_NOTE: Final = "a note of forty characters, that is read"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Number of rows of each table."""

    lines: int

    @property
    def orders(self) -> int:
        """A quarter of the lines."""
        return self.lines // 4

    @property
    def customers(self) -> int:
        """A fortieth of the lines, at least a thousand."""
        return max(1000, self.lines // 40)


def base(sizes: Sizes, seed: int) -> dict[str, pa.Table]:
    """Return all rows of the three mirrors, sorted by key."""
    chance = np.random.default_rng(seed)
    return {
        LINES: _lines(np.arange(sizes.lines), chance),
        ORDERS: _orders(np.arange(sizes.orders), sizes, chance),
        CUSTOMERS: _customers(np.arange(sizes.customers), chance),
    }


def changes(sizes: Sizes, count: int, kind: str, seed: int) -> dict[str, pa.Table]:
    """Return rows to merge with new values: `count` lines, a quarter as many orders, a hundredth of the customers."""
    chance = np.random.default_rng(seed)

    def keys(size: int, wanted: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        low = 0 if kind == "uniform" else size - max(size // _HOT_SHARE, wanted)
        return np.unique(chance.integers(max(low, 0), size, wanted))

    return {
        LINES: _merged(_lines(keys(sizes.lines, count), chance)),
        ORDERS: _merged(_orders(keys(sizes.orders, max(1, count // 4)), sizes, chance)),
        CUSTOMERS: _merged(_customers(keys(sizes.customers, max(1, count // 100)), chance)),
    }


def _lines(keys: np.ndarray[tuple[int], np.dtype[np.int64]], chance: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": keys,
            "order_id": keys // 4,
            "at": _at(keys, chance),
            "sku": pa.array(np.char.add("s", chance.integers(0, 500, len(keys)).astype(str))),
            "qty": pa.array(chance.integers(1, 9, len(keys)).astype("int32")),
            "note": _note(len(keys)),
        }
    )


def _at(
    keys: np.ndarray[tuple[int], np.dtype[np.int64]], chance: np.random.Generator
) -> pa.Array[pa.TimestampScalar[pa.DataType, pa.DataType]]:
    """One line a second; one in twenty is late by up to a day."""
    late = np.where(chance.random(len(keys)) < _LATE_SHARE, chance.integers(0, 86_400, len(keys)), 0)
    return pa.array((keys - late) * 1_000_000, pa.timestamp("us"))


def _orders(keys: np.ndarray[tuple[int], np.dtype[np.int64]], sizes: Sizes, chance: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": keys,
            "customer_id": chance.integers(0, sizes.customers, len(keys)),
            "status": pa.array(_STATUS[chance.integers(0, 3, len(keys))]),
            "cents": chance.integers(0, 9999, len(keys)),
            "note": _note(len(keys)),
        }
    )


def _customers(keys: np.ndarray[tuple[int], np.dtype[np.int64]], chance: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "id": keys,
            "region": pa.array(np.char.add("r", chance.integers(0, _REGIONS, len(keys)).astype(str))),
            "tier": pa.array(chance.integers(0, 3, len(keys)).astype("int32")),
        }
    )


def _note(count: int) -> pa.Array:
    return pa.array([_NOTE] * count)


def _merged(rows: pa.Table) -> pa.Table:
    return rows.append_column("_deleted", pa.array(np.zeros(rows.num_rows, dtype=bool)))
