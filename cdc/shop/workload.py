"""Runs the workload of a shop: threads that change orders, prices, manuals, profiles, posts and follows.

The random numbers are seeded, so every run attempts the same transactions.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, LiteralString

import psycopg
from psycopg.types.json import Jsonb

from cdc.shop.rows import CUSTOMERS, FOLLOWED, FOLLOWERS, PRODUCTS, TAGS, THINGS, Session, customer, manual
from outbox.event import Event
from outbox.writer import Writer

WRITERS: Final = 2
SALE: Final = 50
"""Rows of the larger transactions of an endless workload."""

_PAUSE_S: Final = 0.004  # between transactions of a writer: a busy shop, not a second benchmark
_RECONNECT_S: Final = 1.0
_OPEN_ORDERS_MAX: Final = 400
_FIRST_NUMBER: Final = 1000
_NEW_NUMBER: Final = 1_000_000_000  # no shop reaches it by counting
_SALE_CHANCE: Final = 0.005
_NOTES: Final = (None, "leave at the door", "gift: 🎁", "call first\nthen ring", 'mark it "fragile"')


@dataclass(frozen=True, slots=True)
class Endless:
    """A workload for days: it continues with the orders in the table, and waits for a server that is down.

    Sometimes one transaction changes the prices of many products.

    Attributes:
        rate: changed rows per second, of all writers together.
        outbox: also write an event to the outbox table for every change of an order.
    """

    rate: float
    outbox: bool = False


class Shop:
    """The writers, which run until `stop`. Read the counts from any thread."""

    def __init__(self, dsn: str, seed: int, endless: Endless | None = None) -> None:
        self._stopping = threading.Event()
        self._writers = [_Writer(dsn, number, seed, self._stopping, endless) for number in range(WRITERS)]
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

    @property
    def change_count(self) -> int:
        """Number of rows that committed transactions inserted, updated and deleted, without cascades."""
        return sum(writer.change_count for writer in self._writers)

    @property
    def problem(self) -> str:
        """Why a writer of an endless workload cannot write at the moment; empty if all can."""
        return next((writer.problem for writer in self._writers if writer.problem), "")

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

    def __init__(
        self, dsn: str, number: int, seed: int, stopping: threading.Event, endless: Endless | None = None
    ) -> None:
        super().__init__(name=f"shop-{number}", daemon=True)
        self.commit_count = 0
        self.rollback_count = 0
        self.change_count = 0
        self.failure: psycopg.Error | None = None
        self.problem = ""
        self._dsn = dsn
        self._stopping = stopping
        self._endless = endless
        self._events = Writer() if endless is not None and endless.outbox else None
        self._changed = 0
        self._rng = random.Random(f"{seed}/{number}")  # noqa: S311 - a workload, not a secret
        self._next = _FIRST_NUMBER + number
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
        """Write until the end, or in an endless workload through every failure."""
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._dsn, application_name=self.name) as session:
                    if self._endless is not None:
                        self._resume(session)
                    while not self._stopping.wait(self._pause_s()):
                        self._work(session)
            except psycopg.Error as error:
                if self._endless is None:
                    self.failure = error
                    return
                self.problem = error.diag.message_primary or "PostgreSQL does not answer"
                self._stopping.wait(_RECONNECT_S)

    def _resume(self, session: Session) -> None:
        """Continue with the writer's own orders: all of its numbers have the same remainder."""
        found = session.execute(
            "select number from shop.orders where number %% %s = %s order by number",
            (WRITERS, self._next % WRITERS),
        ).fetchall()
        session.commit()
        self._orders = [number for (number,) in found]
        self._next = max([self._next, *(number % _NEW_NUMBER + WRITERS for number in self._orders)])

    def _pause_s(self) -> float:
        return _PAUSE_S if self._endless is None else self._changed * WRITERS / self._endless.rate

    def _work(self, session: Session) -> None:
        orders, following = list(self._orders), self._next
        self._changed = 0
        try:
            self._chosen()(session)
            rolls_back = self._rng.random() < 0.03
            session.execute("rollback" if rolls_back else "commit")
        except (psycopg.errors.DeadlockDetected, psycopg.errors.ForeignKeyViolation):
            session.rollback()
            rolls_back = True
        self.problem = ""
        if rolls_back:
            self._orders, self._next = orders, following
            self.rollback_count += 1
        else:
            self.commit_count += 1
            self.change_count += self._changed

    def _chosen(self) -> Callable[[Session], None]:
        if self._endless is not None and self._rng.random() < _SALE_CHANCE:
            return self._sell_off
        return self._rng.choice(self._actions)

    def _change(self, session: Session, statement: LiteralString, values: tuple[Any, ...]) -> int:
        """Run a statement and return the number of rows that it changed."""
        count = max(0, session.execute(statement, values).rowcount)
        self._changed += count
        return count

    def _publish(self, session: Session, what: str, number: int, **facts: object) -> None:
        """Write an event of an order, in the transaction that changes the order."""
        if self._events is not None:
            payload = json.dumps({"number": number, **facts})
            self._events.write(
                session, Event(aggregate_type="order", aggregate_id=str(number), type=what, payload=payload)
            )
            self._changed += 1

    def _place(self, session: Session) -> None:
        """Insert an order with some lines, and reduce the stock."""
        if len(self._orders) >= _OPEN_ORDERS_MAX:
            self._cancel(session)
            return
        rng, number = self._rng, self._next
        self._next += WRITERS
        self._change(
            session,
            "insert into shop.orders (number, customer_id, note) values (%s, %s, %s)",
            (number, rng.randint(1, CUSTOMERS), rng.choice(_NOTES)),
        )
        for line, product in enumerate(sorted(rng.sample(range(1, PRODUCTS + 1), rng.randint(1, 4))), 1):
            quantity = rng.randint(1, 5)
            self._change(
                session,
                "insert into shop.order_lines select %s, %s, id, %s, price from shop.products where id = %s",
                (number, line, quantity, product),
            )
            self._change(session, "update shop.products set stock = stock - %s where id = %s", (quantity, product))
        self._orders.append(number)
        self._publish(session, "OrderPlaced", number)

    def _advance(self, session: Session) -> None:
        """Advance the status of an order."""
        if self._orders:
            number = self._rng.choice(self._orders)
            found = session.execute(
                "update shop.orders set status = case status when 'new' then 'packed' when 'packed' then 'shipped' "
                "else 'returned' end::shop.order_status where number = %s returning status::text",
                (number,),
            ).fetchone()
            if found is not None:
                self._changed += 1
                self._publish(session, "OrderAdvanced", number, status=found[0])

    def _sell_off(self, session: Session) -> None:
        """Change the prices of many products in one transaction."""
        first, percent = self._rng.randint(1, PRODUCTS - SALE + 1), self._rng.randint(80, 125)
        self._change(
            session,
            "update shop.products set price = least(greatest(round(price * %s / 100, 2), 1), 999) "
            "where id between %s and %s",
            (percent, first, first + SALE - 1),
        )

    def _reprice(self, session: Session) -> None:
        """Change a price, but not the manual, which is stored out of line."""
        price, product = self._rng.randint(100, 99_999) / 100, self._rng.randint(1, PRODUCTS)
        self._change(session, "update shop.products set price = %s where id = %s", (price, product))

    def _rewrite(self, session: Session) -> None:
        """Replace a manual."""
        product = self._rng.randint(1, PRODUCTS)
        self._change(session, "update shop.products set manual = %s where id = %s", (manual(self._rng), product))

    def _learn(self, session: Session) -> None:
        """Change the profile (JSON) and the tags (array) of a customer."""
        profile = {"visits": self._rng.randint(1, 99), "likes": self._rng.choice(THINGS), "exact": 1.10}
        self._change(
            session,
            "update shop.customers set profile = profile || %s, tags = %s where id = %s",
            (Jsonb(profile), self._rng.sample(TAGS, 2), self._rng.randint(1, CUSTOMERS)),
        )

    def _renumber(self, session: Session) -> None:
        """Change the key of an order, and so the keys of its lines."""
        if self._orders:
            at = self._rng.randrange(len(self._orders))
            old = self._orders[at]
            new = old + _NEW_NUMBER if old < _NEW_NUMBER else old + 10 * _NEW_NUMBER
            self._change(session, "update shop.orders set number = %s where number = %s", (new, old))
            self._orders[at] = new

    def _cancel(self, session: Session) -> None:
        """Delete an order with its lines."""
        if self._orders:
            number = self._orders.pop(self._rng.randrange(len(self._orders)))
            self._change(session, "delete from shop.orders where number = %s", (number,))
            self._publish(session, "OrderCancelled", number)

    def _post(self, session: Session) -> None:
        """Insert a post of a followed customer."""
        body = f"{self._rng.choice(THINGS)}: {self._rng.choice(('lovely', 'broken', 'as described', '🎉'))}"
        self._change(
            session, "insert into shop.posts (author_id, body) values (%s, %s)", (self._rng.randint(1, FOLLOWED), body)
        )

    def _follow(self, session: Session) -> None:
        """Insert or delete a follow."""
        pair = (self._rng.randint(1, FOLLOWERS), self._rng.randint(1, FOLLOWED))
        gone = self._change(session, "delete from shop.follows where follower_id = %s and followed_id = %s", pair)
        if not gone:
            self._change(session, "insert into shop.follows values (%s, %s) on conflict do nothing", pair)

    def _retract(self, session: Session) -> None:
        """Delete the oldest post of an author."""
        self._change(
            session,
            "delete from shop.posts where id = (select min(id) from shop.posts where author_id = %s)",
            (self._rng.randint(1, FOLLOWED),),
        )

    def _welcome(self, session: Session) -> None:
        """Insert a customer."""
        self._change(
            session,
            "insert into shop.customers (name, email, tags, profile) values (%s, %s, %s, %s)",
            customer(self._rng),
        )
