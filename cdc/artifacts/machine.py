"""What of this machine matters to local servers: folders, the user to run as, where things come from.

The only file of `cdc.artifacts` and `cdc.local` that reads the environment:

    TAILRACE_CACHE    folder for downloads and data    default $XDG_CACHE_HOME/tailrace, ~/.cache/tailrace;
                                                       as root /var/cache/tailrace (root's home is closed to others)
    MAVEN_REPO_URL    a mirror of the Maven repository default: the one the jgo package knows
    JAVA              the `java` to run Kafka with     default: the best found, see `cdc.artifacts.java`
    JAVA_HOME         the home of a Java for Spark     default: as for Kafka, see `installed` in `cdc.artifacts.java`
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping

# PostgreSQL refuses to run as root, and nothing that listens should; this user exists on every Unix.
_UNPRIVILEGED_USER: Final = "nobody"


@dataclass(frozen=True, slots=True)
class ServerUser:
    """An unprivileged user to run servers as, because we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything the servers are told about where they run. `account` None means: as ourselves."""

    cache: Path
    account: ServerUser | None = None
    maven_url: str | None = None
    java: str | None = None
    path: str = os.defpath
    java_home: str | None = None

    @property
    def stacks(self) -> Path:
        """The folder that holds one folder for each named stack."""
        return self.cache / "stacks"

    @classmethod
    def here(cls, environ: Mapping[str, str] | None = None) -> Machine:
        """Describe this machine; `environ` is the process environment unless a test gives another."""
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
        """Give a file or folder to the user the servers run as."""
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def folder(self, path: Path) -> Path:
        """Make a folder of ours and those above it, open to the servers' user whatever the umask says."""
        for missing in reversed([p for p in (path, *path.parents) if not p.exists()]):
            missing.mkdir(exist_ok=True)
            missing.chmod(0o755)
        return path

    def private_folder(self, path: Path) -> Path:
        """Make a folder that the servers' user owns and nobody else may open.

        What is in it is theirs: as root we write nothing there and follow no link, since other services may run
        as the same user.
        """
        self.folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        # Through a handle, since the folder may be in /tmp, where others can put a link in its place.
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            ours = {os.geteuid(), self.account.uid if self.account else os.geteuid()}
            if os.fstat(handle).st_uid not in ours:
                raise LocalError(f"{path} belongs to another user", hint="have it removed", path=str(path))
            os.fchmod(handle, 0o700)
            if self.account is not None:
                os.fchown(handle, self.account.uid, self.account.gid)
        finally:
            os.close(handle)
        return path

    def can_read(self, path: Path) -> bool:
        """Whether the servers' user may read the file or folder and pass every folder above it."""
        if self.account is None:
            return os.access(path, os.R_OK)
        real = path.resolve()
        ways = all(_allows(p.stat(), self.account, stat.S_IXUSR) for p in real.parents)
        return ways and _allows(real.stat(), self.account, stat.S_IRUSR)


def cache_folder(environ: Mapping[str, str], *, root: bool) -> Path:
    """Choose the folder for downloads and data; see the top of the file."""
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
            f"there is no user {name!r} to run the servers as, and they must not run as root",
            hint="run as an ordinary user",
        ) from error
    return ServerUser(name, entry.pw_uid, entry.pw_gid)


def _allows(status: os.stat_result, account: ServerUser, owner_bit: int) -> bool:
    """Whether the mode grants the right; `owner_bit` is the owner's, group and others follow 3 bits apart."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & owner_bit)
    if status.st_gid == account.gid:
        return bool(status.st_mode & (owner_bit >> 3))
    return bool(status.st_mode & (owner_bit >> 6))
