"""Reads and releases event contracts in a schema registry with Confluent's API. Uses only the standard library.

Each contract is a JSON Schema with a subject of its own, ``events.<aggregate_type>.<type>.v<version>``. In the two
names every byte other than letters, digits and ``_`` becomes ``-`` and two hex digits, so no two contracts share a
subject. The newest schema of a subject is the released contract: the registry takes the role of `contracts.lock.json`.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from outbox.errors import ContractInvalid, ContractsUnreachable
from outbox.event_contracts import ContractId
from outbox.json_schema import Schema

_SUBJECT: Final = re.compile(
    r"events\.(?P<aggregate>(?:\w|-[0-9a-f]{2})+)\.(?P<type>(?:\w|-[0-9a-f]{2})+)\.v(?P<version>[1-9][0-9]{0,8})",
    re.ASCII,
)
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_HEADERS: Final = {"Accept": _TYPE, "Content-Type": _TYPE}
_NOT_FOUND: Final = 404
_CONFLICT: Final = frozenset({409, 422})
_DENIED: Final = frozenset({401, 403})
_REASON_MAX: Final = 300


class ContractRegistry:
    """A client of one registry. `url` may have ``user:password@``; no message shows it. For one thread."""

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        """`timeout_s` limits one request. Raises ContractInvalid if `url` is not an HTTP URL."""
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ContractInvalid(
                "invalid registry URL: expected an HTTP or HTTPS URL", hint="e.g. https://registry.example.com:8081"
            )
        place = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._timeout_s = timeout_s
        self._authorization: str | None = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"

    def read(self) -> dict[ContractId, Schema]:
        """Return the newest version of every contract. Raises ContractsUnreachable, ContractInvalid."""
        found: dict[ContractId, Schema] = {}
        for subject in self._ask("GET", "/subjects") or ():
            of = contract_of(subject)
            if of is not None:
                found[of] = self._newest(subject)
        return found

    def write(self, schemas: Mapping[ContractId, Schema]) -> list[ContractId]:
        """Release contracts; return those that are new or changed.

        The registry also applies its own compatibility level. Raises ContractInvalid with its reason if it refuses a
        contract; the contracts before that one are released then.
        """
        known = self.read()
        changed = [of for of, schema in sorted(schemas.items()) if of not in known or known[of] != schema]
        for of in changed:
            body = {"schemaType": "JSON", "schema": json.dumps(schemas[of], ensure_ascii=False, sort_keys=True)}
            self._ask("POST", f"/subjects/{quote(subject_of(of), safe='')}/versions", body, of=of)
        return changed

    def _newest(self, subject: str) -> Schema:
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        try:
            kind = answer.get("schemaType", "AVRO")  # the API omits the type of Avro schemas
            if kind != "JSON":
                raise ContractInvalid(f"subject {subject} is of type {kind}", hint="a contract must be a JSON Schema")
            schema: Schema = json.loads(answer["schema"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ContractInvalid(f"subject {subject} is not a JSON Schema: {type(error).__name__}") from None
        return schema

    def _ask(self, method: str, path: str, body: object = None, *, of: ContractId | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = self._base + path
        request = urllib.request.Request(url, data, _HEADERS, method=method)  # noqa: S310 - HTTP, see __init__
        if self._authorization is not None:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error, of) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise ContractsUnreachable(
                f"the schema registry {self._base} does not answer: {reason}", hint="check its address"
            ) from None

    def _refused(self, error: urllib.error.HTTPError, of: ContractId | None) -> ContractInvalid | ContractsUnreachable:
        try:
            reason = str(json.load(error).get("message", ""))[:_REASON_MAX]
        except (ValueError, AttributeError, OSError):
            reason = ""
        if of is not None and error.code in _CONFLICT:
            return ContractInvalid(
                f"the schema registry refuses contract {of}: {reason or 'it is not compatible'}",
                hint="make a new version of the contract, or lower the compatibility level of the subject",
                event=str(of),
            )
        what = "access denied" if error.code in _DENIED else reason or "no reason given"
        hint = "put user and password into its URL" if error.code in _DENIED else ""
        if error.code == _NOT_FOUND:
            hint = "include the path in its URL, e.g. /apis/ccompat/v7"
        return ContractsUnreachable(f"the schema registry {self._base}: HTTP status {error.code}, {what}", hint=hint)


def subject_of(of: ContractId) -> str:
    """Return the subject of a contract, as described above."""
    return f"events.{_escaped(of.aggregate_type)}.{_escaped(of.type)}.v{of.version}"


def contract_of(subject: str) -> ContractId | None:
    """Return the contract of a subject; None if it is not the subject of a contract."""
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        return None
    try:
        found = ContractId(_plain(match["aggregate"]), _plain(match["type"]), int(match["version"]))
    except UnicodeDecodeError:
        return None
    return found if subject_of(found) == subject else None


def _escaped(name: str) -> str:
    return "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte == ord("_")) else f"-{byte:02x}"
        for byte in name.encode()
    )


def _plain(part: str) -> str:
    return re.sub(rb"-([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), part.encode()).decode()
