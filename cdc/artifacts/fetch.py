"""Fetches the jars of a lock file into the cache, several at once, and believes none it has not hashed.

A file is written beside its place and renamed when its checksum is right, so what has its name is whole; it is hashed
again before each use all the same (45 MB take 40 ms, 2026-11-21), because disks and people change files.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib
import time
import urllib.error
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from cdc.artifacts.cache_folder import locked
from cdc.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.lock_file import Artifact
    from cdc.artifacts.machine import Machine

# One connection a file; 8 filled a 300 Mbit/s line, and a repository may throttle more.
_PARALLEL: Final = 8
_TRIES_MAX: Final = 5
_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 16
# Somebody else may be fetching the same jars over a slow line; then ours are there when they are done.
_LOCK_DEADLINE_S: Final = 900.0


def base_url(machine: Machine) -> str:
    """The address of the Maven repository, without a slash at its end.

    Raises:
        LocalError: none is set and the package that knows the ordinary one is missing.
    """
    if machine.maven_url:
        return machine.maven_url.rstrip("/")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR, which does not concern us
            jgo = importlib.import_module("jgo")
    except ModuleNotFoundError as error:
        raise LocalError(
            "the address of a Maven repository is not known",
            hint="install the `local` extra, or set MAVEN_REPO_URL to a mirror",
            command="pip install 'tailrace[local]'",
        ) from error
    return str(jgo.MAVEN_CENTRAL_URL).rstrip("/")


def fetch(
    artifacts: Sequence[Artifact],
    *,
    machine: Machine,
    progress: Progress,
    label: str,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Have every artifact in the cache, verified. Returns their files in the order of `artifacts`.

    Raises:
        LocalError: the repository cannot be reached, lacks a file, or serves another one than was pinned.
    """
    root = machine.cache / "maven"
    files = [root / artifact.path for artifact in artifacts]
    if not _missing(artifacts, files):
        return files
    with locked(machine.cache / "locks" / "maven", machine=machine, deadline_s=_LOCK_DEADLINE_S):
        missing = _missing(artifacts, files)
        if missing:
            base = base_url(machine)
            progress.begin(label, sum(artifact.size_bytes for artifact, _ in missing))
            try:
                _fetch_all(base, missing, machine, lambda n: progress.advance(label, n), sleep)
            finally:
                progress.end(label)
    return files


def _missing(artifacts: Sequence[Artifact], files: Sequence[Path]) -> list[tuple[Artifact, Path]]:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        right = list(pool.map(_is_right, artifacts, files))
    return [(a, f) for a, f, ok in zip(artifacts, files, right, strict=True) if not ok]


def _is_right(artifact: Artifact, file: Path) -> bool:
    try:
        if file.stat().st_size != artifact.size_bytes:
            return False
        with file.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == artifact.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


def _fetch_all(
    base: str,
    missing: Sequence[tuple[Artifact, Path]],
    machine: Machine,
    advance: Callable[[int], None],
    sleep: Callable[[float], None],
) -> None:
    for folder in {file.parent for _, file in missing}:
        machine.folder(folder)
    pool = ThreadPoolExecutor(_PARALLEL)
    try:
        jobs = [pool.submit(_fetch_one, base, artifact, file, advance, sleep) for artifact, file in missing]
        for job in jobs:
            job.result()
    finally:
        # After a failure nothing further is begun; what is under way ends by itself.
        pool.shutdown(wait=True, cancel_futures=True)


def _fetch_one(
    base: str,
    artifact: Artifact,
    file: Path,
    advance: Callable[[int], None],
    sleep: Callable[[float], None],
) -> None:
    url = f"{base}/{artifact.path}"
    part = file.with_name(f"{file.name}.part")  # we hold the lock, so a part that is there is a dead one
    cause: Exception | None = None
    for attempt in range(_TRIES_MAX):
        if attempt:
            sleep(0.5 * 2**attempt)
        try:
            digest = _download(url, part, artifact.size_bytes, advance)
        except urllib.error.HTTPError as error:
            cause = error
            error.close()
            if error.code in {400, 401, 403, 404, 410}:
                break
        except (OSError, http.client.HTTPException) as error:
            cause = error
        else:
            if digest == artifact.sha256:
                part.chmod(0o644)
                part.replace(file)
                return
            cause = None
    part.unlink(missing_ok=True)
    raise _failure(artifact, base, cause) from cause


def _download(url: str, part: Path, size_bytes: int, advance: Callable[[int], None]) -> str:
    """Write what `url` serves to `part` and return its sha256. A transfer that breaks takes its progress back."""
    done = 0
    digest = hashlib.sha256()
    whole = False
    try:
        # The address is the operator's own, so whatever scheme it has is meant: file: is a mirror too.
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response, part.open("wb") as out:  # noqa: S310
            while chunk := response.read(_CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
                done += len(chunk)
                advance(len(chunk))
                if done > size_bytes:
                    break
        whole = done == size_bytes
    finally:
        if not whole:
            advance(-done)
    return digest.hexdigest() if whole else ""


def _failure(artifact: Artifact, base: str, cause: Exception | None) -> LocalError:
    if cause is None:
        return LocalError(
            f"{base} serves another {artifact.coordinate} than the one that is pinned",
            hint="something between the repository and here changes files: a proxy, or a damaged mirror",
            coordinate=artifact.coordinate,
        )
    return LocalError(
        f"cannot fetch {artifact.coordinate} from {base}: {cause}",
        hint="check the network and proxy, or set MAVEN_REPO_URL to a mirror; what is here already is kept",
        coordinate=artifact.coordinate,
    )
