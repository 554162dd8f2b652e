"""The files of the project: what git tracks, and what it would track if it were added."""

from __future__ import annotations

import importlib.util
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[Path, ...]:
    """Every file that is tracked, or new and not ignored."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    paths = {ROOT / name for name in listed if name}
    return tuple(sorted(path for path in paths if path.is_file() and not path.is_symlink()))


def python_files() -> list[Path]:
    """Those that are Python."""
    return [path for path in files() if path.suffix == ".py"]


@cache
def text_of(path: Path) -> str:
    """A file's text; empty for what is no text."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def shown(path: Path) -> str:
    """A file's name as people write it."""
    return path.relative_to(ROOT).as_posix()


def loaded(program: Path) -> ModuleType:
    """A program outside of the packages, as a module."""
    spec = importlib.util.spec_from_file_location(program.stem, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
