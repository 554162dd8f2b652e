"""Changes of TPC-H's tables: the refresh functions RF1 and RF2, and updates. Pure: sizes and a seed in, changes out.

A pair of refresh functions is numbered from 0. Like those of dbgen, RF1 inserts new orders with their line items and
RF2 deletes old ones, a thousandth of the orders each. Base data uses the first eight of each 32 order keys; new orders
use the others. After a thousand pairs no order of the base is left, and the following pairs replace the new ones, so
pairs never end and the tables keep their size.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

Row = tuple[object, ...]

_FIRST_DAY: Final = date(1992, 1, 1)
_ORDER_DAYS: Final = 2405  # the last order is from 1998-08-02
_CURRENT: Final = date(1995, 6, 17)
_PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_INSTRUCTIONS: Final = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_MODES: Final = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB", "AIR REG")
_SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
_COLORS: Final = ("forest", "green", "almond", "antique", "azure", "blush", "chocolate", "ivory", "lace", "red")
_KINDS: Final = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
_BOXES: Final = (("SM", "LG", "MED", "JUMBO", "WRAP"), ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"))
_ORDER_COMMENTS: Final = ("special packages wake requests", "quickly final deposits", "special requests", "fast")
_SUPPLIER_COMMENTS: Final = ("Customer slow Complaints", "Customer fast Recommends", "carefully even")
_SLOTS: Final = 4  # order keys per key of the base


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row, in the order of the table's columns."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """All rows whose key begins with `key`."""

    table: str
    key: Row


@dataclass(frozen=True, slots=True)
class Update:
    """New values of the row with this key. Does nothing if there is none."""

    table: str
    key: Row
    values: Mapping[str, object]


Change = Insert | Delete | Update
Transaction = tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of rows of the base."""

    orders: int
    customers: int
    parts: int
    suppliers: int

    @classmethod
    def of_scale(cls, scale: float) -> Sizes:
        """Return those of a scale factor."""
        return cls(*(round(count * scale) for count in (1_500_000, 150_000, 200_000, 10_000)))


@dataclass(frozen=True, slots=True)
class Refresh:
    """A reproducible series of changes."""

    sizes: Sizes
    seed: int

    @property
    def orders_per_pair(self) -> int:
        """How many orders a refresh function inserts or deletes."""
        return max(1, self.sizes.orders // 1000)

    def inserts(self, pair: int) -> Iterator[Transaction]:
        """Yield RF1: a transaction per new order, with its line items."""
        chance = random.Random(f"{self.seed} RF1 {pair}")
        for key in self._keys(pair, newer=1):
            yield self._order(key, chance)

    def deletes(self, pair: int) -> Iterator[Transaction]:
        """Yield RF2: a transaction per old order, with its line items."""
        for key in self._keys(pair, newer=0):
            yield Delete("lineitem", (key,)), Delete("orders", (key,))

    def updates(self, pair: int, count: int, turn: int = 0) -> Iterator[Transaction]:
        """Yield `count` updates, one per transaction, of rows that exist after this pair; -1: before the first one.

        Some of those of line items have a line number that the order lacks, and change nothing. Each `turn` gives
        other updates.
        """
        chance = random.Random(f"{self.seed} updates {pair} {turn}")
        for _ in range(count):
            yield (self._update(pair, chance),)

    def _pairs(self) -> int:
        """How many pairs replace all orders once."""
        return self.sizes.orders // self.orders_per_pair

    def _keys(self, pair: int, newer: int) -> Iterator[int]:
        round_, place = divmod(pair, self._pairs())
        for index in range(place * self.orders_per_pair, (place + 1) * self.orders_per_pair):
            yield order_key(index, round_ + newer)

    def _live_key(self, pair: int, chance: random.Random) -> int:
        index = chance.randrange(self._pairs() * self.orders_per_pair)
        round_, place = divmod(pair, self._pairs())
        return order_key(index, round_ + (index // self.orders_per_pair <= place))

    def _order(self, key: int, chance: random.Random) -> Transaction:
        ordered = _FIRST_DAY + timedelta(chance.randint(0, _ORDER_DAYS))
        lines = [self._line(key, number, ordered, chance) for number in range(1, chance.randint(1, 7) + 1)]
        total = sum((cost for _, cost in lines), Decimal(0))
        states = {str(row[9]) for row, _ in lines}
        order = (
            key, self._customer(chance), states.pop() if len(states) == 1 else "P", round(total, 2), ordered,
            chance.choice(_PRIORITIES), f"Clerk#{chance.randint(1, 1000):09}", 0, chance.choice(_ORDER_COMMENTS),
        )  # fmt: skip
        return Insert("orders", order), *(Insert("lineitem", row) for row, _ in lines)

    def _line(self, key: int, number: int, ordered: date, chance: random.Random) -> tuple[Row, Decimal]:
        part = chance.randint(1, self.sizes.parts)
        quantity, discount, tax = chance.randint(1, 50), _cents(chance.randint(0, 10)), _cents(chance.randint(0, 8))
        price = quantity * _cents(90_000 + part // 10 % 20_001 + 100 * (part % 1000))
        shipped = ordered + timedelta(chance.randint(1, 121))
        received = shipped + timedelta(chance.randint(1, 30))
        row = (
            key, part, self.supplier(part, chance.randrange(4)), number, Decimal(quantity), price, discount, tax,
            chance.choice("RA") if received <= _CURRENT else "N", "O" if shipped > _CURRENT else "F", shipped,
            ordered + timedelta(chance.randint(30, 90)), received, chance.choice(_INSTRUCTIONS), chance.choice(_MODES),
            "refreshed",
        )  # fmt: skip
        return row, price * (1 + tax) * (1 - discount)

    def supplier(self, part: int, place: int) -> int:
        """Return one of the four suppliers of a part, by the specification's formula."""
        count = self.sizes.suppliers
        return (part + place * (count // 4 + (part - 1) // count)) % count + 1

    def _customer(self, chance: random.Random) -> int:
        """Return a customer who orders: every third one never does."""
        key = chance.randint(1, self.sizes.customers - 2)
        return key + 1 if key % 3 == 0 else key

    def _update(self, pair: int, chance: random.Random) -> Update:
        match chance.choices(_UPDATED, _WEIGHTS)[0]:
            case "lineitem":
                key = (self._live_key(pair, chance), min(chance.randint(1, 7), chance.randint(1, 7)))
                return Update("lineitem", key, _line_values(chance))
            case "orders":
                return Update("orders", (self._live_key(pair, chance),), self._order_values(chance))
            case "customer":
                return Update("customer", (chance.randint(1, self.sizes.customers),), _customer_values(chance))
            case "part":
                return Update("part", (chance.randint(1, self.sizes.parts),), _part_values(chance))
            case "partsupp":
                part = chance.randint(1, self.sizes.parts)
                key = (part, self.supplier(part, chance.randrange(4)))
                return Update("partsupp", key, _stock_values(chance))
            case "supplier":
                return Update("supplier", (chance.randint(1, self.sizes.suppliers),), _supplier_values(chance))
            case table:
                return Update(table, (chance.randrange(25),), {"n_comment": chance.choice((None, "", "even deposits"))})

    def _order_values(self, chance: random.Random) -> dict[str, object]:
        return _one_of(
            chance,
            {"o_orderstatus": chance.choice("FOP"), "o_comment": chance.choice(_ORDER_COMMENTS)},
            {"o_totalprice": _cents(chance.randint(90_000, 55_000_000))},
            {"o_orderdate": _day(chance), "o_orderpriority": chance.choice(_PRIORITIES)},
            {"o_custkey": self._customer(chance)},
        )


_UPDATED: Final = ("lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation")
_WEIGHTS: Final = (50, 20, 10, 8, 6, 5, 1)


def order_key(index: int, slot: int) -> int:
    """Return the key of the order at an index from 0: slot 0 is the base's, as dbgen's `mk_sparse`."""
    number = index + 1
    return (number >> 3) << 5 | slot % _SLOTS << 3 | number & 7


def _line_values(chance: random.Random) -> dict[str, object]:
    shipped = _day(chance)
    return _one_of(
        chance,
        {"l_returnflag": chance.choice("RAN"), "l_linestatus": chance.choice("OF")},
        {
            "l_quantity": Decimal(chance.randint(1, 50)),
            "l_extendedprice": _cents(chance.randint(90_000, 10_000_000)),
            "l_discount": _cents(chance.randint(0, 10)),
        },
        {"l_shipdate": shipped, "l_receiptdate": shipped + timedelta(chance.randint(1, 30))},
        {"l_shipmode": chance.choice(_MODES), "l_shipinstruct": chance.choice(_INSTRUCTIONS)},
        {"l_comment": f"changed {chance.randint(0, 999)}"},
    )


def _customer_values(chance: random.Random) -> dict[str, object]:
    nation = chance.randrange(25)
    return _one_of(
        chance,
        {"c_acctbal": _cents(chance.randint(-99_999, 999_999))},
        {"c_mktsegment": chance.choice(_SEGMENTS)},
        {"c_nationkey": nation, "c_phone": f"{nation + 10}-{chance.randint(100, 999)}-555-0100"},
    )


def _part_values(chance: random.Random) -> dict[str, object]:
    return _one_of(
        chance,
        {"p_name": " ".join(chance.sample(_COLORS, 5))},
        {"p_type": " ".join(map(chance.choice, _KINDS)), "p_size": chance.randint(1, 50)},
        {
            "p_brand": f"Brand#{chance.randint(1, 5)}{chance.randint(1, 5)}",
            "p_container": " ".join(map(chance.choice, _BOXES)),
        },
    )


def _stock_values(chance: random.Random) -> dict[str, object]:
    return _one_of(
        chance, {"ps_availqty": chance.randint(1, 9999)}, {"ps_supplycost": _cents(chance.randint(100, 100_000))}
    )


def _supplier_values(chance: random.Random) -> dict[str, object]:
    return _one_of(
        chance,
        {"s_acctbal": _cents(chance.randint(-99_999, 999_999))},
        {"s_comment": chance.choice(_SUPPLIER_COMMENTS)},
        {"s_nationkey": chance.randrange(25)},
    )


def _one_of(chance: random.Random, *forms: dict[str, object]) -> dict[str, object]:
    return chance.choice(forms)


def _day(chance: random.Random) -> date:
    return _FIRST_DAY + timedelta(chance.randint(0, _ORDER_DAYS))


def _cents(count: int) -> Decimal:
    return Decimal(count).scaleb(-2)
