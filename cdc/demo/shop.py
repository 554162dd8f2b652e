"""Runs the workload of a shop: threads that change orders, prices, manuals, profiles, posts and follows.

The random numbers are seeded, so every run attempts the same transactions.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.types.json import Jsonb

Session: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CUSTOMERS: Final = 2_000
PRODUCTS: Final = 200
FOLLOWS: Final = 1_500
FILLED: Final = CUSTOMERS + PRODUCTS + FOLLOWS
TABLES: Final = ("customers", "products", "orders", "order_lines", "follows", "posts")
_FOLLOWERS: Final = 500  # each of them follows three at first
_FOLLOWED: Final = 100  # followed customers are among the first ones
WRITERS: Final = 2
_PAUSE_S: Final = 0.004  # between transactions of a writer: a busy shop, not a second benchmark
_MANUAL_BYTES: Final = (3_000, 6_000)  # more than a quarter of a page, so it is stored out of line
_OPEN_ORDERS_MAX: Final = 400
_NEW_NUMBER: Final = 1_000_000
_FIRST: Final = ("Ada", "Björn", "Chloë", "Dmitri", "Eve", "Farouk", "Grażyna", "Hana", "Íñigo", "Jun", "Kofi", "李")
_LAST: Final = ("Lovelace", "O'Neill", "Nakamura", "Øst", "Pérez", "Quist", "Rossi", "Šimić", "Turing", "Ünal", "王")
_THINGS: Final = ("Kettle", "Lamp", "Ladder", "Anvil", "Compass", "Sextant", "Teapot", "Bellows", "Loom", "Abacus")
_TAGS: Final = ("vip", "press", "école", "wholesale", 'says "hi"', "a,b", "NULL")
_NOTES: Final = (None, "leave at the door", "gift: 🎁", "call first\nthen ring", 'mark it "fragile"')


def create_tables(session: Session) -> None:
    """Create the empty schema."""
    session.execute(resources.files("cdc.demo").joinpath("shop.sql").read_text(encoding="utf-8").encode())


def fill(session: Session, seed: int) -> int:
    """Insert customers, products and follows. Returns the number of rows."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    with session.cursor() as cursor:
        cursor.executemany(
            "insert into shop.customers (name, email, tags, profile) values (%s, %s, %s, %s)",
            [_customer(rng) for _ in range(CUSTOMERS)],
        )
        cursor.executemany(
            "insert into shop.products values (%s, %s, %s, %s, %s)",
            [
                (number, f"{rng.choice(_THINGS)} No. {number}", rng.randint(100, 99_999) / 100, 10_000, _manual(rng))
                for number in range(1, PRODUCTS + 1)
            ],
        )
        cursor.executemany(
            "insert into shop.follows (follower_id, followed_id) values (%s, %s)",
            [
                (follower, followed)
                for follower in range(1, _FOLLOWERS + 1)
                for followed in rng.sample(range(1, _FOLLOWED + 1), FOLLOWS // _FOLLOWERS)
            ],
        )
    return FILLED


class Shop:
    """The writers, which run until `stop`. Read the counts from any thread."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._stopping = threading.Event()
        self._writers = [_Writer(dsn, number, seed, self._stopping) for number in range(WRITERS)]
        for writer in self._writers:
            writer.start()

    @property
    def commit_count(self) -> int:
        """Number of committed transactions."""
        return sum(writer.commit_count for writer in self._writers)

    @property
    def rollback_count(self) -> int:
        """Number of transactions that were rolled back on purpose and must never appear in Kafka."""
        return sum(writer.rollback_count for writer in self._writers)

    def stop(self) -> None:
        """Stop every writer after its current transaction. Raises the error of a failed writer."""
        self._stopping.set()
        for writer in self._writers:
            writer.join()
        for writer in self._writers:
            if writer.failure is not None:
                raise writer.failure


class _Writer(threading.Thread):
    """One writer with its own orders, so that writers rarely wait for each other."""

    def __init__(self, dsn: str, number: int, seed: int, stopping: threading.Event) -> None:
        super().__init__(name=f"shop-{number}", daemon=True)
        self.commit_count = 0
        self.rollback_count = 0
        self.failure: psycopg.Error | None = None
        self._dsn = dsn
        self._stopping = stopping
        self._rng = random.Random(f"{seed}/{number}")  # noqa: S311 - a workload, not a secret
        self._next = 1000 + number
        self._orders: list[int] = []
        self._actions: list[Callable[[Session], None]] = [
            *[self._place] * 6,
            *[self._advance] * 6,
            *[self._reprice] * 2,
            self._rewrite,
            *[self._learn] * 2,
            *[self._renumber] * 2,
            *[self._cancel] * 3,
            self._welcome,
            *[self._post] * 2,
            self._follow,
            self._retract,
        ]

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, application_name=self.name) as session:
                while not self._stopping.wait(_PAUSE_S):
                    self._work(session)
        except psycopg.Error as error:
            self.failure = error

    def _work(self, session: Session) -> None:
        orders, following = list(self._orders), self._next
        try:
            self._rng.choice(self._actions)(session)
            rolls_back = self._rng.random() < 0.03
            session.execute("rollback" if rolls_back else "commit")
        except (psycopg.errors.DeadlockDetected, psycopg.errors.ForeignKeyViolation):
            session.rollback()
            rolls_back = True
        if rolls_back:
            self._orders, self._next = orders, following
            self.rollback_count += 1
        else:
            self.commit_count += 1

    def _place(self, session: Session) -> None:
        """Insert an order with some lines, and reduce the stock."""
        if len(self._orders) >= _OPEN_ORDERS_MAX:
            self._cancel(session)
            return
        rng, number = self._rng, self._next
        self._next += WRITERS
        session.execute(
            "insert into shop.orders (number, customer_id, note) values (%s, %s, %s)",
            (number, rng.randint(1, CUSTOMERS), rng.choice(_NOTES)),
        )
        for line, product in enumerate(sorted(rng.sample(range(1, PRODUCTS + 1), rng.randint(1, 4))), 1):
            quantity = rng.randint(1, 5)
            session.execute(
                "insert into shop.order_lines select %s, %s, id, %s, price from shop.products where id = %s",
                (number, line, quantity, product),
            )
            session.execute("update shop.products set stock = stock - %s where id = %s", (quantity, product))
        self._orders.append(number)

    def _advance(self, session: Session) -> None:
        """Advance the status of an order."""
        if self._orders:
            session.execute(
                "update shop.orders set status = case status when 'new' then 'packed' when 'packed' then 'shipped' "
                "else 'returned' end::shop.order_status where number = %s",
                (self._rng.choice(self._orders),),
            )

    def _reprice(self, session: Session) -> None:
        """Change a price, but not the manual, which is stored out of line."""
        price, product = self._rng.randint(100, 99_999) / 100, self._rng.randint(1, PRODUCTS)
        session.execute("update shop.products set price = %s where id = %s", (price, product))

    def _rewrite(self, session: Session) -> None:
        """Replace a manual."""
        product = self._rng.randint(1, PRODUCTS)
        session.execute("update shop.products set manual = %s where id = %s", (_manual(self._rng), product))

    def _learn(self, session: Session) -> None:
        """Change the profile (JSON) and the tags (array) of a customer."""
        profile = {"visits": self._rng.randint(1, 99), "likes": self._rng.choice(_THINGS), "exact": 1.10}
        session.execute(
            "update shop.customers set profile = profile || %s, tags = %s where id = %s",
            (Jsonb(profile), self._rng.sample(_TAGS, 2), self._rng.randint(1, CUSTOMERS)),
        )

    def _renumber(self, session: Session) -> None:
        """Change the key of an order, and so the keys of its lines."""
        if self._orders:
            at = self._rng.randrange(len(self._orders))
            old = self._orders[at]
            new = old + _NEW_NUMBER if old < _NEW_NUMBER else old + 10 * _NEW_NUMBER
            session.execute("update shop.orders set number = %s where number = %s", (new, old))
            self._orders[at] = new

    def _cancel(self, session: Session) -> None:
        """Delete an order with its lines."""
        if self._orders:
            number = self._orders.pop(self._rng.randrange(len(self._orders)))
            session.execute("delete from shop.orders where number = %s", (number,))

    def _post(self, session: Session) -> None:
        """Insert a post of a followed customer."""
        body = f"{self._rng.choice(_THINGS)}: {self._rng.choice(('lovely', 'broken', 'as described', '🎉'))}"
        session.execute(
            "insert into shop.posts (author_id, body) values (%s, %s)", (self._rng.randint(1, _FOLLOWED), body)
        )

    def _follow(self, session: Session) -> None:
        """Insert or delete a follow."""
        pair = (self._rng.randint(1, _FOLLOWERS), self._rng.randint(1, _FOLLOWED))
        gone = session.execute("delete from shop.follows where follower_id = %s and followed_id = %s", pair).rowcount
        if not gone:
            session.execute("insert into shop.follows values (%s, %s) on conflict do nothing", pair)

    def _retract(self, session: Session) -> None:
        """Delete the oldest post of an author."""
        session.execute(
            "delete from shop.posts where id = (select min(id) from shop.posts where author_id = %s)",
            (self._rng.randint(1, _FOLLOWED),),
        )

    def _welcome(self, session: Session) -> None:
        """Insert a customer."""
        session.execute(
            "insert into shop.customers (name, email, tags, profile) values (%s, %s, %s, %s)", _customer(self._rng)
        )


def _customer(rng: random.Random) -> tuple[str, str, list[str], Jsonb]:
    name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
    tags = rng.sample(_TAGS, rng.randint(0, 3))
    return name, f"c{rng.randrange(10**9)}@example.org", tags, Jsonb({"language": rng.choice(["de", "en", "ja"])})


def _manual(rng: random.Random) -> str:
    """Return text that does not compress, so that it is stored out of line."""
    return rng.randbytes(rng.randint(*_MANUAL_BYTES) // 2).hex()
