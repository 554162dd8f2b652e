"""Compiles `cdc/encode/_plain_rows.c` when a wheel is built, or the project is installed for development.

A hook of hatchling. Without a compiler or the headers of Python, and with TAILRACE_PURE=1, the wheel is the same
without compiled code: it is for any machine, and capture needs twice the CPU for a row.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PURE: Final = "TAILRACE_PURE"
_SOURCE: Final = Path("cdc/encode/_plain_rows.c")
_NAME: Final = _SOURCE.stem + str(sysconfig.get_config_var("EXT_SUFFIX"))


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled module to a wheel, or puts it beside its source."""

    _made: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; `version` is ``editable`` for development, else ``standard``."""
        if os.environ.get(PURE) == "1":
            return
        source = Path(self.root) / _SOURCE
        editable = version == "editable"
        if editable:
            folder = source.parent
        else:
            self._made = tempfile.TemporaryDirectory(prefix="tailrace-")
            folder = Path(self._made.name)
        reason = compiled(source, folder / _NAME)
        if reason:
            self.app.display_warning(f"without compiled code, which doubles the CPU of a row: {reason}")
        elif not editable:
            build_data["force_include"][str(folder / _NAME)] = str(_SOURCE.parent / _NAME)
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what the wheel has now."""
        if self._made is not None:
            self._made.cleanup()


def compiled(source: Path, target: Path) -> str:
    """Compile the extension module, and return why that was impossible; empty: it was possible."""
    compiler = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    if shutil.which(compiler[0]) is None:
        compiler[0] = "cc"
    if shutil.which(compiler[0]) is None:
        return f"there is no C compiler ({compiler[0]})"
    headers = sysconfig.get_path("include")
    if not (Path(headers) / "Python.h").exists():
        return f"there are no headers of Python ({headers}/Python.h)"
    command = [*compiler, "-O2", "-fPIC", f"-I{headers}", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{shlex.join(command)}:\n{done.stderr}"
