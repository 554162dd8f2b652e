"""The part of `cdc status` that lists tables that are left out, with the statement that fixes each."""

from __future__ import annotations

from typing import Any, Final

from rich.text import Text

from cdc.cli import output
from cdc.inspect.pipeline_state import PipelineView
from cdc.telemetry.left_out_status import LEFT_OUT_SHOWN

_SHOWN_MAX: Final = 5


def known(view: PipelineView) -> dict[str, Any]:
    """Return the tables that are left out: from the daemon, else as a start would judge now, unless it would stop."""
    if view.daemon is not None and "left_out" in view.daemon:
        return {"left_out_count": view.daemon["left_out_count"], "left_out": view.daemon["left_out"]}
    found = view.left_out
    if found is None or (view.verdict is not None and view.verdict.stops):
        return {"left_out_count": None, "left_out": None}
    return {"left_out_count": len(found), "left_out": [one.document() for one in found[:LEFT_OUT_SHOWN]]}


def text(document: dict[str, Any]) -> Text | None:
    """Return lines for the first of them; None when no table is left out."""
    if not document["left_out_count"]:
        return None
    parts = Text()
    for one in document["left_out"][:_SHOWN_MAX]:
        parts.append(f"{output.plain(one['table'])}: {output.plain(one['problem'])}\n", "yellow")
        by = f"  -- run by {output.plain(one['by'])}" if one["by"] else ""
        parts.append(f"  {output.plain(one['statement'])}{by}\n")
    more = document["left_out_count"] - _SHOWN_MAX
    if more > 0:
        parts.append(f"and {more} more; see `cdc doctor`\n", "yellow")
    parts.append("the other tables are not affected; these tables join as soon as the problem is fixed")
    return parts
