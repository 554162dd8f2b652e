"""The location of a lake: a local folder, or a prefix of an object store with its options.

Every function that opens a lake takes a `Location`. Options are those of the deltalake package. They hold secrets, so
they appear in no repr and no message. Nothing here depends on Spark or Delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from cdc.config.lake_url import HINT, problem_of
from cdc.config.settings import Warehouse
from cdc.errors import UsageError

# Reports a store that is not available within seconds, and callers retry. With the default of three minutes,
# `cdc sink list` and /status would hang.
_DEFAULTS: Final = {"max_retries": "5", "retry_timeout": "30s"}
_AZURE_HOST: Final = "dfs.core.windows.net"


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a lake. Create it with `of`.

    Attributes:
        root: an absolute path, or a URL without a slash at its end.
        options: of the storage; empty for a folder. Only deltalake and Hadoop may see them.
    """

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of(cls, where: Where, storage: Mapping[str, str] | None = None) -> Location:
        """Return the location for a path or URL; a `Location` is returned unchanged.

        Without options, deltalake reads the environment. Raises UsageError for an unsupported URL.
        """
        if isinstance(where, Location):
            return where
        text = str(where)
        scheme, separator, rest = text.partition("://")
        if not separator:
            return cls(str(Path(text).absolute()))
        problem = problem_of(text)
        if problem:
            raise UsageError(problem, hint=HINT)
        given = {key.lower() for key in storage or {}}
        defaults = {key: value for key, value in _DEFAULTS.items() if key not in given}
        return cls(f"{scheme}://{rest.rstrip('/')}", {**defaults, **(storage or {})})

    @classmethod
    def configured(cls, settings: Warehouse) -> Location:
        """Return the location of a sink."""
        return cls.of(settings.path, {name: value.reveal() for name, value in settings.storage.items()})

    @property
    def folder(self) -> Path | None:
        """The local folder; None for an object store."""
        return None if "://" in self.root else Path(self.root)

    @property
    def scheme(self) -> str:
        """Hadoop's name of the scheme: ``file``, ``s3a``, ``gs``, ``abfss`` ..."""
        return self.spark_uri().partition("://")[0] if self.folder is None else "file"

    def uri(self, *parts: str) -> str:
        """Return a URI below the location, as deltalake takes it."""
        return "/".join((self.root, *parts))

    def spark_uri(self, *parts: str) -> str:
        """Return the same for Spark: ``s3://`` is Hadoop's ``s3a://``, and ``az://container`` belongs to an account."""
        scheme, separator, rest = self.uri(*parts).partition("://")
        if not separator:
            return scheme
        if scheme == "s3":
            return f"s3a://{rest}"
        if scheme == "az":
            container, _, path = rest.partition("/")
            return f"abfss://{container}@{self._account()}.{_AZURE_HOST}/{path}"
        return f"{scheme}://{rest}"

    def _account(self) -> str:
        for key, value in self.options.items():
            if key.lower() in {"azure_storage_account_name", "account_name"}:
                return value
        raise UsageError(
            f"{self.root} names no storage account, which Spark needs",
            hint=f"set account_name in the sink's `storage`, or write abfss://container@account.{_AZURE_HOST}/path",
        )

    def __str__(self) -> str:
        return self.root


Where: TypeAlias = str | Path | Location
"""How callers may name a lake."""
