"""The build compiles what can be compiled, and otherwise says why not and goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from cdc.encode.plain_rows import COMPILED
from tests.tidy.tree import ROOT, loaded

hook: Final = loaded(ROOT / "docker" / "compile_hook.py")
SOURCE: Final = ROOT / "cdc" / "encode" / "_plain_rows.c"


def test_this_installation_has_compiled_code_if_it_can_have_it(tmp_path: Path) -> None:
    """Otherwise most tests here would not run what users of the images run."""
    assert (hook.compiled(SOURCE, tmp_path / "made.so") == "") == COMPILED


def test_build_without_a_compiler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert hook.compiled(SOURCE, tmp_path / "made.so") == "there is no C compiler (cc)"


def test_build_without_headers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook.sysconfig, "get_path", lambda _: str(tmp_path))

    assert hook.compiled(SOURCE, tmp_path / "made.so").startswith("there are no headers of Python")


def test_build_of_code_that_does_not_compile_goes_on_with_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "cdc" / "encode" / "_plain_rows.c"
    source.parent.mkdir(parents=True)
    source.write_text("not C\n", encoding="utf-8")

    data, warnings = built(tmp_path, "standard")

    assert data["pure_python"] is True
    assert "_plain_rows.c" in warnings[0]


def test_compiled_module_is_removed_when_the_wheel_has_it() -> None:
    data, warnings = built(ROOT, "standard")

    assert [Path(one).exists() for one in data["force_include"]] == ([] if warnings else [False])


def test_pure_wheel_is_made_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_PURE", "1")

    assert built(ROOT, "standard") == ({"force_include": {}, "pure_python": True}, [])


def built(root: Path, version: str) -> tuple[dict[str, Any], list[str]]:
    """What the hook does to a build, and its warnings."""
    warnings: list[str] = []
    app = SimpleNamespace(display_warning=warnings.append)
    data: dict[str, Any] = {"force_include": {}, "pure_python": True}
    made = hook.CompileHook(str(root), {}, None, None, "", "wheel", app)
    made.initialize(version, data)
    made.finalize(version, data, "")
    return data, warnings
