"""Spark's exceptions become Tailrace's errors by their class, without values of rows."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from cdc.errors import LakeUnready, SinkError, SinkGap, SparkFailed
from sinks.warehouse.spark.spark_errors import translating_spark_errors


def raised(error: Exception) -> SinkError:
    with pytest.raises(SinkError) as caught, translating_spark_errors("apply a cut"):
        raise error
    return caught.value


def test_values_in_a_text_of_the_jvm_are_not_said() -> None:
    text = "job failed\nCaused by: org.x.CastException: 's3cret'\n\tat x\nCaused by: java.io.IOException: s3cret too"

    error = raised(PySparkException(text))

    assert isinstance(error, LakeUnready)
    assert "s3cret" not in error.message
    assert "java.io.IOException" in error.message


def test_records_that_are_gone_are_a_gap() -> None:
    error = raised(PySparkException("Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: x"))

    assert isinstance(error, SinkGap)


@pytest.mark.parametrize(
    ("cause", "counts"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", True),
        ("org.apache.spark.SparkException: Job aborted: results are larger than spark.driver.maxResultSize", True),
        ("org.apache.kafka.common.errors.TimeoutException: expired", False),
        ("java.net.ConnectException: refused", False),
        ("software.amazon.awssdk.services.s3.model.S3Exception: Slow Down (Status Code: 503)", False),
    ],
)
def test_a_failure_of_spark_counts_and_one_of_another_server_does_not(cause: str, counts: bool) -> None:
    error = raised(PySparkException(f"job failed\nCaused by: {cause}"))

    assert isinstance(error, SparkFailed)
    assert error.counts is counts


def test_a_jvm_that_is_gone_is_tried_again() -> None:
    assert "JVM is gone" in raised(Py4JNetworkError("no answer")).message
    assert "JVM is gone" in raised(ConnectionRefusedError()).message
