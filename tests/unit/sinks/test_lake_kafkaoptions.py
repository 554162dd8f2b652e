"""librdkafka's options translated for the Java client."""

from __future__ import annotations

import pytest

from cdc.config.secret import Secret
from cdc.config.settings import Kafka
from cdc.errors import SinkUnfit
from sinks.warehouse.log.java_kafka_options import spark_options

OWN = {"kafka.bootstrap.servers": "a:1,b:2", "kafka.allow.auto.create.topics": "false"}


def given(**options: str) -> Kafka:
    named = {name.replace("__", "."): Secret(value) for name, value in options.items()}
    return Kafka(bootstrap="a:1,b:2", options=named)


def test_plain_brokers_need_their_addresses_only() -> None:
    assert spark_options(given()) == OWN


def test_user_and_password_become_a_jaas_line_whatever_is_in_them() -> None:
    kafka = given(
        security__protocol="SASL_SSL", sasl__mechanism="SCRAM-SHA-512", sasl__username="cdc", sasl__password='p"\\;w'
    )

    options = spark_options(kafka)

    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="cdc" password="p\\"\\\\;w";'
    )


def test_certificate_authority_becomes_a_trust_store() -> None:
    options = spark_options(given(security__protocol="SSL", ssl__ca__location="ca.pem"))

    assert options["kafka.ssl.truststore.type"] == "PEM"
    assert options["kafka.ssl.truststore.location"] == "ca.pem"


def test_tuning_of_librdkafka_is_left_behind() -> None:
    assert spark_options(given(queued__min__messages="5", linger__ms="1")) == OWN


def test_key_in_two_files_is_refused_with_the_way_out() -> None:
    with pytest.raises(SinkUnfit, match="two files") as caught:
        spark_options(given(ssl__certificate__location="c.pem", ssl__key__location="k.pem"))

    assert "kafka.ssl.keystore.location" in caught.value.hint


def test_options_of_the_sink_win_and_make_the_untranslatable_possible() -> None:
    kafka = given(sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__config="x")
    with pytest.raises(SinkUnfit, match=r"sasl\.oauthbearer\.config"):
        spark_options(kafka)

    options = spark_options(kafka, {"kafka.sasl.jaas.config": "mine", "spark.executor.cores": "2"})

    assert options["kafka.sasl.jaas.config"] == "mine"
    assert "spark.executor.cores" not in options
