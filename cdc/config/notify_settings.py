"""Settings of the built-in notifier, the tables `[notify.NAME]` of cdc.toml, and their addresses and secrets."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, structs

from cdc.config.secret import Secret
from cdc.config.section import Section
from cdc.errors import ConfigError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_WEBHOOK_PREFIX: Final = "whsec_"
_KEY_BYTES: Final = range(24, 65)  # https://github.com/standard-webhooks/standard-webhooks, "Signature scheme"


class Notify(Section, frozen=True):
    """Where capture sends what needs attention."""

    kind: Literal["webhook", "slack", "heartbeat"]
    """`webhook` posts JSON. `slack` posts text to an incoming webhook of Slack, or of a server that accepts the same.
    `heartbeat` requests the address regularly while capture runs, so that another service notices when it does not.
    """
    url: Secret | None = None
    """Address, with http:// or https://. It is a secret: with a Slack address, anyone may post to its channel."""
    url_file: str | None = None
    """File whose first line is the address."""
    secret: Secret | None = None
    """Signs messages of kind `webhook` as the Standard Webhooks say: `whsec_` and 24 to 64 bytes in base64."""
    secret_file: str | None = None
    """File whose first line is the secret."""
    severity: Literal["page", "ticket"] = "ticket"
    """Send only troubles of this severity and above. `page`: act now. `ticket`: act within a working day, and pages."""
    after_s: Annotated[float, Meta(ge=0, le=86_400)] = 30
    """Seconds for which a trouble must last before it is sent, and be gone before it is reported as resolved."""
    repeat_h: Annotated[float, Meta(ge=0, le=8784)] = 12
    """Hours after which the troubles that last are sent again. 0: never."""
    interval_s: Annotated[float, Meta(ge=1, le=86_400)] = 60
    """Seconds between the requests of kind `heartbeat`."""


def from_environment(raw: dict[str, Any], environ: Mapping[str, str], where: str) -> None:
    """Check the names of the tables; put TAILRACE_NOTIFY_<NAME>_URL and _SECRET into the parsed file."""
    tables = raw.get("notify")
    if not isinstance(tables, dict):
        return  # absent, or an error of its type
    for name, table in tables.items():
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{where}: invalid name notify.{name}; expected 1 to 40 lower-case letters, digits and underscores",
                hint="write a table [notify.NAME] for each receiver",
            )
        for key in ("url", "secret"):
            value = environ.get(f"TAILRACE_NOTIFY_{name}_{key}".upper())
            if value is not None and isinstance(table, dict):
                table[key] = value


def resolved(name: str, notify: Notify) -> Notify:
    """Read the files, and check address and secret. Raises ConfigError, without the address.

    Only capture needs them. A sink's process has the same file, but maybe not these secrets.
    """
    url = _read(f"notify.{name}.url", notify.url, notify.url_file)
    secret = _read(f"notify.{name}.secret", notify.secret, notify.secret_file)
    if url is None:
        raise ConfigError(
            f"notify.{name}.url is missing; it has no default",
            hint=f"set TAILRACE_NOTIFY_{name.upper()}_URL, or url_file",
        )
    try:
        parts = urlsplit(url.reveal())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or not url.reveal().isascii() or re.search(r"[\s\x00-\x1f]", url.reveal()) or parts.username:
        raise ConfigError(f"notify.{name}.url is not an http:// or https:// address without a user")
    if secret is not None:
        if notify.kind != "webhook":
            raise ConfigError(f'notify.{name}.secret is only for kind = "webhook"')
        signing_key(name, secret)
    return structs.replace(notify, url=url, secret=secret)


def signing_key(name: str, secret: Secret) -> bytes:
    """Return the bytes of a secret. Raises ConfigError."""
    try:
        key = base64.b64decode(secret.reveal().removeprefix(_WEBHOOK_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in _KEY_BYTES:
        raise ConfigError(
            f"notify.{name}.secret is not {_WEBHOOK_PREFIX} and {_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} bytes in "
            "base64",
            command='echo "whsec_$(openssl rand -base64 32)"',
        )
    return key


def _read(key: str, given: Secret | None, file: str | None) -> Secret | None:
    if given is not None or file is None:
        return given
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise ConfigError(f"{key}_file: {why}: {file}") from None
    if not lines or not lines[0].strip():
        raise ConfigError(f"{key}_file: the first line of {file} is empty")
    return Secret(lines[0].strip())
