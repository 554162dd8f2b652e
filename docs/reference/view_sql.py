"""Generates view-sql.md: which SQL a view in PostgreSQL's dialect may use. `generate_cli.py` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sinks.warehouse.views.meaning import arrays, known, known_aggregates, known_json, known_time

_PAGE: Final = """# PostgreSQL's SQL in views

{notice}

A view with the first line `-- dialect: postgres` is PostgreSQL's SQL that Spark computes. An accepted view has the
rows that PostgreSQL's own query has. What Spark computes differently is translated. What is not known to be equal is
refused, with its line and what to write instead. The types of the columns come from the captured tables.

Each entry below is compared with a PostgreSQL server over nulls, NaN, extremes, padded and non-ASCII text, leap days
and errors (`tests/spark/meaning`). Numerics are compared by value: the lake has one scale per column.

## Types

Known are the integers, `numeric(p,s)`, `float4`, `float8`, `boolean`, `text`, `varchar`, `char(n)`, `date`,
`timestamp`, `timestamptz`, `time`, `uuid`, `bytea`, `macaddr`, `bit` and `varbit`. Known for equality only (`=`, `in`,
`distinct`, `group by`, joins) are enums, `inet`, `cidr`, `timetz`, `money`, `oid`, and ranges and multiranges of
integers, dates and timestamps. You may select, count and test for null a column of any other type, and nothing else.
An enum is known once a release with this page has written the schema record of its table.

- `char(n)` is compared and cast to `text` without its padding, as in PostgreSQL; `like` sees the padding.
- `numeric` without a precision is text in the lake. Set a type with `types` in the sink's section to compute with it.
- Arithmetic of `numeric` is exact, or the view is left behind with an error: Spark's decimals have 38 digits.
- A quotient and `avg` have PostgreSQL's digits, for results from 1e-8 to 1e12; others are an error. Put `round(x, n)`
  around a quotient to compute with it, or to cast it to text.
- Integers overflow with an error, and `/` of integers truncates.
- Arithmetic of floats has PostgreSQL's bits and errors. `sum`, `avg`, `min`, `max`, `distinct` and `group by` of floats
  are refused: sums depend on the order of rows, and 0 and -0 are equal. So are `power`, `exp`, `ln` and the text of a
  float, whose last digit differs between libraries, and constants that are -0 or a computation: write the value.
- An `interval` can be selected as it is stored. The difference of two timestamps can be compared with an interval
  literal, and `extract` reads its parts: `extract(epoch from (a - b))`.

## Arrays

Known are arrays of {elements}. The lake keeps no lower bounds: PostgreSQL may count a stored array from another number
than 1. So `a[1]` and slices of a stored array are refused, and so is its equality. `a[:]` counts from 1 in PostgreSQL
too: write `(a[:])[1]`, `(a[:])[2:3]` and `a[:] = b[:]`. Arrays that a query makes, with `array[...]` or `array_agg`,
count from 1.

For every array: `x = any(a)` and `x = all(a)` with each comparison, `@>`, `<@`, `&&`, `cardinality(a)`,
`array_length(a, 1)`, `array_to_string(a, ',')`. A stored array of several dimensions is an error when it is read, and
the view is left behind.

## Time zones

`at time zone` and `date_trunc(unit, time, zone)` know `'UTC'`. The rules of other zones come from the releases of time
zone data that the server and Spark's Java have. Declare above the query that both have the same:

```sql
-- dialect: postgres
-- time zones: same
select id, (placed at time zone 'Europe/Berlin')::date as day from orders
```

Nothing checks this declaration. Hours that a zone skips or has twice are PostgreSQL's. A time before 1970 in another
zone than UTC is an error, because packages of time zone data differ there. The zone of the session is UTC for casts
between `timestamptz` and `timestamp`, `date` or text.

## Text

Text is compared for equality in any database with a deterministic collation. Its order, `min`, `max`, `upper`,
`lower`, `initcap`, `ilike`, `~*` and the classes of regular expressions depend on the database's collation, which Spark
does not have. Write `collate "C"` behind the text:

```sql
-- dialect: postgres
select id, name from customers order by name collate "C" limit 10
```

If the database's collation is `C`, declare it above the query with `-- collation: C`. `cdc doctor` and
`cdc views check --source` compare the declaration with the database and with the columns that the view reads. They
report a view whose declaration is wrong: for another collation; for `C.UTF-8` where the view uses `upper` or a regular
expression; and for a column with a collation of its own. They also report a view that reads a column with a
nondeterministic collation, because Spark compares bytes.

`name` and `citext` are text once they are cast: `x::text`. For `citext`, compare
`lower(x::text collate "C")` on both sides.

### Patterns

`like` and `ilike` have any escape character. A pattern that is not a literal is possible too; a backslash in it is an
error. `similar to` is refused: write `~`.

A regular expression is a literal. Known are characters, `.`, `[a-z]`, `[^a]`, `|`, groups, `^`, `$`, `\\A`, `\\Z`,
escaped punctuation, `\\n`, `\\t`, and `* + ? {{m}} {{m,}} {{m,n}}`, also with `?` behind them. `\\d \\w \\s` and
`[[:alpha:]]` need the collation C. Refused are look-arounds, back references, options such as `(?i)`, and the edges of
words, each with its position.

`~` and `regexp_like` accept every such pattern. `substring(x from 'pattern')`, `regexp_replace`, `regexp_substr` and
`regexp_count` need to know which part matches. PostgreSQL takes the longest match and Spark the first one. So they
accept a pattern only if each next character decides what matches it: `a|b` and `[0-9]+(,[0-9]+)*`, but not `a|ab`. A
pattern that repeats a group without a limit reads texts of up to 1000 characters; a longer one is an error.

## JSON

A `jsonb` is in the lake as PostgreSQL prints it, and each value that you take from it keeps its own text: 1.10 stays
1.10. Keys and paths are literals.

| Operator or function | Result |
|---|---|
{documents}

A `jsonb` is not compared with another one: compare `x ->> 'key'` with a text, or write `x @> '...'`. A `json` can only
be selected and cast to text, because it keeps blanks, order and repeated keys. With `encode.json = "value"` a `jsonb`
is refused: its numbers are in Spark's form then. After you change `encode.json`, rebuild the lake: rows that were
written before keep their form.

## Clauses

{clauses}

ORDER BY without LIMIT has no effect, because a view has no order. It is checked, and an expression that can fail is
refused there. Text and numbers in ORDER BY place nulls as PostgreSQL does.

A text that PostgreSQL refuses is refused: an aggregate in `where`, a column that is not in `group by`, an ambiguous
name. These forms are refused, too. Each message says what to write instead.

| Refused | Write |
|---|---|
| `with recursive` | compute it in PostgreSQL |
| columns that depend on a primary key in `group by` | add them to `group by` |
| frames of GROUPS, and EXCLUDE | `dense_rank()` in a subquery, and RANGE over it |
| `exists` and `in` over a correlated aggregate without `group by` | `(select count(*) ...) > 0` |
| an aggregate of columns of two queries: `max(inner.x + outer.y)` | `max(inner.x) + outer.y` |
| a correlated subquery with `limit` that compares two types | cast the inner column in a subquery in FROM |
| a subquery that uses a query two levels above | join the tables in one subquery |
| `generate_series` of times with months | days, hours, minutes or seconds |
| a comparison inside a comparison without parentheses | parentheses |

Several grouping sets read their input once for each set.

## Operators and conditions

`+ - * / %` of integers and numerics, `+ - * /` of floats; `& | # ~` of integers, `<< >>` of `int` and `bigint` by a
literal; `date - date`, `date + integer`, and a date or timestamp plus or minus an interval literal of whole months and
days and any time, or an integer times one of months or days; `= <> < <= > >=`, `is distinct from`, `in`, `between`,
`like`, `~`, `is null`, `is true`; `and`, `or`, `not`; `||`; `case`, `coalesce`, `nullif`, `greatest`, `least`.

Literals of dates and times must be in ISO 8601.

## Functions

| Function | Arguments | Result |
|---|---|---|
{functions}
| `upper`, `lower`, `initcap` | `text collate "C"` | `text` |
| `trim` | `text`, with or without characters | `text` |
| `concat`, `concat_ws` | values of any known type but floats | `text` |
| `format` | a literal with `%s` and `%%`, and values | `text` |
| `encode` | `bytea`, `'hex'` | `text` |
| `substring(x from 'pattern')`, `regexp_substr` | `text`, a pattern | `text` |
| `regexp_replace` | `text`, a pattern, a literal, flags `g` and `i` | `text` |
| `regexp_count` | `text`, a pattern | `int4` |
| `regexp_like` | `text`, a pattern, flags `i` and `c` | `bool` |
| `round`, `trunc` | `numeric`, a literal number of digits | `numeric` |
| `ceil`, `floor`, `sign` | `numeric` | `numeric` |
| `mod` | integers or numerics | the wider one |
| `div` | integers | `numeric` |
| `extract` | {fields} from a timestamp; without those of a clock from a date | `numeric` |
| `extract` | {durations} from the difference of two timestamps | `numeric` |
| `to_char` | a date or timestamp, a literal of {formats}, separators and "text" | `text` |
| `date_trunc` | {units} | its argument's type; `timestamptz` for a date |
| `at time zone` | a literal zone, see [Time zones](#time-zones) | `timestamp` or `timestamptz` |

Four differences remain. Spark does not compute an operand if the other one is null, so an error of PostgreSQL in such
an operand (`null <> big::smallint`) is a null here.

A view computes the arguments of window functions in every row. PostgreSQL does not if no frame has the row:
`lag(a / b)` does not need the last one. An error in such a row leaves the view behind, although PostgreSQL answers.

Without rows of the query in `a / b in (select ...)`, PostgreSQL does not compute `a / b`, nor before ANY and ALL. A
view may compute it, and an error leaves the view behind.

PostgreSQL computes a constant such as `make_date(2024, 13, 1)` while it plans, and its error is the answer of the whole
query. A view has the error only if a row needs the value.

`chr` and `to_hex` take what PostgreSQL takes. A text of more than 100,000 characters from `repeat`, `lpad` or `rpad` is
an error.

## Casts

Text is cast to numbers in decimal digits, to dates and times in ISO 8601 with four digits of the year, to `uuid` with
its four hyphens, and to `boolean`. Text in other forms that PostgreSQL reads (`0x1F`, `1_000`, `Jan 5 2024`,
`infinity`) is an error when it is computed, and the view is left behind. Known casts:

{casts}

Besides, integers, numerics and text to `numeric(p,s)`, numerics with a fixed scale to `text`, and text to `varchar(n)`.

## Aggregates and window functions

| Aggregate | Types |
|---|---|
{aggregates}
| `array_agg`, `string_agg` | with `order by` inside, on a key |
| `percentile_disc`, `mode` | {picked}; a fraction is a literal |
| `percentile_cont` | `int2` and `int4`, with {fractions} |

`every` is `bool_and`, `variance` is `var_samp`. Refused are `stddev`, `regr_*`, `corr` and sums of floats. FILTER,
DISTINCT in an aggregate of one column, and `count(distinct (a, b))` are known. Window functions are {windows}, and
the aggregates of the table. Distances of RANGE frames are whole numbers over integers, and days over dates and times.
Rows that are equal in the ORDER BY of `row_number`, `ntile`, `lag`, `lead`, ROWS frames, `limit` or DISTINCT ON have no
defined order, in PostgreSQL either: end ORDER BY with a key.
"""


def view_sql_page(notice: str) -> str:
    """Return the page."""
    return _PAGE.format(
        notice=notice.format(source="sinks/warehouse/views/meaning/known.py"),
        clauses="\n".join(f"- {clause}" for clause in known.CLAUSES),
        functions="\n".join(_functions()),
        documents="\n".join(f"| `{name}` | {result} |" for name, result in known_json.OPERATORS.items()),
        fields=_names(known.FIELDS),
        durations=_names(known_time.DURATION_FIELDS),
        formats=_names(known_time.FORMATS_SHOWN.split()),
        elements=_names(arrays.ELEMENTS),
        picked=_names(known_aggregates.PICKED_BY_ORDER),
        units=_names(known.TRUNCATED_TO),
        casts="\n".join(_casts()),
        aggregates="\n".join(f"| `{name}` | {_names(kinds)} |" for name, kinds in known.AGGREGATES.items()),
        fractions=", ".join(str(fraction) for fraction in sorted(known.CONT_FRACTIONS)),
        windows=_names((*known.WINDOWS, *known.SHIFTED, *known.PICKED, *known.COUNTED)),
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _functions() -> Iterable[str]:
    for name, entries in known.FUNCTIONS.items():
        same = len(entries) > 1 and all(entry.arguments == (entry.result,) for entry in entries)
        found: dict[tuple[int, str], list[str]] = {}
        for entry in entries:
            result = "its argument's type" if same else f"`{entry.result}`"
            found.setdefault((len(entry.arguments), result), []).append(_names(entry.arguments))
        for (_, result), arguments in found.items():
            yield f"| `{name}` | {' or '.join(arguments)} | {result} |"


def _casts() -> Iterable[str]:
    found: dict[str, list[str]] = {}
    for have, kind in known.CASTS:
        found.setdefault(have, []).append(kind)
    return (f"- `{have}` to {_names(kinds)}" for have, kinds in found.items())
