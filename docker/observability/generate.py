"""Writes Prometheus' rules and Grafana's dashboard from their declarations in cdc/telemetry.

    python docker/observability/generate.py

`alerts.yaml` comes from cdc/telemetry/alerts.py, `dashboard.json` from cdc/telemetry/panels.py. A test fails if the
files are out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cdc.telemetry.alert_rule import Alert
from cdc.telemetry.alerts import GROUPS, RECORDS
from cdc.telemetry.panels import ROWS, Panel

FOLDER: Final = Path(__file__).resolve().parent
_NOTICE: Final = "# Written by docker/observability/generate.py from cdc/telemetry/alerts.py; edit the source.\n"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24  # columns of Grafana's grid
_PANEL: Final = {"w": 8, "h": 8}


def pages() -> dict[str, str]:
    """Return file name -> text of each file."""
    return {"alerts.yaml": rules(), "dashboard.json": json.dumps(dashboard(), indent=1) + "\n"}


def rules() -> str:
    """Return a rule file of Prometheus."""
    lines = ["groups:"]
    for group, alerts in GROUPS.items():
        lines += [f"  - name: {group}", "    rules:"]
        for record in RECORDS.get(group, ()):
            lines += [f"      - record: {record.name}", f"        expr: {_quoted(record.expr)}"]
        for alert in alerts:
            lines += _rule(alert)
    return _NOTICE + "\n".join(lines) + "\n"


def _rule(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield f"        expr: {_quoted(alert.expr)}"
    if alert.for_minutes:
        yield f"        for: {alert.for_minutes}m"
    yield "        labels:"
    yield f"          severity: {alert.severity}"
    yield "        annotations:"
    yield f"          summary: {_quoted(alert.summary)}"
    yield f"          description: {_quoted(alert.description)}"
    yield f"          runbook: {_quoted(alert.runbook)}"


def _quoted(text: str) -> str:
    """Return a string in YAML's single quotes, in which only the quote itself is special."""
    return "'" + text.replace("'", "''") + "'"


def dashboard() -> dict[str, Any]:
    """Return a dashboard of Grafana."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        y += 1
        per_line = _WIDTH // _PANEL["w"]
        for number, panel in enumerate(row):
            place = {"x": number % per_line * _PANEL["w"], "y": y + number // per_line * _PANEL["h"], **_PANEL}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
        y += -(-len(row) // per_line) * _PANEL["h"]
    return {
        "uid": "tailrace",
        "title": "Tailrace",
        "tags": ["tailrace"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource_variable(), _pipeline_variable()]},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    is_state = panel.kind == "stat"
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"textMode": "name", "colorMode": "none"} if is_state else {"legend": {"showLegend": True}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            | ({"instant": True} if is_state else {})
            for number, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _pipeline_variable() -> dict[str, Any]:
    query = "label_values(cdc_build_info, pipeline)"
    everything = {"includeAll": True, "multi": True, "current": {"text": "All", "value": "$__all"}}
    return {
        "name": "pipeline",
        "type": "query",
        "label": "Pipeline",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "pipelines"},
        "refresh": 2,
        **everything,
    }


def main() -> None:
    """Write the files."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {FOLDER / name}\n")


if __name__ == "__main__":
    main()
