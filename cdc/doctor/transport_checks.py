"""Warns about unencrypted connections, and servers whose identity is not verified. Pure: settings in, findings out.

Servers on a loopback address or a Unix socket are skipped: nothing leaves the machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from cdc.config.credential import Changing
from cdc.config.secret import Secret
from cdc.config.settings import Cache, Config, Search, Warehouse
from cdc.doctor.finding import Finding, Group, Level

_SSLMODE_DEFAULT: Final = "prefer"  # https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-CONNECT-SSLMODE
_ENDPOINTS: Final = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "aws_endpoint_url_s3",
                     "azure_storage_endpoint", "azure_endpoint", "google_base_url")  # fmt: skip
_OFF: Final = frozenset({"false", "none", "0", "no", "off"})
_STORE_SECRETS: Final = ("username", "password", "sentinel_password")


def check_transport(config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """Run all checks. `environ` completes the DSN (PGSSLMODE, PGHOST) and the storage options of a lake."""
    found = [*_source(config, environ), *_kafka(config), *_registry(config)]
    for name, settings in sorted(config.sinks.items()):
        if isinstance(settings, Search | Cache):
            found += _store(name, settings)
        elif isinstance(settings, Warehouse):
            found += _lake(name, settings, environ)
    return found


def is_local(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, ``localhost``, or a Unix socket."""
    name = host.strip().strip("[]").rstrip(".").lower()
    if not name or name.startswith(("/", "@")) or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _source(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    given = {key: str(value) for key, value in conninfo_to_dict(config.source.dsn.reveal()).items() if value}
    if "service" in given:  # only libpq reads the service file
        return
    hosts = given.get("hostaddr") or given.get("host") or environ.get("PGHOSTADDR") or environ.get("PGHOST", "")
    remote = [host for host in hosts.split(",") if not is_local(host)]
    system = given.get("sslrootcert", environ.get("PGSSLROOTCERT")) == "system"  # libpq then verifies by default
    mode = given.get("sslmode") or environ.get("PGSSLMODE") or ("verify-full" if system else _SSLMODE_DEFAULT)
    if not remote or mode == "verify-full":
        return
    weak = {
        "verify-ca": "the certificate may be that of another host",
        "require": "the server's certificate is not verified, so another server could impersonate it",
    }.get(mode, "passwords and rows may travel unencrypted")
    text = f"sslmode is {mode} for {remote[0]}: {weak}"
    command = "in source.dsn: sslmode=verify-full sslrootcert=<file of the authority, or system>"
    yield _warning(Group.SOURCE, "source_tls", text, command)


def _plain(options: Mapping[str, Secret]) -> dict[str, str]:
    """Return the options with the values that the file has; no command is run for a check of settings."""
    return {name: "" if isinstance(secret, Changing) else secret.reveal() for name, secret in options.items()}


def _kafka(config: Config) -> Iterator[Finding]:
    options = {name: text.lower() for name, text in _plain(config.kafka.options).items()}
    remote = _remote(config.kafka.bootstrap.split(","))
    if not remote:
        return
    default = "sasl_ssl" if config.kafka.oauth_command else "plaintext"
    protocol = options.get("security.protocol", default).replace("-", "_")
    if protocol == "sasl_plaintext":
        text = f"security.protocol is SASL_PLAINTEXT for {remote[0]}: credentials and rows travel unencrypted"
        command = 'kafka.options: security.protocol = "SASL_SSL"'
        yield _warning(Group.BROKER, "kafka_tls", text, command)
    elif protocol == "plaintext":
        text = f"security.protocol is PLAINTEXT for {remote[0]}: rows travel unencrypted, and any client may write"
        command = 'kafka.options: security.protocol = "SASL_SSL", sasl.mechanism, sasl.username, sasl.password_file'
        yield _warning(Group.BROKER, "kafka_tls", text, command)
    elif options.get("enable.ssl.certificate.verification") in _OFF:
        text = f"certificates of {remote[0]} are not verified: another server could impersonate it"
        yield _warning(Group.BROKER, "kafka_tls", text, "kafka.options: enable.ssl.certificate.verification = true")
    elif options.get("ssl.endpoint.identification.algorithm") in _OFF:
        text = f"the host name in the certificate of {remote[0]} is not verified"
        command = 'kafka.options: ssl.endpoint.identification.algorithm = "https"'
        yield _warning(Group.BROKER, "kafka_tls", text, command)


def _registry(config: Config) -> Iterator[Finding]:
    credentials = any("auth" in name for name in config.registry.options)
    for url in config.registry.url.split(","):
        host = urlsplit(url.strip()).hostname or ""
        if credentials and url.strip().startswith("http://") and not is_local(host):
            text = f"credentials of the schema registry travel unencrypted to {host}"
            yield _warning(Group.REGISTRY, "registry_tls", text, f'registry.url = "https://{host}"')


def _store(name: str, settings: Search | Cache) -> Iterator[Finding]:
    parts = urlsplit(settings.url)
    remote = _remote(parts.netloc.split(","))
    if not remote:
        return
    options = {option: text.lower() for option, text in _plain(settings.options).items()}
    secured = "https" if isinstance(settings, Search) else "rediss"
    credentials = any(option in options for option in _STORE_SECRETS)
    if parts.scheme != secured:
        what = "credentials and rows" if credentials else "rows"
        text = f"{name}: {what} travel unencrypted to {remote[0]} ({parts.scheme}://)"
        yield _warning(Group.SINKS, "sink_tls", text, f'[sinks.{name}] url = "{secured}://{parts.netloc}"')
    elif options.get("verify_certs") in _OFF:
        text = f"{name}: the certificate of {remote[0]} is not verified: another server could impersonate it"
        yield _warning(Group.SINKS, "sink_tls", text, f"[sinks.{name}.options] verify_certs = true")


def _lake(name: str, settings: Warehouse, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the object store of a lake; without options of its own the lake uses those of the environment."""
    if "://" not in settings.path:
        return
    given = {option.lower(): text for option, text in _plain(settings.storage).items()}
    found = given or {option.lower(): value for option, value in environ.items()}
    for option in _ENDPOINTS:
        parts = urlsplit(found.get(option, ""))
        host = parts.hostname or ""
        if parts.scheme == "http" and not is_local(host):
            text = f"{name}: keys and rows travel unencrypted to the object store {host} ({option} is http://)"
            yield _warning(Group.SINKS, "sink_tls", text, f'[sinks.{name}.storage] {option} = "https://{host}"')


def _remote(places: Iterable[str]) -> list[str]:
    """Return the hosts of ``host:port`` that are not this machine."""
    hosts = (_host(place.strip()) for place in places)
    return [host for host in hosts if not is_local(host)]


def _host(place: str) -> str:
    """Return the host of ``host``, ``host:port``, ``[v6]:port`` or ``PROTOCOL://host:port``."""
    place = place.rpartition("://")[2]
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.rpartition(":")[0] or place


def _warning(group: Group, check: str, text: str, command: str) -> Finding:
    return Finding(group=group, level=Level.WARNING, check=check, message=text, command=command)
