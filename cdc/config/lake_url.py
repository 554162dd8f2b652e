"""Checks the address of a lake in an object store. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
HINT: Final = f"use a local folder, or an address that starts with {', '.join(f'{name}://' for name in SCHEMES)}"


def problem_of(url: str) -> str:
    """Return why a URL cannot be the address of a lake, or an empty string. Never repeats a password of the URL."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        return f"unsupported scheme {scheme}:// for a lake"
    parts = urlsplit(url)
    # In abfss://container@account... the @ does not follow a password.
    if parts.query or parts.fragment or ("@" in parts.netloc and not scheme.startswith("abfs")):
        return f"a {scheme}:// address must consist of a bucket and a path only"
    return "" if rest.strip("/") else f"the {scheme}:// address has no bucket"
