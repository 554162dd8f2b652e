"""Generates view-sql.md: which SQL a view in PostgreSQL's dialect may use. `generate_cli.py` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sinks.warehouse.views.meaning import known

_PAGE: Final = """# PostgreSQL's SQL in views

{notice}

A view with the first line `-- dialect: postgres` is PostgreSQL's SQL that Spark computes. An accepted view has the
rows that PostgreSQL's own query has. What Spark computes differently is translated. What is not known to be equal is
refused, with its line and what to write instead. The types of the columns come from the captured tables.

Each entry below is compared with a PostgreSQL server over nulls, NaN, extremes, padded and non-ASCII text, leap days
and errors (`tests/spark/meaning`). Numerics are compared by value: the lake has one scale per column.

## Types

Known are the integers, `numeric(p,s)`, `float4`, `float8`, `boolean`, `text`, `varchar`, `char(n)`, `date`,
`timestamp`, `timestamptz`, `uuid`, `bytea` and enums (`=` and `in` only). You may select, count and test for null a
column of any other type, and nothing else. An enum is known once a release with this page has written the schema
record of its table.

- `char(n)` is compared and cast to `text` without its padding, as in PostgreSQL; `like` sees the padding.
- `numeric` without a precision is text in the lake. Set a type with `types` in the sink's section to compute with it.
- Arithmetic of `numeric` is exact, or the view is left behind with an error: Spark's decimals have 38 digits.
- A quotient and `avg` have PostgreSQL's digits, for results from 1e-8 to 1e12; others are an error. Put `round(x, n)`
  around a quotient to compute with it, or to cast it to text.
- Integers overflow with an error, and `/` of integers truncates.
- Floats can be compared and selected. Arithmetic, `sum` and `avg` of floats are refused: their last digits depend on
  the order of rows.

## Text

Text is compared for equality in any database with a deterministic collation. Its order, `min`, `max`, `upper`,
`lower` and `ilike` depend on the database's collation, which Spark does not have. Write `collate "C"` behind the
text:

```sql
-- dialect: postgres
select id, name from customers order by name collate "C" limit 10
```

If the database's collation is `C`, declare it above the query with `-- collation: C`. Nothing checks this
declaration. It is wrong for `C.UTF-8` where you use `upper`, `lower` or `ilike`, and for columns with a collation of
their own.

## Clauses

{clauses}

ORDER BY without LIMIT has no effect, because a view has no order. Text and numbers in ORDER BY place nulls as
PostgreSQL does. Refused are `using`, `natural`, recursive queries, functions in FROM, `values` in FROM, named
windows, frames with RANGE offsets, GROUPS or EXCLUDE, rows in comparisons, and comparisons inside comparisons without
parentheses.

## Operators and conditions

`+ - * / %` of integers and numerics; `date - date`, `date + integer`, and a date or timestamp plus or minus an
interval of one number and one unit; `= <> < <= > >=`, `is distinct from`, `in`, `between`, `like` with a literal
pattern without escapes, `is null`, `is true`; `and`, `or`, `not`; `||`; `case`, `coalesce`, `nullif`, `greatest`,
`least`.

Literals of dates and times must be in ISO 8601.

## Functions

| Function | Arguments | Result |
|---|---|---|
{functions}
| `upper`, `lower` | `text collate "C"` | `text` |
| `trim` | `text` | `text` |
| `round` | `numeric`, a literal number of digits | `numeric` |
| `div` | integers | `numeric` |
| `extract` | {fields} from a date or timestamp | `numeric` |
| `date_trunc` | {units} | its argument's type; `timestamptz` for a date |
| `at time zone` | `'UTC'` | `timestamp` or `timestamptz` |

One difference remains: Spark does not compute an operand if the other one is null, so an error of PostgreSQL in such an
operand (`null <> big::smallint`) is a null here.

An argument that is a position or a length must be a literal.

## Casts

`text` to a type is possible for literals only. Known casts:

{casts}

Besides, integers and numerics to `numeric(p,s)`, numerics with a fixed scale to `text`, and text to `varchar(n)`.

## Aggregates and window functions

| Aggregate | Types |
|---|---|
{aggregates}
| `array_agg`, `string_agg` | with `order by` inside, on a key |
| `percentile_disc` | `int2` and `int4`, a literal fraction |
| `percentile_cont` | `int2` and `int4`, with {fractions} |

FILTER, and DISTINCT in an aggregate of one column, are known. Window functions are {windows}, and the aggregates of
the table, with frames of ROWS. Ties have no defined order: end ORDER BY with a key.
"""


def view_sql_page(notice: str) -> str:
    """Return the page."""
    return _PAGE.format(
        notice=notice.format(source="sinks/warehouse/views/meaning/known.py"),
        clauses="\n".join(f"- {clause}" for clause in known.CLAUSES),
        functions="\n".join(_functions()),
        fields=_names(known.FIELDS),
        units=_names(known.TRUNCATED_TO),
        casts="\n".join(_casts()),
        aggregates="\n".join(f"| `{name}` | {_names(kinds)} |" for name, kinds in known.AGGREGATES.items()),
        fractions=", ".join(str(fraction) for fraction in sorted(known.CONT_FRACTIONS)),
        windows=_names((*known.WINDOWS, *known.SHIFTED, *known.PICKED)),
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _functions() -> Iterable[str]:
    for name, entries in known.FUNCTIONS.items():
        for entry in entries:
            yield f"| `{name}` | {_names(entry.arguments)} | `{entry.result}` |"


def _casts() -> Iterable[str]:
    found: dict[str, list[str]] = {}
    for have, kind in known.CASTS:
        found.setdefault(have, []).append(kind)
    return (f"- `{have}` to {_names(kinds)}" for have, kinds in found.items())
