"""The output of the demo: events in words, a picture that fits its terminal, and a result that names what is wrong."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console, RenderableType

from cdc.demo.bank import TOTALS
from cdc.demo.live_facts import Facts
from cdc.demo.picture import Scene, picture, plain_picture, size
from cdc.demo.proof import ending, findings, is_exact, sums, tables
from cdc.demo.screen import Screen
from cdc.demo.shop_events import Line, line_of
from cdc.lsn import Lsn
from cdc.model.change_records import Headers
from cdc.model.log_record import LogRecord
from cdc.verify.verify_report import Differences, LogFaults, TableReport, VerifyReport

FACTS = Facts(
    state="RUNNING",
    rows_per_second=12345.6,
    bytes_per_second=6.5e6,
    lag_bytes=4096,
    lag_seconds=0.25,
    commit_ms=7.4,
    records={f"demo.public.table_{number}": 10**number for number in range(8)},
    curve=(0.0, 10.0, 20.0),
)
NOTES = ((15.0, "kill -9"), (16.0, "starts again"), (18.0, "has caught up"))


def record(op: str, before: Any, after: Any, headers: Headers | None = None) -> LogRecord:
    value = json.dumps({"before": before, "after": after, "source": {}, "op": op}).encode()
    return LogRecord("demo.shop.orders", 0, 0, 0, b'{"number":7}', value, headers)


def shown(what: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(what)
    return out.getvalue()


def test_an_update_shows_what_changed_when_the_old_row_is_known() -> None:
    line = line_of(record("u", {"number": 7, "stock": 3, "name": "Loom"}, {"number": 7, "stock": 2, "name": "Loom"}))

    assert line == Line("shop.orders", "update", "number=7", "stock: 3 → 2")


def test_other_events_show_their_row() -> None:
    assert line_of(record("c", None, {"number": 7, "note": None, "tags": ["é"]})).text == 'note=null tags=["é"]'
    assert line_of(record("d", {"number": 7}, None)) == Line("shop.orders", "delete", "number=7", "")


def test_a_changed_key_is_shown_on_both_sides() -> None:
    gone = line_of(record("d", {"number": 7}, None, [("__debezium.newkey", b'{"number":8}')]))
    come = line_of(record("c", None, {"number": 7}, [("__debezium.oldkey", b'{"number":6}')]))

    assert gone.text == "key changed: is now number=8"
    assert come.text == "key changed: was number=6"


def test_long_values_and_line_ends_keep_an_event_on_one_line() -> None:
    text = line_of(record("c", None, {"note": "a\nb " + "x" * 5000})).text

    assert text.startswith("note=a b xxx")
    assert len(text) < 40


@pytest.mark.parametrize("height", [24, 40])
@pytest.mark.parametrize("notes", [(), NOTES])
def test_the_picture_fits_a_terminal_and_keeps_its_notes(height: int, notes: tuple[tuple[float, str], ...]) -> None:
    lines = tuple(Line("shop.orders", "update", f"number={number}", "x" * 200) for number in range(12))
    scene = Scene("Bank and shop", FACTS, done=0.5, bank_rate=1400, shop_rate=200, lines=lines, notes=notes)

    found = shown(picture(scene, height))

    assert len(found.splitlines()) < height
    assert all(text in found for _, text in notes)
    assert "1,600 commits/s" in found
    assert "12,346 rows/s" in found
    assert "demo.public.table_7" in found


def test_the_picture_can_be_drawn_before_anything_is_known() -> None:
    assert "down" in shown(picture(Scene("Starting", Facts()), 24))
    assert "down" in plain_picture(Scene("Starting", Facts()))


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB")])
def test_sizes_are_readable(count: float, text: str) -> None:
    assert size(count) == text


def test_steps_hang_under_their_text_on_a_narrow_terminal() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, force_terminal=False, markup=False))

    screen.step("Proof", "a line that is much longer than the terminal is wide", 1.25)

    first, *rest = out.getvalue().splitlines()
    assert first.startswith("  ✓ Proof")
    assert rest
    assert all(line.startswith(" " * 14) for line in rest)


def table(name: str, *, bank: int = 5, **fields: Any) -> TableReport:
    total = TOTALS.get(name)
    totals = {total: (5, bank)} if total else {}
    return TableReport(table=name, topic=f"demo.{name}", keyed=True, totals=totals, **fields)


def report(*more: TableReport, bank: int = 5) -> VerifyReport:
    found = (*(table(name, bank=bank) for name in TOTALS), *more)
    return VerifyReport(end_lsn=Lsn(1), cut_count=3, partition_count=8, tables=found)


def test_an_exact_report_says_so() -> None:
    clean = report()

    assert is_exact(clean)
    assert "Exactly once" in shown(ending(clean, None, 80.0))
    assert "Exactly once" in shown(ending(clean, [], 80.0))
    assert not findings(clean)


def test_a_result_names_table_and_key_of_what_differs() -> None:
    differing = table("shop.orders", differences=Differences(different=1, examples={"different": ['{"number":7}']}))
    faulty = table("shop.lines", faults=LogFaults(repeated=2))
    bad = report(differing, faulty)

    said = shown(ending(bad, None, 80.0))

    assert not is_exact(bad)
    assert 'shop.orders: different {"number":7}' in said
    assert "shop.lines: 2 events are in Kafka twice" in said
    assert "✗" in shown(tables(bad))


def test_sums_that_differ_are_a_result_of_their_own() -> None:
    bad = report(bank=6)

    assert not is_exact(bad)
    assert "sums of the bank differ" in shown(ending(bad, None, 80.0))
    assert "✗" in shown(sums(bad))


def test_a_topic_that_cannot_be_counted_is_not_exact() -> None:
    assert not is_exact(report(table("shop.orders", countable="unknown")))


def test_a_failed_check_of_a_sink_is_named() -> None:
    said = shown(ending(report(), ["cdc verify lake"], 80.0))

    assert "Exactly once" not in said
    assert "cdc verify lake failed" in said


def test_the_tables_fit_80_columns() -> None:
    wide = table(
        "public.pgbench_branches", record_count=1_234_567, live_count=1_000_000, differences=Differences(1_000_000)
    )

    assert all(len(line.rstrip()) <= 78 for line in shown(tables(report(wide)), 200).splitlines())
