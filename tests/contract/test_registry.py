"""The schema registry behind `cdc.contracts.SchemaRegistry`, against a real one."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from cdc.config.secret import Secret
from cdc.config.settings import Registry as Settings
from cdc.errors import ConfigError, RegistryRefused, RegistryUnreachable
from cdc.kafka.schema_registry import ConfluentRegistry
from cdc.model.progress_record import AvroSchemas
from tests.fixtures.faults.secured import WRONG_PASSWORD
from tests.fixtures.servers.http_receiver import receiving
from tests.fixtures.servers.registry_api import RegistryApi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.local.registry_server import Registry
    from tests.fixtures.faults.registrydoor import RegistryDoor


def settings(url: str) -> Settings:
    """Patient: the machine may be busy."""
    return Settings(url=url, options={"timeout": Secret("120")})


@pytest.fixture
def client(registry: Registry) -> Iterator[ConfluentRegistry]:
    made = ConfluentRegistry(settings(registry.url))
    yield made
    made.close()


def record(kind: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": kind}]})


def test_schema_keeps_its_id_for_every_client(client: ConfluentRegistry, registry: Registry, topic_prefix: str) -> None:
    schemas = AvroSchemas(record("long"), record("string"))

    first = client.register(topic_prefix, schemas, "public.t")
    other = ConfluentRegistry(settings(registry.url))
    again = other.register(topic_prefix, schemas, "public.t")
    other.close()

    assert first == again
    assert RegistryApi(registry.url).subjects(topic_prefix) == [f"{topic_prefix}-key", f"{topic_prefix}-value"]


def test_table_without_a_key_has_one_subject(client: ConfluentRegistry, registry: Registry, topic_prefix: str) -> None:
    ids = client.register(topic_prefix, AvroSchemas(None, record("long")), "public.t")

    assert ids.key is None
    assert RegistryApi(registry.url).subjects(topic_prefix) == [f"{topic_prefix}-value"]


def test_nothing_is_registered_when_one_schema_is_not_compatible(
    client: ConfluentRegistry, registry: Registry, topic_prefix: str
) -> None:
    api, value = RegistryApi(registry.url), f"{topic_prefix}-value"
    client.register(topic_prefix, AvroSchemas(None, record("long")), "public.t")
    api.level(value, "BACKWARD")

    with pytest.raises(RegistryRefused, match=f"public.t .* not compatible with subject '{value}'.*STRING") as caught:
        client.register(topic_prefix, AvroSchemas(record("long"), record("string")), "public.t")

    assert f"/config/{value}" in caught.value.command
    assert (api.subjects(topic_prefix), api.versions(value)) == ([value], [1])


def test_address_without_a_listener_is_waited_for(topic_prefix: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        client = ConfluentRegistry(Settings(url=f"http://127.0.0.1:{held.getsockname()[1]}"))
        with pytest.raises(RegistryUnreachable, match="does not answer"):
            client.register(topic_prefix, AvroSchemas(None, record("long")), "public.t")
        client.close()


def test_address_that_is_no_registry_is_refused(topic_prefix: str) -> None:
    """Another server, because Apicurio leaves some requests to a wrong path of its own without an answer."""
    with receiving() as other:
        other.answers = [404]
        client = ConfluentRegistry(settings(other.url))
        with pytest.raises(RegistryRefused, match="404") as caught:
            client.register(topic_prefix, AvroSchemas(None, record("long")), "public.t")
        client.close()

    assert "registry.url" in caught.value.hint


def through(door: RegistryDoor, **options: Any) -> ConfluentRegistry:
    secrets = {name: Secret(value) for name, value in door.options(**options).items()}
    return ConfluentRegistry(Settings(url=door.url, options=secrets))


def test_registry_behind_tls_and_a_password_gives_ids(
    registry_door: RegistryDoor, client: ConfluentRegistry, topic_prefix: str
) -> None:
    schemas = AvroSchemas(record("long"), record("string"))
    behind = through(registry_door)

    ids = behind.register(topic_prefix, schemas, "public.t")
    behind.close()

    assert ids == client.register(topic_prefix, schemas, "public.t")


def test_wrong_password_of_the_registry_is_said_and_not_shown(registry_door: RegistryDoor, topic_prefix: str) -> None:
    behind = through(registry_door, password=WRONG_PASSWORD)

    with pytest.raises(RegistryRefused, match="HTTP status 401") as caught:
        behind.register(topic_prefix, AvroSchemas(None, record("long")), "public.t")
    behind.close()

    assert "basic.auth.user.info_file" in caught.value.hint
    assert WRONG_PASSWORD not in f"{caught.value} {vars(caught.value)}"


def test_certificate_of_an_unknown_authority_is_refused(registry_door: RegistryDoor, topic_prefix: str) -> None:
    behind = through(registry_door, ca=registry_door.other_ca)

    with pytest.raises(RegistryRefused, match="certificate is not trusted") as caught:
        behind.register(topic_prefix, AvroSchemas(None, record("long")), "public.t")
    behind.close()

    assert "ssl.ca.location" in caught.value.hint


def test_option_the_client_does_not_take_is_named_and_its_value_is_not() -> None:
    with pytest.raises(ConfigError, match=r"registry\.options \(basic\.auth\.typo\)") as caught:
        ConfluentRegistry(Settings(url="http://h:1", options={"basic.auth.typo": Secret("hunter2")}))

    assert "hunter2" not in str(vars(caught.value))
    assert caught.value.__suppress_context__
