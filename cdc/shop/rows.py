"""Creates the tables of the shop and fills them. The random numbers are seeded, so every run inserts the same rows."""

from __future__ import annotations

import random
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.types.json import Jsonb

Session: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CUSTOMERS: Final = 2_000
PRODUCTS: Final = 200
FOLLOWS: Final = 1_500
FILLED: Final = CUSTOMERS + PRODUCTS + FOLLOWS
TABLES: Final = ("customers", "products", "orders", "order_lines", "follows", "posts")
FOLLOWERS: Final = 500  # each of them follows three at first
FOLLOWED: Final = 100  # followed customers are among the first ones
THINGS: Final = ("Kettle", "Lamp", "Ladder", "Anvil", "Compass", "Sextant", "Teapot", "Bellows", "Loom", "Abacus")
TAGS: Final = ("vip", "press", "école", "wholesale", 'says "hi"', "a,b", "NULL")
_MANUAL_BYTES: Final = (3_000, 6_000)  # more than a quarter of a page, so it is stored out of line
_FIRST: Final = ("Ada", "Björn", "Chloë", "Dmitri", "Eve", "Farouk", "Grażyna", "Hana", "Íñigo", "Jun", "Kofi", "李")
_LAST: Final = ("Lovelace", "O'Neill", "Nakamura", "Øst", "Pérez", "Quist", "Rossi", "Šimić", "Turing", "Ünal", "王")


def create_tables(session: Session) -> None:
    """Create the empty schema."""
    session.execute(resources.files("cdc.shop").joinpath("schema.sql").read_text(encoding="utf-8").encode())


def exists(session: Session) -> bool:
    """Return whether the schema exists."""
    row = session.execute("select to_regclass('shop.orders') is not null").fetchone()
    return row is not None and bool(row[0])


def views_folder() -> Path:
    """Return the folder of the shop's views."""
    return Path(str(resources.files("cdc.shop").joinpath("views")))


def fill(session: Session, seed: int) -> int:
    """Insert customers, products and follows. Returns the number of rows."""
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    with session.cursor() as cursor:
        cursor.executemany(
            "insert into shop.customers (name, email, tags, profile) values (%s, %s, %s, %s)",
            [customer(rng) for _ in range(CUSTOMERS)],
        )
        cursor.executemany(
            "insert into shop.products values (%s, %s, %s, %s, %s)",
            [
                (number, f"{rng.choice(THINGS)} No. {number}", rng.randint(100, 99_999) / 100, 10_000, manual(rng))
                for number in range(1, PRODUCTS + 1)
            ],
        )
        cursor.executemany(
            "insert into shop.follows (follower_id, followed_id) values (%s, %s)",
            [
                (follower, followed)
                for follower in range(1, FOLLOWERS + 1)
                for followed in rng.sample(range(1, FOLLOWED + 1), FOLLOWS // FOLLOWERS)
            ],
        )
    return FILLED


def customer(rng: random.Random) -> tuple[str, str, list[str], Jsonb]:
    """Return the values of a new customer."""
    name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
    tags = rng.sample(TAGS, rng.randint(0, 3))
    return name, f"c{rng.randrange(10**9)}@example.org", tags, Jsonb({"language": rng.choice(["de", "en", "ja"])})


def manual(rng: random.Random) -> str:
    """Return text that does not compress, so that it is stored out of line."""
    return rng.randbytes(rng.randint(*_MANUAL_BYTES) // 2).hex()
