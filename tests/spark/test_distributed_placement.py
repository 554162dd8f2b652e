"""Which task gets which change on a cluster: tables are exact, however their files lie and whatever tasks leave."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sinks.warehouse.delta.table_files import SMALL_BYTES
from sinks.warehouse.distributed import executor_jobs, placement, row_files, spark_delta
from tests.fixtures.lake.framed import Framed, spread
from tests.fixtures.lake.lake_tables import H, T, batch, closing, content, history, kv, txn, versions_rows
from tests.fixtures.servers.seed import seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def spread_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)


def joins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the table of each join with stored keys."""
    heard: list[str] = []
    real = row_files.located

    def located(*arguments: Any, **options: Any) -> Any:
        heard.append(arguments[2])
        return real(*arguments, **options)

    monkeypatch.setattr(placement, "located", located)
    return heard


def small_files(monkeypatch: pytest.MonkeyPatch, small_bytes: int) -> None:
    """Have files of a few rows; those of `small_bytes` take new rows though none of their own changed."""
    real: Callable[..., Any] = spark_delta.SparkDelta._files

    def files(*arguments: Any) -> Any:
        return replace(real(*arguments), small_bytes=small_bytes, file_rows=5)

    monkeypatch.setattr(spark_delta.SparkDelta, "_files", files)


def test_files_that_do_not_overlap_are_chosen_by_the_log_alone(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, joined = Framed(quick, str(tmp_path)), joins(monkeypatch)
    one = lake.append(T, kv({2: "a", 4: "b", 6: "c"}), base=None, txn=txn(1))
    two = lake.append(T, kv({10: "d", 12: "e"}), base=one, txn=txn(2))
    changes = {1: "x", 2: "f", 4: "y", 5: "z", 6: None, 7: None, 8: "n", 10: "g", 12: "h", 99: "m"}
    three = lake.merge(T, batch(changes), ["k"], base=two, txn=txn(3))

    left = {key: value for key, value in changes.items() if value is not None}
    assert content(lake, three) == left
    assert joined == []


def test_files_that_overlap_are_searched_for_the_keys(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, joined = Framed(quick, str(tmp_path)), joins(monkeypatch)
    one = lake.append(T, kv({2: "a", 6: "c"}), base=None, txn=txn(1))
    two = lake.append(T, kv({4: "d", 12: "e"}), base=one, txn=txn(2))
    three = lake.merge(T, batch({4: "y", 5: "z", 6: None, 7: None}), ["k"], base=two, txn=txn(3))

    assert content(lake, three) == {2: "a", 4: "y", 5: "z", 12: "e"}
    assert joined == [T]


def test_more_changes_of_a_file_than_a_task_should_hold_are_searched_first(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "CHANGES_MAX", 2)
    lake, joined = Framed(quick, str(tmp_path)), joins(monkeypatch)
    one = lake.append(T, kv({2: "a", 6: "c"}), base=None, txn=txn(1))
    two = lake.merge(T, batch({3: "x", 4: "y", 90: "new", 91: "new", 92: "new"}), ["k"], base=one, txn=txn(2))
    assert joined == [], "new keys after the end do not count"
    three = lake.merge(T, batch({3: "x2", 5: "z", 6: None}), ["k"], base=two, txn=txn(3))

    assert joined == [T]
    assert content(lake, three) == {2: "a", 3: "x2", 4: "y", 5: "z", 90: "new", 91: "new", 92: "new"}


def test_rows_that_are_too_large_for_one_task_go_to_a_task_per_file(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = executor_jobs.in_one_task

    def in_one_task(rows: Any, files: Any, task: Any) -> Any:
        found = real(rows, files, task)
        asked.append("written" if found is not None else "refused")
        return found

    monkeypatch.setattr(spark_delta, "ONE_TASK_CHANGES", 3)
    monkeypatch.setattr(spark_delta, "in_one_task", in_one_task)
    monkeypatch.setattr(executor_jobs, "HELD_BYTES_MAX", 1)
    lake = Framed(quick, str(tmp_path))
    one = lake.merge(T, batch({1: "a", 2: "b"}), ["k"], base=None, txn=txn(1))
    two = lake.merge(T, batch({1: None, 2: "c", 3: "d"}), ["k"], base=one, txn=txn(2))
    three = lake.replace_keys(T, kv({3: ""}).select(["k"]), kv({3: "e"}), base=two, txn=txn(3))
    first = lake.close_and_append(H, closing(1, 1), versions_rows((1, "a", 1, None)), ["k"], base=None, txn=txn(1))
    last = lake.close_and_append(H, closing(2, 1), versions_rows((1, "b", 2, None)), ["k"], base=first, txn=txn(2))

    assert content(lake, three) == {2: "c", 3: "e"}
    assert history(lake, last) == [(1, "a", 1, 2), (1, "b", 2, None)]
    assert asked == ["refused"] * 5


@pytest.mark.parametrize("small_bytes", [0, SMALL_BYTES])
def test_any_cuts_leave_the_rows_of_a_dict_and_the_versions_of_a_list(
    quick: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    small_files(monkeypatch, small_bytes)
    lake, chance = Framed(quick, str(tmp_path)), random.Random(seed())
    rows: dict[int, str] = {}
    since: dict[int, int] = {}
    ended: list[tuple[int, str, int, int | None]] = []
    mirror = versions = None
    for cut in range(1, 7):
        first = chance.randrange(40)
        keys = chance.sample(range(first, first + 30), chance.randrange(1, 12))
        changes = {key: chance.choice([None, f"v{cut}", f"w{cut}"]) for key in keys}
        new = [(key, value, cut, None) for key, value in changes.items() if value is not None]
        mirror = lake.merge(T, batch(changes), ["k"], base=mirror, txn=txn(cut))
        versions = lake.close_and_append(
            H, closing(cut, *keys), versions_rows(*new), ["k"], base=versions, txn=txn(cut, "history")
        )

        ended += [(key, rows[key], since[key], cut) for key in keys if key in rows]
        rows = {key: value for key, value in {**rows, **changes}.items() if value is not None}
        since |= dict.fromkeys(keys, cut)
        assert content(lake, mirror) == rows
        assert history(lake, versions) == sorted(
            [*ended, *((key, rows[key], since[key], None) for key in rows)], key=_order
        )


def _order(row: tuple[int, str, int, int | None]) -> tuple[int, str, int]:
    return row[:3]
