"""Names the extra that contains a missing package. Pure."""

from __future__ import annotations

from typing import Final

from cdc.errors import ConfigError

_EXTRAS: Final = {
    "opensearchpy": "search",
    "redis": "cache",
    "pyspark": "warehouse",
    "pyarrow": "warehouse",
    "deltalake": "warehouse",
    "obstore": "warehouse",
    "sqlglot": "warehouse",
    "pyiceberg": "iceberg",
    "matplotlib": "charts",
    "opentelemetry": "otel",
}
"""Import name of a package -> extra."""


def missing_extra(error: ModuleNotFoundError) -> ConfigError | None:
    """Return an error with the command that installs the package, or None if no extra contains it."""
    package = (error.name or "").split(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return ConfigError(
        f"the package {package!r} is not installed",
        hint=f"it is part of the extra {extra!r}",
        command=f"pip install 'tailrace[capture,{extra}]'",
    )
