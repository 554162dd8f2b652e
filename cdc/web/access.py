"""Who may use the HTTP endpoints: the bearer token, the accepted hosts, the TLS certificate."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cdc.config.settings import Config, Http

_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


@dataclass(slots=True)
class Access:
    """The settings of `[http]` that protect the endpoints, of capture and of sinks. Thread-safe.

    token        authorises a request that bears it; without one no request is authorised
    hosts        names in the header Host that are accepted besides IP addresses and the machine's own names
    certificate  a PEM file with the certificate and its chain; empty: no TLS
    key          a PEM file with its private key; empty: it is in the file of the certificate
    """

    token: str = ""
    hosts: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""

    @classmethod
    def of(cls, http: Http) -> Access:
        """Return the settings of a configuration."""
        token = http.token.reveal() if http.token is not None else ""
        return cls(token, tuple(http.hosts), http.tls_certificate, http.tls_key)

    def adopt(self, config: Config) -> None:
        """Take over another token and other hosts; the next request needs them."""
        now = Access.of(config.http)
        self.token, self.hosts = now.token, now.hosts

    def is_authorised(self, authorization: str) -> bool:
        """Whether the header Authorization has the token."""
        kind, _, token = authorization.partition(" ")
        # compare_digest takes the same time wherever the texts differ.
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), self.token.encode())
        return bool(self.token) and kind.lower() == "bearer" and same

    def accepts(self, host: str, *, on_loopback: bool) -> bool:
        """Whether a request with the header Host may be answered.

        A web page can make its own name resolve to this machine, and then read what it answers. A browser sends that
        name as Host. Without `hosts`, a server that listens on other addresses than loopback accepts every name.
        """
        if not host or (not self.hosts and not on_loopback):
            return True
        match = _HOST.fullmatch(host.lower())
        name = match[1].rstrip(".") if match is not None else ""
        return name in {"localhost", socket.gethostname().lower(), *map(str.lower, self.hosts)} or _is_address(name)


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` is reached from this machine only."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
