"""Diagnoses a pipeline: gathers the evidence, applies the rules, and returns one document for text, JSON and HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config
from cdc.errors import EXIT_FAILED, EXIT_OK, EXIT_OPERATOR, UsageError
from cdc.why.evidence import Evidence
from cdc.why.gathering import WITHIN_S, gather
from cdc.why.pipeline_reading import Status
from cdc.why.rules import checked, concerning, find_causes, is_healthy, summary

PARTS: Final = ("capture", "snapshot")
"""Names that `part` may have besides those of sinks."""


def diagnosis(
    config: Config,
    *,
    part: str = "",
    clock: Clock | None = None,
    status: Callable[[], Status] | None = None,
    within_s: float = WITHIN_S,
) -> dict[str, Any]:
    """Return the diagnosis: which causes a lag, a stop or a growing slot has, with their evidence. Takes seconds.

    Reads capture, PostgreSQL, Kafka and the stores of sinks, and works while any of them is down.

    Args:
        config: the configuration of the pipeline.
        part: only what matters to ``capture``, ``snapshot`` or a sink. Raises UsageError for another name.
        clock: for tests.
        status: returns the document of /status, if this process is capture; else it is read over HTTP.
        within_s: when to stop waiting for answers.
    """
    check_part(config, part)
    return document(gather(config, clock or SystemClock(), status=status, within_s=within_s), part)


def document(evidence: Evidence, part: str = "") -> dict[str, Any]:
    """Return the document of a diagnosis, ready for JSON; its keys are part of the interface."""
    causes = concerning(find_causes(evidence), part)
    return {
        "name": evidence.name,
        "part": part or None,
        "healthy": is_healthy(causes),
        "needs_operator": any(one.needs_operator for one in causes),
        "says": summary(evidence, causes),
        "causes": [one.document() for one in causes],
        "checked": checked(evidence),
        "unread": [{"what": what, "why": why} for what, why in sorted(evidence.unread.items())],
    }


def exit_code(found: dict[str, Any]) -> int:
    """Return 0 if nothing is wrong, 3 if an operator must act, else 1."""
    if found["needs_operator"]:
        return EXIT_OPERATOR
    return EXIT_OK if found["healthy"] else EXIT_FAILED


def check_part(config: Config, part: str) -> None:
    """Raise UsageError for a name that is not a part of this pipeline; it lists the names."""
    known = (*PARTS, *sorted(config.sinks))
    if part and part not in known:
        raise UsageError(f"no part {part!r} in pipeline {config.name!r}", hint=f"the parts are {', '.join(known)}")
