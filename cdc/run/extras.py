"""Which extra of ours has a package that is not installed. Pure."""

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
    "matplotlib": "charts",
}
"""Package, as it is imported -> extra."""


def missing_extra(error: ModuleNotFoundError) -> ConfigError | None:
    """What to tell people who have not installed it; None for a package that no extra has."""
    package = (error.name or "").split(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return ConfigError(
        f"the package {package!r} is not installed",
        hint=f"it is of the extra {extra!r}",
        command=f"pip install 'tailrace[capture,{extra}]'",
    )
