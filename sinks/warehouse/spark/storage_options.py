"""Configures how Spark reaches an object store: the connector, and Hadoop's names for deltalake's options.

Options are passed with each read, not in the session. So they also work in a foreign session, and neither a file nor a
command line contains them. If two reads of one bucket have different options, Hadoop keeps the first it saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cdc.errors import SinkUnfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from sinks.warehouse.lake.location import Location

_PROVIDERS: Final = "org.apache.hadoop.fs.s3a"
_KEYS: Final = {
    "access_key_id": "fs.s3a.access.key",
    "secret_access_key": "fs.s3a.secret.key",
    "session_token": "fs.s3a.session.token",
    "token": "fs.s3a.session.token",
    "endpoint": "fs.s3a.endpoint",
    "endpoint_url": "fs.s3a.endpoint",
    "region": "fs.s3a.endpoint.region",
    "default_region": "fs.s3a.endpoint.region",
}
# The module of Hadoop with the class of a scheme; its version must be that of Hadoop.
_CONNECTORS: Final = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "gs": "hadoop-gcp"}


def hadoop_options(location: Location) -> dict[str, str]:
    """Return the options of an S3 store for Hadoop's connector; empty for other stores. Holds secrets. Pure."""
    if location.scheme != "s3a":
        return {}
    given = {key.lower().removeprefix("aws_"): value for key, value in location.options.items()}
    found = {_KEYS[key]: value for key, value in given.items() if key in _KEYS}
    provider = _provider(given, found)
    if provider:
        found["fs.s3a.aws.credentials.provider"] = f"{_PROVIDERS}.{provider}"
    endpoint = found.get("fs.s3a.endpoint")
    if endpoint is not None:
        # A private server has no domain per bucket. deltalake also uses the path by default.
        found["fs.s3a.path.style.access"] = "false" if _is_true(given, "virtual_hosted_style_request") else "true"
        found["fs.s3a.connection.ssl.enabled"] = "false" if endpoint.lower().startswith("http://") else "true"
    return found


def read_options(spark: SparkSession, location: Location) -> dict[str, str]:
    """Return the options for a read of the lake. Settings of the session take precedence."""
    options = hadoop_options(location)
    return {key: value for key, value in options.items() if spark.conf.get(f"spark.hadoop.{key}", None) is None}


def check_connector(spark: SparkSession, location: Location) -> None:
    """Raises SinkUnfit with the missing jar if Spark cannot read from the lake's location."""
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession as Classic

    # A server of Spark Connect has its own jars, which cannot be checked from here.
    if location.folder is not None or not isinstance(spark, Classic):
        return
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop  # noqa: SLF001  pyspark has no other word for it
    try:
        hadoop.fs.FileSystem.getFileSystemClass(location.scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001
    except Py4JJavaError as error:
        artifact = _CONNECTORS[location.scheme]
        wanted = f"org.apache.hadoop:{artifact}:{hadoop.util.VersionInfo.getVersion()}"
        raise SinkUnfit(
            f"Spark has no connector for {location.scheme}://, the location of the lake",
            hint=f'set "spark.jars.packages" = "{wanted}" in the sink\'s `spark`, or "spark.jars" to its jars',
            command=f"spark-submit --packages {wanted} ...",
            connector=wanted,
        ) from error


def _provider(given: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return the provider of credentials; empty for Hadoop's own order, which begins with the environment."""
    if _is_true(given, "skip_signature"):
        return "AnonymousAWSCredentialsProvider"
    if "fs.s3a.session.token" in found:
        return "TemporaryAWSCredentialsProvider"
    return "SimpleAWSCredentialsProvider" if "fs.s3a.secret.key" in found else ""


def _is_true(given: Mapping[str, str], key: str) -> bool:
    return given.get(key, "").lower() in {"1", "true", "on", "yes", "y"}
