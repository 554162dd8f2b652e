"""Writes the changes of TPC-H to PostgreSQL from two sessions, as fast as they can, until they are stopped."""

from __future__ import annotations

import random
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Final

import psycopg

from tests.fixtures.servers.background_thread import beside
from tests.tpch.statements import statements

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from tests.tpch.refresh import Refresh, Transaction

_UPDATES: Final = 50  # that follow the same pair
_TOGETHER_MAX: Final = 5  # transactions of the refresh functions that are committed as one
_ROLLED_BACK: Final = 0.05
_POLL_S: Final = 0.1


class Writer:
    """One session runs refresh functions, the other one updates rows. Writing again continues.

    Both pause while `may_write` answers no.
    """

    def __init__(self, dsn: str, refresh: Refresh, may_write: Callable[[Writer], bool] = lambda _: True) -> None:
        self.pairs = 0
        self.commits = 0
        self.statements = 0
        self._dsn = dsn
        self._refresh = refresh
        self._may_write = may_write
        self._works = (self._pairs(), self._updates())
        self._errors: list[BaseException] = []

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write until the block ends. Raises the error of a session that failed."""
        with beside(*(partial(self._guarded, work) for work in self._works)):
            yield
        if self._errors:
            raise self._errors[0]

    def _pairs(self) -> Iterator[Transaction]:
        for pair in count():
            yield from self._refresh.inserts(pair)
            yield from self._refresh.deletes(pair)
            self.pairs += 1

    def _updates(self) -> Iterator[Transaction]:
        for turn in count():
            yield from self._refresh.updates(self.pairs - 1, _UPDATES, turn)

    def _guarded(self, work: Iterator[Transaction], stop: threading.Event) -> None:
        try:
            self._write(work, stop)
        except BaseException as error:  # noqa: BLE001 - raised again where the block ends
            self._errors.append(error)

    def _write(self, work: Iterator[Transaction], stop: threading.Event) -> None:
        chance = random.Random(self._refresh.seed)
        with psycopg.connect(self._dsn) as session:
            while not stop.is_set():
                if not self._may_write(self):
                    stop.wait(_POLL_S)
                    continue
                together = list(islice(work, chance.randint(1, _TOGETHER_MAX)))
                while True:
                    try:
                        for transaction in together:
                            for sql, values in statements(transaction):
                                session.execute(sql, values)
                                self.statements += 1
                    except psycopg.errors.DeadlockDetected:  # the sessions lock rows in any order
                        session.rollback()
                        continue
                    if chance.random() > _ROLLED_BACK:
                        break
                    session.rollback()
                session.commit()
                self.commits += 1
