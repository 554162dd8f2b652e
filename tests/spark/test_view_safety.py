"""A user's SQL on a real Spark session only reads temporary views of the lake.

These tests bypass sqlglot's checks on purpose: each of the two checks must be enough alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from cdc.errors import UsageError, ViewRefused
from sinks.warehouse.read.data_frames import read_sql
from sinks.warehouse.spark.sql_guard import RUN_ON_FILES, guarded
from tests.fixtures.lake.small_lakes import SmallLake
from tests.fixtures.views.file_attacks import CALLS, HIDDEN, PLACES, READS, STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SECRET = "hush-hush"


@pytest.fixture
def attacked(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[SparkSession, dict[str, str]]]:
    """A session with a temporary view `t`, and a file with a secret beside a folder that must not appear."""
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "secret.txt").chmod(0o644)
    spark.sql("select 1 as id, 'a' as name, 2 as at").createOrReplaceTempView("t")
    yield spark, {"file": str(tmp_path / "secret.txt"), "folder": str(tmp_path / "stolen")}
    spark.catalog.dropTempView("t")
    assert not (tmp_path / "stolen").exists(), "something was written"
    assert [table.name for table in spark.catalog.listTables()] == []


def answer(spark: SparkSession, sql: str) -> str:
    """Return the result of a query, or its error."""
    try:
        return str(guarded(spark, sql).collect())
    except (ViewRefused, PySparkException) as error:
        return type(error).__name__


def test_spark_reads_no_file_whatever_the_query_says(attacked: tuple[SparkSession, dict[str, str]]) -> None:
    spark, files = attacked
    assert SECRET in str(spark.read.text(files["file"]).collect()), "the file can be read, only not by SQL"

    texts = [place.replace("{read}", read).format(**files) for place in PLACES for read in READS[:6]]
    texts += [text.replace("{read}", read).format(**files) for text in HIDDEN for read in READS[:6]]
    answers = {text: answer(spark, text) for text in texts}

    assert {text: found for text, found in answers.items() if SECRET in found} == {}
    plain = answers[PLACES[0].replace("{read}", READS[0]).format(**files)]
    assert plain in {"ViewRefused", "AnalysisException"}


def test_what_spark_reads_is_checked_also_where_files_may_be_read(
    attacked: tuple[SparkSession, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan alone must be enough, for sources of a foreign session."""
    spark, files = attacked
    monkeypatch.setattr(
        "sinks.warehouse.spark.sql_guard.RUN_ON_FILES", "tailrace.other"
    )  # the guard leaves Spark's alone
    spark.conf.set("tailrace.other", "false")
    spark.conf.set(RUN_ON_FILES, "true")
    try:
        for place in PLACES[:8]:
            with pytest.raises(ViewRefused, match="LogicalRelation"):
                guarded(spark, place.replace("{read}", READS[0]).format(**files))
    finally:
        spark.conf.set(RUN_ON_FILES, "false")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_command_is_refused_before_spark_runs_it(attacked: tuple[SparkSession, dict[str, str]], statement: str) -> None:
    spark, files = attacked

    if statement == "table t":
        assert answer(spark, statement) == "[Row(id=1, name='a', at=2)]", "to Spark it is a query over t"
    else:
        assert answer(spark, statement.format(**files)) in {"ViewRefused", "ParseException", "AnalysisException"}
    assert spark.conf.get(RUN_ON_FILES) == "false"


@pytest.mark.parametrize("call", CALLS)
def test_call_that_is_more_than_sql_is_refused(attacked: tuple[SparkSession, dict[str, str]], call: str) -> None:
    spark, files = attacked

    for text in (
        f"select {call} as x from t",
        f"with a as (select {call} as x from t) select x from a",
        f"select id from t where exists (select {call} from t)",
    ):
        with pytest.raises(ViewRefused, match=r"function|option"):
            guarded(spark, text.format(**files))


def test_registered_function_is_refused(attacked: tuple[SparkSession, dict[str, str]]) -> None:
    spark, _ = attacked
    spark.udf.register("leak", lambda: SECRET)

    with pytest.raises(ViewRefused, match="PythonUDF"):
        guarded(spark, "select leak() as x from t")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from range(3)",
        "with a as (select id, count(*) as n from t group by id having count(*) > 0) select * from a join t using (id)",
        "select name, sum(id) over (partition by name order by at) as s from t order by 1 limit 3",
        "select id from t union select at from t except select 7",
        "select transform(array(id), x -> x + 1) as more, from_csv(name, 'a string').a as a from t",
        "select id, e from t lateral view outer explode(array(1, 2)) x as e",
        "select * from t pivot (max(at) for name in ('a', 'b'))",
        "select id from t where exists (select 1 from t as u where u.id = t.id) and id in (select id from t)",
        "select /*+ broadcast(t) */ id from t distribute by id",
        "select * from values (1, 2) as v(a, b)",
        "from t |> where id = 1 |> select name",
        "select percentile_cont(0.5) within group (order by id) as p, max_by(name, at) as m from t",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select * from r",
    ],
)
def test_ordinary_queries_run(attacked: tuple[SparkSession, dict[str, str]], sql: str) -> None:
    guarded(attacked[0], sql).collect()


def test_read_sql_reads_nothing_but_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(SECRET, encoding="utf-8")
    lake = SmallLake(tmp_path / "lake")
    lake.publish()

    for read in READS:
        with pytest.raises((ViewRefused, UsageError)):
            read_sql(spark, lake.path, f"select * from {read}".format(file=tmp_path / "secret.txt", folder="x"))
