"""Reads by which collations the database and its columns order text, and whether that is by code points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection

# Names of the columns differ between versions: datlocprovider came with PostgreSQL 15, datlocale with 17.
_DATABASE: Final = """
select coalesce(j ->> 'datlocprovider', 'c'), d.datcollate::text, d.datctype::text,
       coalesce(j ->> 'datlocale', j ->> 'daticulocale', '')
from pg_catalog.pg_database d cross join lateral pg_catalog.to_jsonb(d) j
where d.datname = pg_catalog.current_database()
"""
_COLUMNS: Final = """
select n.nspname::text, c.relname::text, a.attname::text, l.collname::text, l.collisdeterministic
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p')
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_collation l on l.oid = a.attcollation
where a.attnum > 0 and not a.attisdropped and l.collname <> 'default'
  and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
"""
_C: Final = frozenset({"C", "POSIX", "ucs_basic"})
_ORDER_OF_C: Final = frozenset({"C.UTF-8", "C.UTF8", "C.utf8", "pg_c_utf8", "PG_UNICODE_FAST", "pg_unicode_fast"})
_PROVIDERS: Final = {"c": "libc", "i": "ICU", "b": "builtin"}


@dataclass(frozen=True, slots=True)
class Collation:
    """A collation.

    Attributes:
        name: as people know it.
        order: whether it orders text by code points.
        case: whether its letters, digits and spaces are those of ASCII, as for upper() and regular expressions.
        deterministic: whether text is equal only if its bytes are.
    """

    name: str
    order: bool
    case: bool
    deterministic: bool = True


@dataclass(frozen=True, slots=True)
class Collations:
    """The collation of the database, and of the columns that have another: schema and table -> column -> collation."""

    database: Collation
    columns: Mapping[tuple[str, str], Mapping[str, Collation]] = field(default_factory=dict)


def collations(connection: Connection) -> Collations:
    """Read them. Raises a TailraceError by cause."""
    with reading("read collations"):
        row = connection.execute(_DATABASE).fetchone()
        found = connection.execute(_COLUMNS).fetchall()
    assert row is not None
    columns: dict[tuple[str, str], dict[str, Collation]] = {}
    for namespace, table, column, name, deterministic in found:
        one = Collation(name, name in _C | _ORDER_OF_C, name in _C, deterministic)
        columns.setdefault((namespace, table), {})[column] = one
    return Collations(of_database(*row), columns)


def of_database(provider: str, collate: str, ctype: str, locale: str) -> Collation:
    """Return the collation of a database from its row in pg_database."""
    if provider == "c":
        shown = collate if collate == ctype else f"{collate} with the character types of {ctype}"
        return Collation(shown, collate in _C | _ORDER_OF_C, collate in _C and ctype in _C)
    shown = f"{locale} ({_PROVIDERS.get(provider, provider)})"
    if provider == "b":
        return Collation(shown, locale in _C | _ORDER_OF_C, locale in _C)
    return Collation(shown, order=False, case=False)
