"""`cdc views chart`: a picture of a view's columns, and errors about what cannot be drawn."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc.cli.main import run
from cdc.cli.view_chart_command import picture_of
from cdc.errors import EXIT_OK, EXIT_USAGE, UsageError
from tests.fixtures.lake.small_lakes import SmallLake

Call = Callable[..., tuple[int, str]]
_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    lake = SmallLake(tmp_path / "lake")
    days = {
        "day": pa.array([date(2026, 11, 22), date(2026, 11, 21), None], pa.date32()),
        "revenue": pa.array([Decimal("20.50"), None, Decimal("1.00")], pa.decimal128(10, 2)),
        "orders": pa.array([2, 1, 9], pa.int64()),
        "note": ["a", "b", "c"],
    }
    lake.view("daily", pa.table(days))
    lake.publish()

    def call(*arguments: str) -> tuple[int, str]:
        code = run(["views", "chart", "daily", "--lake", str(tmp_path / "lake"), *arguments])
        return code, capsys.readouterr().err

    return call


def test_a_chart_is_a_picture_of_the_view_at_its_cut(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "daily.png"

    code, said = call("--x", "Day", "--y", "revenue", "--y", "orders", "-o", str(file))

    assert code == EXIT_OK
    assert "2 points of daily (cut 1, 0/100)" in said
    head = file.read_bytes()[:24]
    assert head.startswith(_PNG)
    assert struct.unpack(">II", head[16:]) == (1080, 540)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--x", "day", "--y", "note", "-o", "a.png"), "column note is not numeric"),
        (("--x", "month", "--y", "orders", "-o", "a.png"), "unknown column month"),
        (("--x", "day", "--y", "orders", "-o", "a.txt"), "unsupported picture format: a.txt"),
        (("--x", "day", "--y", "orders", "--where", "orders > 99", "-o", "a.png"), "no rows to draw"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)

    code, said = call(*arguments)

    assert (code, message in said) == (EXIT_USAGE, True)
    assert not list(tmp_path.glob("a.*"))


def rows(x: list[Any]) -> list[dict[str, Any]]:
    return [{"x": value, "y": number} for number, value in enumerate(x)]


def test_points_are_in_the_order_of_x_and_names_make_bars() -> None:
    times = picture_of(rows([datetime(2026, 1, 2), datetime(2026, 1, 1)]), "t", "x", ["y"])  # noqa: DTZ001 - no zone
    names = picture_of(rows(["b", "$a\n"]), "t", "x", ["y"])

    assert times.lines == {"y": [1.0, 0.0]}
    assert names.x == ["\\$a\\n", "b"]
    with pytest.raises(UsageError, match="61 values of column x do not fit"):
        picture_of(rows([f"n{number}" for number in range(61)]), "t", "x", ["y"])
