"""Generates durable-formats.md: every durable format, its version, and what a reader does with a newer one."""

from __future__ import annotations

from typing import Final

from cdc.model.format_versions import FORMATS

_PAGE: Final = """# Durable formats

{notice}
Everything that outlives a process: records in Kafka, files of a lake, state in stores, tables in PostgreSQL. `shop` is
the name of the pipeline, `S` that of a sink.

- A format gets a new version when an earlier release would misread it. A field that an earlier release may ignore needs
  no new version.
- A release reads every version that it and the previous release wrote. All versions are 1 today.
- A release that meets a newer version never guesses. It stops and names the format and both versions, or treats the
  record as stated in the last column.
- Golden records of each release are in `tests/golden`: what 0.1.0 wrote is read by the current release, and what the
  current release writes is read by 0.1.0 ([upgrade](../howto/upgrade.md)).

| Format | Where | Version | Since | Version is in | Written by | Read by | A reader that meets a newer version |
|---|---|---|---|---|---|---|---|
{rows}
"""


def page(notice: str) -> str:
    """Return the page."""
    rows = [
        f"| {one.name} | {one.place} | {one.version} | {one.since} | {one.field} | {one.writer} | {one.readers} "
        f"| {one.newer} |"
        for one in FORMATS
    ]
    return _PAGE.format(notice=notice, rows="\n".join(rows))
