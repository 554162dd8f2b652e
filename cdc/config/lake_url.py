"""Which addresses a lake can have in an object store. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
HINT: Final = f"a lake lies in a local folder, or at {', '.join(f'{name}://' for name in SCHEMES)}"


def problem_of(url: str) -> str:
    """Why a URL cannot be that of a lake; empty when it can. Never repeats a password that stands in it."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        return f"{scheme}:// is no address of a lake"
    parts = urlsplit(url)
    # abfss://container@account... has its @, and nobody's password.
    if parts.query or parts.fragment or ("@" in parts.netloc and not scheme.startswith("abfs")):
        return f"the address of a lake at {scheme}:// is a bucket and a path, and nothing else"
    return "" if rest.strip("/") else f"{scheme}:// names no bucket"
