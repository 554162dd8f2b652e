"""Locations of a lake: accepted forms, their names for deltalake and Spark, and no leaked secrets."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc.cli.lake_choice import choose_lake
from cdc.config.load import parse
from cdc.errors import ConfigError, UsageError
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.object_disk import ObjectDisk, sorted_options
from sinks.warehouse.lake.store_errors import store_unreachable
from sinks.warehouse.spark.storage_options import hadoop_options
from tests.fixtures.capture.smallest_config import SMALLEST

BASE = (
    SMALLEST
    + """
[sinks.lake]
kind = "warehouse"
"""
)


def test_folder_is_absolute_and_a_location_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Location.of("lake/")

    assert (found.root, found.folder, found.scheme) == (str(tmp_path / "lake"), tmp_path / "lake", "file")
    assert found.uri("mirror/public.t") == found.spark_uri("mirror/public.t") == f"{tmp_path}/lake/mirror/public.t"
    assert Location.of(found) is found


@pytest.mark.parametrize(
    ("url", "options", "spark"),
    [
        ("s3://b/lake/", {}, "s3a://b/lake/t"),
        ("s3a://b/lake", {}, "s3a://b/lake/t"),
        ("gs://b", {}, "gs://b/t"),
        ("abfss://c@acc.dfs.core.windows.net/lake", {}, "abfss://c@acc.dfs.core.windows.net/lake/t"),
        ("az://c/lake", {"AZURE_STORAGE_ACCOUNT_NAME": "acc"}, "abfss://c@acc.dfs.core.windows.net/lake/t"),
    ],
)
def test_address_is_that_of_deltalake_and_spark_has_its_own(url: str, options: dict[str, str], spark: str) -> None:
    found = Location.of(url, options)

    assert found.folder is None
    assert found.uri("t") == f"{url.rstrip('/')}/t"
    assert found.spark_uri("t") == spark


def test_container_without_an_account_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match="az://c/lake names no storage account"):
        Location.of("az://c/lake").spark_uri()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/lake", "unsupported scheme ftp:// for a lake"),
        ("file:///lake", "unsupported scheme file:// for a lake"),
        ("S3://b/lake", "unsupported scheme S3:// for a lake"),
        ("s3://", "the s3:// address has no bucket"),
        ("s3://key:hush@b/lake", "must consist of a bucket and a path only"),
        ("gs://b/lake?sig=hush", "must consist of a bucket and a path only"),
    ],
)
def test_address_that_is_none_is_refused_by_configuration_and_library(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as raised:
        Location.of(url)
    assert "s3://, s3a://, gs://" in str(raised.value.hint)
    with pytest.raises(ConfigError, match=f"sinks.lake.path: .*{problem}") as refused:
        parse(f'{BASE}path = "{url}"\n', {})
    assert "hush" not in str(raised.value) + str(refused.value)


def test_options_of_a_store_with_a_folder_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"sinks\.lake\.storage has options of an object store, but path is a local"):
        parse(f'{BASE}path = "lake/"\nstorage = {{ AWS_REGION = "x" }}\n', {})


def test_no_secret_is_in_what_a_location_shows() -> None:
    found = Location.of("s3://b/lake", {"AWS_SECRET_ACCESS_KEY": "hush"})

    assert found.options["AWS_SECRET_ACCESS_KEY"] == "hush"
    assert "hush" not in f"{found} {found!r} {ObjectDisk(found, '_cuts')!r}"


def test_spark_gets_the_options_that_deltalake_has() -> None:
    options = {
        "AWS_ACCESS_KEY_ID": "key",
        "aws_secret_access_key": "hush",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_REGION": "eu-central-1",
        "allow_http": "true",
    }

    assert hadoop_options(Location.of("s3://b/lake", options)) == {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "hush",
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "eu-central-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {}),
        ({"AWS_SKIP_SIGNATURE": "true"}, {"fs.s3a.aws.credentials.provider": "Anonymous"}),
        (
            {"secret_access_key": "b", "token": "c"},
            {"fs.s3a.secret.key": "b", "fs.s3a.session.token": "c", "fs.s3a.aws.credentials.provider": "Temporary"},
        ),
        (
            {"endpoint": "https://s3.example", "virtual_hosted_style_request": "true"},
            {
                "fs.s3a.endpoint": "https://s3.example",
                "fs.s3a.path.style.access": "false",
                "fs.s3a.connection.ssl.enabled": "true",
            },
        ),
    ],
)
def test_hadoop_options_name_the_provider_of_the_credentials(options: dict[str, str], found: dict[str, str]) -> None:
    names = {
        key: f"org.apache.hadoop.fs.s3a.{value}AWSCredentialsProvider" if key.endswith("provider") else value
        for key, value in found.items()
    }

    assert hadoop_options(Location.of("s3://b/lake", options)) == names
    assert hadoop_options(Location.of("gs://b/lake", options)) == {}


def test_options_are_sorted_as_obstore_takes_them() -> None:
    config, client, retry = sorted_options(
        {
            "AWS_REGION": "x",
            "AWS_ALLOW_HTTP": "true",
            "timeout": "5s",
            "max_retries": "3",
            "retry_timeout": "500ms",
            "backoff_config.init_backoff": "2m",
            "backoff_config.base": "3",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        }
    )

    assert config == {"aws_region": "x"}
    assert client == {"allow_http": "true", "timeout": "5s"}
    assert retry == {
        "max_retries": 3,
        "retry_timeout": timedelta(seconds=0.5),
        "backoff": {"init_backoff": timedelta(minutes=2), "base": 3.0},
    }


@pytest.mark.parametrize("options", [{"AWS_REGIO": "hush"}, {"max_retries": "hush"}, {"timeout": "hush"}])
def test_option_that_is_none_is_refused_without_its_value(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="the storage options of s3://b/lake/_cuts") as raised:
        ObjectDisk(Location.of("s3://b/lake", options), "_cuts").names()

    assert next(iter(options)) in str(raised.value.hint)
    assert "hush" not in f"{raised.value} {raised.value.hint}"


def test_answer_of_a_store_is_not_repeated_but_for_its_code() -> None:
    answer = (
        "Generic S3 error: Error performing GET https://b.example/lake?X-Amz-Signature=hush in 5ms - 403 Forbidden: "
        '<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><StringToSign>hush</StringToSign></Error>'
    )

    assert (
        store_unreachable("s3://b", OSError(answer)).message
        == "the object store denied access to s3://b: SignatureDoesNotMatch"
    )
    other = store_unreachable("s3://b", OSError(answer.replace("403 Forbidden", "500 Oops"))).message
    assert other.endswith(
        "cannot be used: Generic S3 error: Error performing GET https://b.example/lake in 5ms - 500 Oops:"
    )


def test_lake_of_a_command_has_the_options_of_the_sink_at_that_address(tmp_path: Path) -> None:
    config = tmp_path / "cdc.toml"
    config.write_text(f'{BASE}path = "s3://b/lake"\nstorage = {{ AWS_REGION = "x" }}\n')

    assert choose_lake(config, "s3://b/lake/").location.options["AWS_REGION"] == "x"
    assert "AWS_REGION" not in choose_lake(config, "s3://b/other").location.options
    assert "AWS_REGION" not in choose_lake(tmp_path / "none.toml", "s3://b/lake").location.options
    assert choose_lake(config, None).location == Location.of("s3://b/lake", {"AWS_REGION": "x"})
    assert choose_lake(tmp_path / "none.toml", "lake").location.folder == Path("lake").absolute()
