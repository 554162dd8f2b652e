"""Compares random queries on PostgreSQL and as views.

``make sql-fuzz`` runs it. The environment sets the size: `TAILRACE_SQL_FUZZ_EXPRESSIONS`, `TAILRACE_SQL_FUZZ_QUERIES`,
`TAILRACE_SQL_FUZZ_SEED` and `TAILRACE_SQL_FUZZ_SECONDS`. Ctrl-C or SIGTERM ends it with its report. The exit code is 1
if a query differs.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from contextlib import suppress

from tests.sqlfuzz.fuzz import Fuzz, refused_rules
from tests.sqlfuzz.report import report
from tests.sqlfuzz.servers import sides
from tests.sqlfuzz.unsolved import UNSOLVED


def main() -> int:
    """Return the exit code."""
    expressions = int(os.environ.get("TAILRACE_SQL_FUZZ_EXPRESSIONS", "100000"))
    queries = int(os.environ.get("TAILRACE_SQL_FUZZ_QUERIES", "5000"))
    seed = int(os.environ.get("TAILRACE_SQL_FUZZ_SEED", "0")) or secrets.randbits(32)
    seconds = float(os.environ.get("TAILRACE_SQL_FUZZ_SECONDS", "inf"))
    classes = int(os.environ.get("TAILRACE_SQL_FUZZ_CLASSES", "20"))
    everything = os.environ.get("TAILRACE_SQL_FUZZ_UNSOLVED", "") == "1"
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with sides() as (postgres, views):
        left_out = {} if everything else UNSOLVED
        refused = refused_rules(views)
        fuzz = Fuzz(postgres, views, seed=seed, left_out=left_out, refused=refused, classes_max=classes)
        start = time.monotonic()
        with suppress(KeyboardInterrupt):  # what was compared until then is reported
            fuzz.run(expressions=expressions, queries=queries, seconds=seconds)
        print(f"{time.monotonic() - start:.0f} s, {report(fuzz, seed)}", flush=True)
    return 1 if fuzz.differences.cases else 0


if __name__ == "__main__":
    sys.exit(main())
