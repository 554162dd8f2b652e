"""Translates `[kafka.options]`, which are librdkafka's, into options of the Java client inside Spark. Pure.

Most names are the same, but credentials and certificates are not. librdkafka takes a user name, a password and paths of
PEM files; the Java client takes a JAAS line and PEM stores.
https://kafka.apache.org/documentation/#consumerconfigs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc.config.settings import Kafka
from cdc.errors import SinkUnfit

PREFIX: Final = "kafka."
GROUP: Final = f"{PREFIX}group.id"
JAAS: Final = f"{PREFIX}sasl.jaas.config"

_SAME: Final = frozenset(
    {
        "security.protocol",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "client.dns.lookup",
        "socket.connection.setup.timeout.ms",
        "request.timeout.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
    }
)
_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_CANNOT: Final = ("sasl.oauthbearer.", "sasl.kerberos.", "ssl.engine", "ssl.providers", "enable.ssl.certificate")


def spark_options(
    kafka: Kafka, overrides: Mapping[str, str] | None = None, login: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return options for ``spark.read.format("kafka")``.

    Args:
        kafka: what librdkafka is given.
        overrides: Spark settings that begin with ``kafka.``. They win, so that an operator can set what has no
            translation.
        login: options of the Java client that log in with the tokens of `kafka.oauth_command`.

    Raises:
        SinkUnfit: a necessary option has no counterpart in the Java client.
        CredentialUnavailable: a secret cannot be read.
    """
    given = {name: secret.reveal() for name, secret in kafka.options.items()}
    own = {name: value for name, value in (overrides or {}).items() if name.startswith(PREFIX)}
    # By default this client creates a topic that is gone, with the broker's partitions and retention.
    options = {f"{PREFIX}bootstrap.servers": kafka.bootstrap, f"{PREFIX}allow.auto.create.topics": "false"}
    if kafka.oauth_command:
        options[f"{PREFIX}security.protocol"] = "SASL_SSL"
    if kafka.oauth_command and login is None and JAAS not in own:
        raise SinkUnfit(
            "kafka.oauth_command runs only on this machine, and the Kafka clients of a Spark cluster run on others",
            hint="set kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.jaas.config and "
            "kafka.sasl.login.callback.handler.class of the Java client in the sink's `spark` table",
            option="kafka.oauth_command",
        )
    options |= {f"{PREFIX}{name}": value for name, value in given.items() if name in _SAME}
    options |= _sasl(given)
    options |= {f"{PREFIX}{name}": value for name, value in (login or {}).items()}
    options |= _stores(given)
    for name in given:
        if name.startswith(_CANNOT) and not any(key.startswith(f"{PREFIX}sasl.jaas") for key in own):
            raise SinkUnfit(
                f"kafka.options.{name} has no counterpart in the Kafka client that Spark uses",
                hint="set the Java client's options in the sink's `spark` table, each prefixed with kafka.",
                option=name,
            )
    return options | own


def _sasl(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    options = {f"{PREFIX}sasl.mechanism": mechanism}
    login = _LOGIN.get(mechanism)
    if login is not None:
        user, password = _quoted(given.get("sasl.username", "")), _quoted(given.get("sasl.password", ""))
        options[JAAS] = f"{login} required username={user} password={password};"
    return options


def _stores(given: Mapping[str, str]) -> dict[str, str]:
    """Translate PEM files. librdkafka takes key and certificate as two files, Java as one store."""
    options: dict[str, str] = {}
    if "ssl.ca.location" in given:
        options[f"{PREFIX}ssl.truststore.type"] = "PEM"
        options[f"{PREFIX}ssl.truststore.location"] = given["ssl.ca.location"]
    if "ssl.keystore.location" in given:
        options[f"{PREFIX}ssl.keystore.location"] = given["ssl.keystore.location"]
        if "ssl.keystore.password" in given:
            options[f"{PREFIX}ssl.keystore.password"] = given["ssl.keystore.password"]
    elif "ssl.certificate.location" in given or "ssl.key.location" in given:
        raise SinkUnfit(
            "kafka.options.ssl.certificate.location and ssl.key.location are two files, but the Java client takes one",
            hint="put key and certificate into one PEM file and name it in the sink's `spark` table as "
            "kafka.ssl.keystore.location, with kafka.ssl.keystore.type = PEM",
        )
    return options


def _quoted(text: str) -> str:
    """Quote a JAAS value: in double quotes, with a backslash before each quote and backslash."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
