"""Alerts and panels use only declared metrics, labels and states, and every alert has its section in the runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.metrics import MetricWrapperBase

from cdc import errors
from cdc.config.settings import Http
from cdc.model.run_state import State
from cdc.model.wal_alarm import LEVELS
from cdc.telemetry.alert_rule import CAPTURE_JOB, RUNBOOK, SINKS_JOB, Alert
from cdc.telemetry.alerts import ALERTS, RECORDS, UNALERTED
from cdc.telemetry.capture_status import SNAPSHOT_STATES
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.panels import ROWS
from cdc.telemetry.runner_metrics import RunnerMetrics
from cdc.telemetry.supervised_pipelines import PipelinesMetrics
from cdc.telemetry.supervised_sinks import SHOWN_STATES, SupervisedMetrics
from tests.tidy.tree import loaded

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "docker" / "observability"
PANELS: Final = [panel for _, row in ROWS for panel in row]

_TROUBLE: Final = re.compile(
    r"_(age|alarm|behind|failures?|findings|found|gone|hidden|ignored|inactive|lag|left|lost|oldest|open|owed|postponed|ready"
    r"|refused|restarts|starts|state|stopped|waits)_|_(behind|findings|ready|restarts|state)$"
)
"""Words in names of metrics that mean that something may be wrong."""

_TARGET_LABELS: Final = frozenset({"pipeline", "sink", "instance", "job"})
"""Labels of every series: Prometheus adds those that a sample lacks."""

_OF_PROMETHEUS: Final = {"up": set[str](), "ALERTS": {"alertname", "alertstate"}}
_RECORDED: Final = {record.name: set[str]() for records in RECORDS.values() for record in records}


def _families() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield name, type and labels of every declared metric."""
    capture = Metrics()
    pages = (capture, LakeMetrics(capture), RunnerMetrics(Metrics()), SupervisedMetrics(), PipelinesMetrics())
    for page in pages:
        for metric in [*vars(page).values(), capture.process.build_info, capture.process.thread_failures]:
            if isinstance(metric, MetricWrapperBase):
                (family,) = metric.describe()
                yield family.name, family.type, metric._labelnames


def _samples() -> dict[str, set[str]]:
    """Return sample name -> labels."""
    found: dict[str, set[str]] = {}
    for name, kind, labels in _families():
        if kind == "histogram":
            found |= {f"{name}_bucket": {*labels, "le"}, f"{name}_count": {*labels}, f"{name}_sum": {*labels}}
        else:
            found[f"{name}_total" if kind == "counter" else name] = {*labels}
    process = re.findall(r"^# TYPE (process_\w+) ", Metrics().render().decode(), re.MULTILINE)
    return found | {name: set() for name in process} | _OF_PROMETHEUS | _RECORDED


SAMPLES: Final = _samples()


def _used(expr: str) -> set[str]:
    """Return the metrics that an expression names."""
    return set(
        re.findall(r"\b(?:cdc_\w+|process_\w+|tailrace:\w+:\w+|up|ALERTS)\b(?!\s*=)", re.sub(r'"[^"]*"', '""', expr))
    )


def _matchers(expr: str) -> Iterator[tuple[str, str, str]]:
    """Yield metric, label and pattern of every matcher of an expression."""
    for metric, matchers in re.findall(r"([\w:]+)\{([^{}]*)\}", expr):
        for label, pattern in re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', matchers):
            yield metric, label, pattern


def _grouping(expr: str) -> set[str]:
    """Return the labels of `by` and `on`."""
    return {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr) for label in labels.split(", ")}


def _queries() -> list[tuple[str, str]]:
    recorded = [(record.name, record.expr) for records in RECORDS.values() for record in records]
    return (
        [(alert.name, alert.expr) for alert in ALERTS]
        + recorded
        + [(panel.title, expr) for panel in PANELS for expr, _ in panel.queries]
    )


@pytest.mark.parametrize("name", ["alerts.yaml", "dashboard.json"])
def test_file_is_what_the_declaration_gives(name: str) -> None:
    """If this fails, run ``python docker/observability/generate.py``."""
    assert (FOLDER / name).read_text(encoding="utf-8") == loaded(FOLDER / "generate.py").pages()[name]


def test_every_name_is_used_once() -> None:
    names = [alert.name for alert in ALERTS]

    assert len(names) == len(set(names)) >= 20
    assert [name for name in names if not re.fullmatch(r"Tailrace[A-Z]\w+", name)] == []


@pytest.mark.parametrize(("where", "expr"), _queries())
def test_expression_uses_declared_metrics_and_labels(where: str, expr: str) -> None:
    used = _used(expr)
    labels = {label for metric in used & SAMPLES.keys() for label in SAMPLES[metric]} | _TARGET_LABELS

    assert used
    assert used <= SAMPLES.keys(), where
    assert _grouping(expr) <= labels, where
    for metric, label, _ in _matchers(expr):
        assert label in SAMPLES[metric] | _TARGET_LABELS, f"{where}: {metric} has no label {label}"


@pytest.mark.parametrize(("where", "expr"), _queries())
def test_expression_compares_labels_with_values_that_exist(where: str, expr: str) -> None:
    values = {
        "cdc_state": {state.value for state in State},
        "cdc_supervised_sink_state": set(SHOWN_STATES),
        "cdc_supervised_pipeline_state": set(SHOWN_STATES),
        "cdc_snapshot_tables": set(SNAPSHOT_STATES),
        "cdc_slot_wal_alarm_state": {str(level) for level in LEVELS},
        "cdc_starts_total": {name for name, kind in vars(errors).items() if isinstance(kind, type)},
    }
    for metric, label, pattern in _matchers(expr):
        if label not in {"pipeline", "sink", "job", "alertname", "alertstate"}:
            assert set(pattern.split("|")) <= values[metric], f"{where}: {label}"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_texts_name_labels_that_the_alert_has(alert: Alert) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", alert.description))
    kept = re.search(r"^\(?(?:min|max|sum) by \(([^)]*)\)", alert.expr)

    assert named
    assert named <= (set(kept[1].split(", ")) if kept else {"job", "instance"})
    assert "{{" not in alert.summary
    assert "\n" not in alert.summary + alert.description + alert.expr


def test_every_metric_that_means_trouble_is_in_an_alert_or_left_out_with_a_reason() -> None:
    used = {metric for alert in ALERTS for metric in _used(alert.expr)}
    trouble = {metric for metric in SAMPLES if metric.startswith("cdc_") and _TROUBLE.search(metric)}

    assert len(trouble) > 30
    assert sorted(trouble - used - UNALERTED.keys()) == []
    assert sorted(UNALERTED.keys() & used) == [], "they are in an alert"
    assert sorted(UNALERTED.keys() - trouble) == [], "they are not declared, or do not sound like trouble"


def test_reasons_name_alerts_that_exist() -> None:
    names = {alert.name for alert in ALERTS}

    assert [name for text in UNALERTED.values() for name in re.findall(r"Tailrace\w+", text) if name not in names] == []


def test_every_state_of_a_sink_but_the_working_ones_is_in_an_alert() -> None:
    covered = {
        state
        for alert in ALERTS
        for metric, label, pattern in _matchers(alert.expr)
        if metric == "cdc_supervised_sink_state" and label == "state"
        for state in pattern.split("|")
    }

    assert set(SHOWN_STATES) - covered == {"RUNNING", "CATCHING_UP"}


def test_every_alert_has_a_section_with_a_command_in_the_runbook() -> None:
    page = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))

    assert list(sections) == [alert.name for alert in ALERTS]
    assert [name for name, text in sections.items() if not re.search(r"^```(sh|sql|text)$", text, re.MULTILINE)] == []
    assert [alert.runbook for alert in ALERTS] == [f"{RUNBOOK}#{name.lower()}" for name in sections]


def test_example_configuration_names_the_jobs_and_the_default_port() -> None:
    text = (FOLDER / "prometheus.yaml").read_text(encoding="utf-8")

    assert re.findall(r"job_name: (\S+)", text) == [CAPTURE_JOB, SINKS_JOB]
    assert f'"{Http().listen}"' in text


def test_panels_do_not_overlap_and_have_a_query() -> None:
    panels: list[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [panel["title"] for panel in panels if panel["type"] != "row" and not panel["targets"]] == []
