"""Measures the cost of an event for its writer: pgbench's transaction (TPC-B) with and without an event.

Two clients, each a thread with a connection. A turn of each variant is a few hundred transactions, and the variants
alternate, so that other load on the machine affects all of them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import psycopg

from cdc.local.stack import Stack
from outbox.event import Event, json_text
from outbox.event_contracts import ContractId, Contracts
from outbox.writer import Writer
from tests.fixtures.outbox.outbox_databases import ask, deploy
from tests.fixtures.servers.running_servers import fresh_database

_ACCOUNTS: Final = 100_000
_CLIENTS: Final = 2
_TURNS: Final = 5
_CONTRACT: Final = {
    "type": "object",
    "required": ["account", "delta", "balance"],
    "properties": {"account": {"type": "integer"}, "delta": {"type": "integer"}, "balance": {"type": "integer"}},
}

Write = Callable[[psycopg.Cursor[Any], Event], None]


def measure_outbox(stack: Stack, transactions: int) -> dict[str, object]:
    """Return transactions per second of each variant, medians of turns, and the ratio to the plain transaction."""
    contracts = Contracts({ContractId("account", "Changed", 1): _CONTRACT})
    ways: dict[str, Write | None] = {
        "plain": None,
        "event": Writer().write,
        "event, with its contract": Writer(contracts=contracts).write,
        "event, not kept": Writer(keep=False).write,
        "logical message": Writer().emit,
    }
    with fresh_database(stack.postgres) as database:
        deploy(database.dsn)
        _fill(database.dsn)
        for way in ways.values():
            _turn(database.dsn, way, max(20, transactions // 10))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_TURNS):
            for name, way in ways.items():
                rates[name].append(_turn(database.dsn, way, transactions))
    ratios = {name: median(a / b for a, b in zip(rates[name], rates["plain"], strict=True)) for name in ways}
    return {
        "transactions": transactions,
        "clients": _CLIENTS,
        "per_s": {name: round(median(found)) for name, found in rates.items()},
        "ratio": {name: round(ratio, 3) for name, ratio in ratios.items()},
    }


def _fill(dsn: str) -> None:
    for table, count in (("accounts", _ACCOUNTS), ("tellers", 10), ("branches", 1)):
        ask(dsn, f"create table {table} (id int primary key, balance int not null default 0)")
        ask(dsn, f"insert into {table} select i from generate_series(1, {count}) i")
    ask(dsn, "create table history (tid int, bid int, aid int, delta int, at timestamptz)")
    ask(dsn, "vacuum analyze")


def _turn(dsn: str, write: Write | None, transactions: int) -> float:
    """Return transactions per second of all clients together, without the time of connecting."""
    begin, ready = threading.Event(), threading.Barrier(_CLIENTS + 1)

    def client(number: int) -> None:
        chance = random.Random(number)
        with psycopg.connect(dsn) as connection:
            ready.wait()
            begin.wait()
            for _ in range(transactions // _CLIENTS):
                _transaction(connection, chance, write)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    begin.set()
    for thread in threads:
        thread.join()
    return transactions / (time.perf_counter() - began)


def _transaction(connection: psycopg.Connection[Any], chance: random.Random, write: Write | None) -> None:
    account, teller, delta = chance.randint(1, _ACCOUNTS), chance.randint(1, 10), chance.randint(-5000, 5000)
    cursor = connection.cursor()
    cursor.execute("update accounts set balance = balance + %s where id = %s", (delta, account))
    ((balance,),) = cursor.execute("select balance from accounts where id = %s", (account,)).fetchall()
    cursor.execute("update tellers set balance = balance + %s where id = %s", (delta, teller))
    cursor.execute("update branches set balance = balance + %s where id = 1", (delta,))
    cursor.execute("insert into history values (%s, 1, %s, %s, current_timestamp)", (teller, account, delta))
    if write is not None:
        payload = json_text({"account": account, "delta": delta, "balance": balance})
        write(cursor, Event(aggregate_type="account", aggregate_id=str(account), type="Changed", payload=payload))
    connection.commit()
