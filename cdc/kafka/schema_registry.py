"""Registers and reads schemas in any registry with Confluent's API, through confluent_kafka's client.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html

Subjects are named as Confluent's TopicNameStrategy does, ``<topic>-key`` and ``<topic>-value``.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from cdc.config.settings import Registry
from cdc.errors import ConfigError, RegistryRefused, RegistryUnreachable
from cdc.model.progress_record import AvroIds, AvroSchemas

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_Answer = TypeVar("_Answer")

_TIMEOUT_S: Final = 8.0  # per request; the six for a new table fit into the minute of an open Kafka transaction
_NUMBERS: Final = frozenset({"timeout", "cache.capacity", "max.retries", "retries.wait.ms", "retries.max.wait.ms"})
_NOT_THERE: Final = frozenset({40401, 40402, 40403})  # subject, version, schema
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_NOT_KNOWN: Final = 401
_NOT_ALLOWED: Final = frozenset({_NOT_KNOWN, 403})
_BUSY: Final = frozenset({408, 429})
_SERVER: Final = 500
_REASON_CHARACTERS_MAX: Final = 600


class ConfluentRegistry:
    """See `cdc.contracts.SchemaRegistry`. Called from one thread."""

    def __init__(self, settings: Registry) -> None:
        """Connects at the first request. Raises ConfigError for options that the client does not accept."""
        self._url = settings.url.partition(",")[0].strip().rstrip("/")  # messages show the first of several
        self._client = _client(settings)

    def close(self) -> None:
        """End its connections."""
        self._client.close()

    def register(self, topic: str, schemas: AvroSchemas, table: str) -> AvroIds:
        """See `cdc.contracts.SchemaRegistry.register`."""
        wanted = {f"{topic}-value": schemas.value}
        if schemas.key is not None:
            wanted[f"{topic}-key"] = schemas.key
        ids = {subject: self._known(subject, text, table) for subject, text in wanted.items()}
        new = [subject for subject, found in ids.items() if found is None]
        # An incompatible schema is registered first, alone: the answer of the registry is the reason.
        compatible = {subject: self._is_compatible(subject, wanted[subject], table) for subject in new}
        for subject in sorted(new, key=compatible.__getitem__):
            ids[subject] = self._register(subject, wanted[subject], table)
        value = ids[f"{topic}-value"]
        assert value is not None
        return AvroIds(ids.get(f"{topic}-key"), value)

    def schema(self, schema_id: int) -> str:
        """Return the text of the schema with this id. Raises RegistryUnreachable, RegistryRefused."""
        found = self._ask("", "", lambda: self._client.get_schema(schema_id))
        if found is None or found.schema_str is None:
            raise self._refused("", "", f"schema {schema_id} does not exist")
        return found.schema_str

    def level(self) -> str:
        """Return the default compatibility level of subjects. Raises as `register`."""
        return self._ask("", "", self._client.get_compatibility) or "none"

    def _known(self, subject: str, text: str, table: str) -> int | None:
        found = self._ask(subject, table, lambda: self._client.lookup_schema(subject, _schema(text)))
        return None if found is None else found.schema_id

    def _is_compatible(self, subject: str, text: str, table: str) -> bool:
        """Return whether the schema can be registered; True for a new subject."""
        return self._ask(subject, table, lambda: self._client.test_compatibility(subject, _schema(text))) is not False

    def _register(self, subject: str, text: str, table: str) -> int:
        found = self._ask(subject, table, lambda: self._client.register_schema(subject, _schema(text)))
        if found is None:
            raise self._refused(subject, table, "the subject does not exist")
        return found

    def _ask(self, subject: str, table: str, question: Callable[[], _Answer]) -> _Answer | None:
        """Send a request and translate errors; None when the subject or schema does not exist."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        # The client passes exceptions of its HTTP library on unchanged.
        from confluent_kafka.schema_registry.common._httpx_compat import httpx
        from confluent_kafka.schema_registry.error import OAuthTokenError

        try:
            return question()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == _NOT_FOUND and error.error_code in _NOT_THERE:
                return None
            if status >= _SERVER or status in _BUSY:
                raise self._unreachable(f"answers with HTTP status {status}") from error
            if status == _CONFLICT:
                raise self._incompatible(subject, table, str(error.error_message)) from error
            if status in _NOT_ALLOWED:
                raise self._not_allowed(subject, table, status) from error
            raise self._refused(subject, table, f"HTTP status {status}, {error.error_message}") from error
        except OAuthTokenError as error:
            raise self._unreachable("cannot be used: no OAuth token was issued") from error
        except httpx.HTTPError as error:
            if _is_about_certificates(error):
                raise self._untrusted(subject, table, str(error)) from error
            raise self._unreachable(f"does not answer: {type(error).__name__}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused(subject, table, "the server at this address does not have Confluent's API") from error

    def _unreachable(self, what: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"the schema registry {self._url} {what}",
            hint="capture waits for the registry, because it registers every schema before it writes rows with it",
            command=f"curl -s {self._url}/subjects",
        )

    def _incompatible(self, subject: str, table: str, reason: str) -> RegistryRefused:
        return RegistryRefused(
            f"the current schema of {table} is not compatible with subject {subject!r}: {_cut(reason)}",
            hint="nothing after the change is published or acknowledged; lower the compatibility level of the subject, "
            "or capture under another `name`",
            command="curl -X PUT -H 'Content-Type: application/vnd.schemaregistry.v1+json' "
            f'--data \'{{"compatibility": "NONE"}}\' {self._url}/config/{subject}',
            table=table,
            subject=subject,
        )

    def _not_allowed(self, subject: str, table: str, status: int) -> RegistryRefused:
        """Show only the status: a proxy in front of the registry may answer with a page of HTML."""
        what = "user or password rejected" if status == _NOT_KNOWN else "its user has no permission"
        return self._refused(
            subject,
            table,
            f"{what} (HTTP status {status})",
            hint='check user:password in registry.options."basic.auth.user.info"; better keep it in the file that '
            '"basic.auth.user.info_file" names, or in TAILRACE_REGISTRY_OPTION_BASIC_AUTH_USER_INFO',
            command=f"curl -si -u USER {self._url}/subjects",
        )

    def _untrusted(self, subject: str, table: str, reason: str) -> RegistryRefused:
        return self._refused(
            subject,
            table,
            f"its certificate is not trusted: {reason}",
            hint='set registry.options."ssl.ca.location" to the file with the authority that signed it, and use a host '
            "name in registry.url that the certificate contains",
            command=f"curl -sv --cacert CA.pem {self._url}/subjects",
        )

    def _refused(
        self,
        subject: str,
        table: str,
        reason: str,
        *,
        hint: str = "check registry.url including its path, registry.options, and the rights of the user",
        command: str = "",
    ) -> RegistryRefused:
        what = f" subject {subject!r} of {table}" if subject else ""
        return RegistryRefused(
            f"the schema registry {self._url} refuses{what}: {_cut(reason)}",
            hint=hint,
            command=command or f"curl -s {self._url}/subjects",
            table=table,
            subject=subject,
        )


def _client(settings: Registry) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            'encode.format = "avro" requires the schema registry client, which is not installed',
            hint="install the extra `avro`",
            command="pip install 'tailrace[capture,avro]'",
        ) from error

    options = {name: value.reveal() for name, value in settings.options.items()}
    typed = {name: float(text) if name in _NUMBERS and text.isdigit() else text for name, text in options.items()}
    try:
        return SchemaRegistryClient({"timeout": _TIMEOUT_S, "max.retries": 0, **typed, "url": settings.url})
    except (ValueError, TypeError, OSError) as error:
        # The message of the error may contain values, so only names are shown.
        raise ConfigError(
            f"registry.options ({', '.join(sorted(options)) or 'none'}): the registry client does not accept them: "
            f"{type(error).__name__}",
            hint="names and values: docs.confluent.io, SchemaRegistryClient of confluent-kafka-python",
        ) from None


def _schema(text: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, "AVRO")


def _is_about_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _cut(text: str) -> str:
    return text if len(text) <= _REASON_CHARACTERS_MAX else text[:_REASON_CHARACTERS_MAX] + "…"
