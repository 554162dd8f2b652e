"""The pipelines of `cdc run` in its /metrics and /status: their states, and their own pages as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cdc.telemetry.exposition import MetricsPage
from cdc.telemetry.supervised_sinks import SHOWN_STATES, View

_PROCESS: Final = b"process_"
_HELP: Final = b"# HELP "
_SAMPLE: Final = re.compile(rb"^([^\s{]+)(?:\{(.*)\})? ", re.DOTALL)
_DOCUMENT: Final = (
    "state",
    "reason",
    "pid",
    "restarts",
    "lag_seconds",
    "report_age_seconds",
    "exit_code",
    "next_start_seconds",
    "error",
)


class PipelinesMetrics(MetricsPage):
    """Metrics of the process that runs the pipelines, set when /metrics is requested."""

    def __init__(self) -> None:
        super().__init__({})
        self.state = self._gauge(
            "cdc_supervised_pipeline_state",
            "1 for the current state of a pipeline of `cdc run`, 0 for the others",
            "pipeline",
            "state",
        )
        self.answers = self._gauge(
            "cdc_supervised_pipeline_answers",
            "1 if the pipeline's process has given its metrics to this page, else 0",
            "pipeline",
        )
        self.restarts = self._gauge(
            "cdc_supervised_pipeline_restarts", "Restarts of the pipeline's process", "pipeline"
        )

    def update(self, views: Sequence[View], answering: Iterable[str]) -> None:
        """Set all metrics. `answering`: the pipelines whose metrics are on the page."""
        there = set(answering)
        for view in views:
            for state in SHOWN_STATES:
                self.state.labels(view.name, state).set(float(view.state == state))
            self.answers.labels(view.name).set(float(view.name in there))
            self.restarts.labels(view.name).set(view.document()["restarts"])


def pipeline_document(view: View) -> dict[str, Any]:
    """Return the JSON object of /status about the process of a pipeline. Its keys are part of the interface."""
    document = view.document()
    return {key: document[key] for key in _DOCUMENT}


def merged(own: bytes, pages: Mapping[str, bytes]) -> bytes:
    """Return pages of /metrics as one: a metric of several pages has one HELP and TYPE, as Prometheus demands.

    The samples of the pipelines have the label `pipeline` already, except those about the process itself.
    """
    heads: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for name, page in [("", own), *pages.items()]:
        label = f'pipeline="{name}"'.encode() if name else b""
        metric = b""
        for line in page.splitlines():
            if line.startswith(_HELP):
                metric = line.split(b" ", 3)[2]
                heads.setdefault(metric, [])
                samples.setdefault(metric, [])
            if line.startswith(b"#"):
                if line not in heads[metric] and len(heads[metric]) < 2:
                    heads[metric].append(line)
            elif line:
                samples[metric].append(_labelled(line, label) if label and line.startswith(_PROCESS) else line)
    return b"".join(line + b"\n" for metric in heads for line in [*heads[metric], *samples[metric]])


def _labelled(line: bytes, label: bytes) -> bytes:
    return _SAMPLE.sub(
        lambda match: b"%s{%s} " % (match[1], b",".join([label, *([match[2]] if match[2] else [])])), line, count=1
    )
