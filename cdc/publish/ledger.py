"""The cut index in the making: for every partition the next offset, the record count and the rolling hash. Pure.

The offset of a record is predicted when it is written: Kafka gives consecutive offsets to the one writer of a
partition, and puts one marker behind the records of each transaction that touched it. The publisher checks the
prediction against a delivery report per partition before it commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from cdc.model.change_records import Record

Partition = tuple[str, int]


def roll(rolling: int, records: list[Record]) -> int:
    """Carry the rolling hash over `records`: each one is XXH3-64 of key and value, seeded with the hash so far."""
    digest = xxh3_64_intdigest
    for key, value, _ in records:
        if value is None:
            rolling = digest(key or b"", rolling)
        elif key is None:
            rolling = digest(value, rolling)
        else:
            rolling = digest(key + value, rolling)
    return rolling


@dataclass(slots=True)
class Account:
    """One partition.

    Attributes:
        base: offset the next record of a new transaction gets.
        next_offset: the offset after the last record of a committed transaction.
        count: records since the count began, tombstones included.
        rolling: see `roll`.
        pending: records of the open transaction.
    """

    base: int
    next_offset: int
    count: int = 0
    rolling: int = 0
    pending: int = 0


class Ledger:
    """Accounts of all partitions, those included that nobody writes to now: a full map of the cut has every one.

    An account that a map left out would begin anew when its table comes back, and then nobody could tell from the
    index whether it went on counting. Not thread-safe; thrown away with the producer.
    """

    def __init__(self) -> None:
        self._accounts: dict[Partition, Account] = {}
        self._resting: dict[Partition, Account] = {}
        self._touched: dict[Partition, Account] = {}

    def open(self, partition: Partition, *, end_offset: int, before: tuple[int, int, str] | None) -> None:
        """Start an account at the log's end; `before` is what the last cut said of it."""
        self._resting.pop(partition, None)
        self._accounts[partition] = _account(end_offset, before)

    def rest(self, partition: Partition, *, end_offset: int, before: tuple[int, int, str]) -> None:
        """Remember an account that nothing is written to, until it is opened."""
        if partition not in self._accounts:
            self._resting[partition] = _account(end_offset, before)

    def known(self, partition: Partition) -> bool:
        """Whether the account was opened."""
        return partition in self._accounts

    def ends(self, topic: str) -> dict[Partition, int]:
        """For each partition of a topic the offset after the last record we committed."""
        return {at: account.next_offset for at, account in self._accounts.items() if at[0] == topic}

    def reach(self, topic: str) -> dict[Partition, int]:
        """As `ends`, as if the open transaction were committed."""
        return {
            at: account.base + account.pending if account.pending else account.next_offset
            for at, account in self._accounts.items()
            if at[0] == topic
        }

    def take_as_is(self) -> None:
        """Every account ends where its partition does: what lies there by now is told by no cut to come."""
        for account in (*self._accounts.values(), *self._resting.values()):
            account.next_offset = account.base

    def write(self, partition: Partition, records: list[Record]) -> None:
        """Note records handed to the producer in the open transaction."""
        account = self._accounts[partition]
        account.pending += len(records)
        account.rolling = roll(account.rolling, records)
        self._touched[partition] = account

    def expected(self) -> Mapping[Partition, int]:
        """For each touched partition the offset its last record must get."""
        return {partition: account.base + account.pending - 1 for partition, account in self._touched.items()}

    def changed(self, *, full: bool) -> dict[str, tuple[int, int, str]]:
        """The map of the cut, as if the open transaction were committed."""
        accounts = {**self._resting, **self._accounts} if full else self._touched
        return {
            f"{topic}-{index}": (
                account.base + account.pending if account.pending else account.next_offset,
                account.count + account.pending,
                f"{account.rolling:016x}",
            )
            for (topic, index), account in accounts.items()
        }

    def committed(self) -> None:
        """The open transaction is durable; each touched partition has a marker behind its records."""
        for account in self._touched.values():
            account.next_offset = account.base + account.pending
            account.base = account.next_offset + 1
            account.count += account.pending
            account.pending = 0
        self._touched = {}


def _account(end_offset: int, before: tuple[int, int, str] | None) -> Account:
    if before is None:
        return Account(base=end_offset, next_offset=end_offset)
    next_offset, count, rolling = before
    return Account(end_offset, next_offset, count, int(rolling, 16))
