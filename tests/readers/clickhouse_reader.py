"""ClickHouse as a reader: ``clickhouse_reader.py FILE``, records as JSON lines; the rows it ends with, as JSON lines.

Run by the Python of the readers' environment; knows nothing of ours.
"""

from __future__ import annotations

import sys
from typing import Final

import chdb

_NEWEST: Final = """
with records as (
    select key, JSONExtractRaw(payload, 'after') as after, JSONExtractString(payload, 'op') as op,
           (JSONExtractUInt(payload, 'source', 'epoch'), JSONExtractUInt(payload, 'source', 'commit_lsn'),
            JSONExtractUInt(payload, 'source', 'ordinal')) as position
    from file('{file}', 'JSONEachRow', 'partition Int32, offset Int64, key String, payload Nullable(String)')
    where payload is not null
), newest as (
    select argMax(after, position) as after, argMax(op, position) as op from records group by key
), typed as (
    select JSONExtract(assumeNotNull(after), '
        Tuple(id Int64, name Nullable(String), total Nullable(String), ratio Nullable(Float64), kind Nullable(Int16),
              ok Nullable(Bool), born Nullable(Date32), seen Nullable(String), sent Nullable(String),
              place Nullable(UUID), extra Nullable(String), raw Nullable(String), parts Array(Nullable(Int32)))') as r,
           JSONExtractRaw(assumeNotNull(after), 'parts') = 'null' as no_parts
    from newest where op <> 'd'
)
select toString(r.id), r.name, toDecimal64OrNull(r.total, 2), toString(r.ratio), toString(r.kind),
       toString(r.ok), toString(r.born),
       toString(parseDateTime64BestEffortOrNull(r.seen, 6, 'UTC')),
       toString(parseDateTime64BestEffortOrNull(r.sent, 6, 'UTC')),
       toString(r.place), r.extra, r.raw, if(no_parts, null, replace(toString(r.parts), 'NULL', 'null'))
from typed
format JSONCompactEachRow
settings output_format_decimal_trailing_zeros = 1, output_format_json_quote_decimals = 1
"""


def main() -> int:
    sys.stdout.write(str(chdb.query(_NEWEST.replace("{file}", sys.argv[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
