"""Prints findings of the doctor."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from rich.text import Text

from cdc.cli import output

if TYPE_CHECKING:
    from cdc.doctor.finding import Finding

_MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}


def show_finding(finding: Finding) -> None:
    """Print a finding: the message wraps with an indent; statements never wrap, so that they can be copied."""
    out = output.console()
    mark, style = _MARKS[finding.level]
    width = max(40, out.width - 4) if out.is_terminal else 10_000
    first, *others = textwrap.wrap(output.plain(finding.message), width) or [""]
    out.print(Text.assemble("  ", (mark, style), " ", first))
    for line in others:
        out.print(f"    {line}")
    for label, text in (("sql", finding.sql), ("or" if finding.sql else "try", finding.command)):
        for number, line in enumerate(output.statement(text).splitlines()):
            out.print(Text.assemble((f"    {label if number == 0 else '':>5}  ", "cyan"), line))
