"""Golden records of each release: the current readers read old ones, and the previous release reads current ones.

tests/golden/<release>/written.jsonl holds the samples of `tests.golden.records` as that release writes them;
captured.jsonl holds what it wrote on real servers, and what it read from that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.errors import LakeDamaged, ProgressDamaged, SinkUnfit
from cdc.model import progress_record, sink_report
from cdc.progress import record_format
from tests.fixtures.servers.releases import PREVIOUS, run_python
from tests.golden import records
from tests.tidy.tree import ROOT
from tests.unit.cdc.test_format_versions import CURRENT

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN: Final = ROOT / "tests" / "golden"
SCRIPT: Final = (GOLDEN / "records.py").read_text()
IGNORED: Final = frozenset({"report", "report-0.2.0", "stop", "action", "retry"})
"""Records that a reader may ignore in a newer version, as the table of formats says."""
ADDED: Final = {"stop": None, "action": None, "report-0.2.0": {"at_ms": records.NOW_MS, "state": "RUNNING"}}
"""What the previous release reads from records that it does not know, or that have fields that it does not know."""


def text(release: str, name: str = "written") -> str:
    return (GOLDEN / release / f"{name}.jsonl").read_text(encoding="utf-8")


def now_read(lines: str) -> dict[tuple[str, str], Any]:
    return answers(run_python(ROOT, SCRIPT, "read", data=lines))


def then_read(code: Path, lines: str) -> dict[tuple[str, str], Any]:
    return answers(run_python(code, SCRIPT, "read", data=lines))


def answers(lines: str) -> dict[tuple[str, str], Any]:
    found = [json.loads(line) for line in lines.splitlines()]
    assert not [one for one in found if "error" in one]
    return {(one["name"], one["key"]): one["read"] for one in found}


def test_bytes_of_every_writer_are_those_of_this_release() -> None:
    """A changed form needs a new version, unless the previous release may ignore the change.

    If it may, ``python tests/golden/records.py write > tests/golden/0.2.0/written.jsonl`` keeps the new bytes.
    """
    lines = [records._line(*sample) for sample in records.written()]

    assert lines == [json.loads(line) for line in text(CURRENT).splitlines()]


def test_golden_bytes_of_the_previous_release_are_what_its_wheel_writes(previous_release: Path) -> None:
    wrote = run_python(previous_release, SCRIPT, "write")

    assert wrote == text(PREVIOUS)


def test_records_of_the_previous_release_are_read_as_it_reads_them(previous_release: Path) -> None:
    lines = text(PREVIOUS)
    found = now_read(lines)

    assert len(found) > len(records.PROGRESS)
    assert found == then_read(previous_release, lines)


def test_records_captured_from_the_previous_release_on_servers_are_read_as_it_read_them() -> None:
    lines = text(PREVIOUS, "captured")
    captured = {(one["name"], one["key"]): one["read"] for one in map(json.loads, lines.splitlines())}
    found = now_read(lines)

    assert {"progress", "identity", "cut", "schema", "manifest", "pending"} <= {name for name, _ in captured}
    assert {key: value for key, value in found.items() if key[0] != "__progress"} == captured


def test_previous_release_reads_the_records_of_this_one_after_a_rollback(previous_release: Path) -> None:
    old, new = then_read(previous_release, text(PREVIOUS)), then_read(previous_release, text(CURRENT))

    assert {key: value for key, value in new.items() if key[0] not in ADDED} == old
    assert {key[0]: value for key, value in new.items() if key[0] in ADDED} == ADDED


@pytest.mark.parametrize("name", sorted({*(name for name, *_ in records.written())} - {"signal", "dead-letter"}))
def test_reader_that_meets_a_newer_version_stops_by_name_or_ignores_it_as_documented(name: str) -> None:
    (line,) = (one for one in map(json.loads, text(CURRENT).splitlines()) if one["name"] == name)
    newer = {**json.loads(line["value"]), "version": 2, "form": "unknown"}

    def read() -> Any:
        return records.read(name, line["key"].encode(), json.dumps(newer, separators=(",", ":")).encode(), [])

    if name in IGNORED:
        answer = read()
        assert answer is None or answer[1] is None
        return
    with pytest.raises((ProgressDamaged, SinkUnfit, LakeDamaged), match="version 2") as stop:
        read()
    assert "newer release" in stop.value.hint


def test_record_with_a_changed_field_is_not_taken_for_this_version() -> None:
    """The table is not enough: a field that changed its type under the same version must not be read silently."""
    value = record_format.encode(records.CUT).replace(b'"end_lsn":28708224', b'"end_lsn":"0/1B60D80"')

    with pytest.raises(ProgressDamaged, match="not readable"):
        record_format.decode(value, progress_record.Cut, "shop.__cuts")
    assert sink_report.decode(b'{"at_ms":"now","state":"RUNNING"}') is None
