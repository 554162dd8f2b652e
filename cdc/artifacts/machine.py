"""Describes this machine for downloads and local servers: folders, the servers' user, sources of programs.

This is the only file of `cdc.artifacts` and `cdc.local` that reads the environment:

    TAILRACE_CACHE    folder for downloads and data    default $XDG_CACHE_HOME/tailrace, ~/.cache/tailrace;
                                                       for root /var/cache/tailrace (others cannot read root's home)
    MAVEN_REPO_URL    a mirror of the Maven repository default: the address in the jgo package
    JAVA              the `java` that runs Kafka       default: see `find_java` in `cdc.artifacts.java`
    JAVA_HOME         the home of a Java for Spark     default: see `installed` in `cdc.artifacts.java`
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.errors import LocalError

# PostgreSQL refuses to run as root, and no server should. This user exists on every Unix.
_UNPRIVILEGED_USER: Final = "nobody"


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The unprivileged user that runs the servers, if this process runs as root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Properties of this machine. Without an `account`, servers run as the current user."""

    cache: Path
    account: ServerUser | None = None
    maven_url: str | None = None
    java: str | None = None
    path: str = os.defpath
    java_home: str | None = None

    @property
    def stacks(self) -> Path:
        """The folder with one folder per named stack."""
        return self.cache / "stacks"

    @classmethod
    def here(cls, environ: Mapping[str, str] | None = None) -> Machine:
        """Describe this machine. `environ` replaces the environment of the process in tests."""
        env = os.environ if environ is None else environ
        root = os.geteuid() == 0
        return cls(
            cache=cache_folder(env, root=root),
            account=_account(_UNPRIVILEGED_USER) if root else None,
            maven_url=env.get("MAVEN_REPO_URL") or None,
            java=env.get("JAVA") or None,
            path=env.get("PATH", os.defpath),
            java_home=env.get("JAVA_HOME") or None,
        )

    def own(self, path: Path) -> None:
        """Change the owner of a file or folder to the servers' user."""
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def folder(self, path: Path) -> Path:
        """Create a folder and its parents, readable for the servers' user regardless of the umask."""
        for missing in reversed([p for p in (path, *path.parents) if not p.exists()]):
            missing.mkdir(exist_ok=True)
            missing.chmod(0o755)
        return path

    def private_folder(self, path: Path) -> Path:
        """Create a folder that the servers' user owns and only this user can open.

        As root, this process writes nothing into it and follows no link there, because other services may run as the
        same user.
        """
        self.folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        # Through a handle: the folder may be in /tmp, where other users can replace it by a link.
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            ours = {os.geteuid(), self.account.uid if self.account else os.geteuid()}
            if os.fstat(handle).st_uid not in ours:
                raise LocalError(f"{path} belongs to another user", hint="remove it", path=str(path))
            os.fchmod(handle, 0o700)
            if self.account is not None:
                os.fchown(handle, self.account.uid, self.account.gid)
        finally:
            os.close(handle)
        return path

    def can_read(self, path: Path) -> bool:
        """Return whether the servers' user can read the file or folder and open every folder above it."""
        if self.account is None:
            return os.access(path, os.R_OK)
        real = path.resolve()
        ways = all(_allows(p.stat(), self.account, stat.S_IXUSR) for p in real.parents)
        return ways and _allows(real.stat(), self.account, stat.S_IRUSR)


def cache_folder(environ: Mapping[str, str], *, root: bool) -> Path:
    """Return the folder for downloads and data; see the docstring of this module."""
    if environ.get("TAILRACE_CACHE"):
        return Path(environ["TAILRACE_CACHE"]).absolute()
    if root:
        return Path("/var/cache/tailrace")
    if environ.get("XDG_CACHE_HOME", "").startswith("/"):
        return Path(environ["XDG_CACHE_HOME"]) / "tailrace"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "tailrace"


def _account(name: str) -> ServerUser:
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise LocalError(
            f"no user {name!r} to run the servers, which must not run as root",
            hint="run this command as an ordinary user",
        ) from error
    return ServerUser(name, entry.pw_uid, entry.pw_gid)


def _allows(status: os.stat_result, account: ServerUser, owner_bit: int) -> bool:
    """Return whether the mode grants a right; `owner_bit` is the owner's bit, those of group and others follow."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & owner_bit)
    if status.st_gid == account.gid:
        return bool(status.st_mode & (owner_bit >> 3))
    return bool(status.st_mode & (owner_bit >> 6))
