"""Downloads the artifacts of a lock file into the cache, in parallel, and verifies their checksums.

A download is written to a temporary file and renamed once its checksum is correct. Every use verifies the checksum
again (45 MB take 40 ms, 2026-11-21), because a disk or a person may have changed the file.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import locked
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.lock_file import Artifact
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError

# One connection per file: 8 filled a line of 300 Mbit/s, and a repository may throttle more connections.
_PARALLEL: Final = 8
_TRIES_MAX: Final = 5
_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 16
# Another process may download the same artifacts over a slow line; this one then uses them.
_LOCK_DEADLINE_S: Final = 900.0


def base_url(machine: Machine) -> str:
    """Return the address of the Maven repository, without a trailing slash.

    Raises:
        LocalError: no address is configured, and the package with the default address is missing.
    """
    if machine.maven_url:
        return machine.maven_url.rstrip("/")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns about a missing XDG_RUNTIME_DIR, which is irrelevant here
            jgo = importlib.import_module("jgo")
    except ModuleNotFoundError as error:
        raise LocalError(
            "no address of a Maven repository is configured",
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
    """Download missing artifacts and verify all. Returns their files in the order of `artifacts`.

    Raises:
        LocalError: the repository is unreachable, or a file is missing or has a wrong checksum.
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
        # After a failure no further download begins; running ones end by themselves.
        pool.shutdown(wait=True, cancel_futures=True)


def _fetch_one(
    base: str,
    artifact: Artifact,
    file: Path,
    advance: Callable[[int], None],
    sleep: Callable[[float], None],
) -> None:
    url = f"{base}/{artifact.path}"
    part = file.with_name(f"{file.name}.part")  # this process holds the lock, so an existing part is a leftover
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
    """Download `url` to `part`. Returns its sha256, or "" if the size differs; a failure reverts the progress."""
    done = 0
    digest = hashlib.sha256()
    whole = False
    try:
        # The operator configures the address, so every scheme is allowed: a mirror may be a file: URL.
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
            f"checksum mismatch of {artifact.coordinate} from {base}",
            hint="a proxy or a damaged mirror changes files; check it, or set MAVEN_REPO_URL to another mirror",
            coordinate=artifact.coordinate,
        )
    return LocalError(
        f"cannot download {artifact.coordinate} from {base}: {cause}",
        hint="check network and proxy, or set MAVEN_REPO_URL to a mirror; finished downloads are kept",
        coordinate=artifact.coordinate,
    )
