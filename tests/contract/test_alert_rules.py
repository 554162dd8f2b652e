"""Prometheus' own promtool checks the rules, the example configuration and the dashboard's queries, and runs scenarios.

Each alert fires for the series of its scenario, not before they have lasted, and not for series that are close to them.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from cdc.telemetry.alert_rule import Alert
from cdc.telemetry.alerts import ALERTS, GROUPS, RECORDS
from cdc.telemetry.panels import ROWS
from tests.contract.alert_scenarios import PROCESSES, SOURCE, Scenario, Series
from tests.contract.alert_scenarios_objectives import OBJECTIVES
from tests.contract.alert_scenarios_sinks import SINKS, TABLES
from tests.fixtures.servers.promtool import promtool

FOLDER: Final = Path(__file__).resolve().parents[2] / "docker" / "observability"
SCENARIOS: Final = {**PROCESSES, **SOURCE, **TABLES, **SINKS, **OBJECTIVES}
RULES: Final = len(ALERTS) + sum(len(records) for records in RECORDS.values())


def ran(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of promtool."""
    done = subprocess.run([promtool(), *arguments], check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def _description(alert: Alert, scenario: Scenario, value: str) -> str:
    """Return the description as Prometheus writes it."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: scenario.labels.get(found[1], ""), alert.description)
    text = re.sub(r"\{\{ range .*\{\{ end \}\}", scenario.queried, text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", value, text)


def _fired(alert: Alert, scenario: Scenario, value: str) -> dict[str, Any]:
    return {
        "exp_labels": {**scenario.labels, "severity": alert.severity},
        "exp_annotations": {
            "summary": alert.summary,
            "description": _description(alert, scenario, value),
            "runbook": alert.runbook,
        },
    }


def _case(alert: Alert, series: Series, checks: list[tuple[int, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Return a case of promtool: series, and at which minutes which alerts are expected."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert.name, "exp_alerts": expected} for minute, expected in checks
        ],
    }


def _alone(alert: Alert) -> str:
    """Return the rule file with only one alert, and the rules that record what it uses: all of them take a second."""
    text = (FOLDER / "alerts.yaml").read_text(encoding="utf-8")
    (rule,) = re.findall(rf"^      - alert: {alert.name}\n(?: {{8}}.*\n)+", text, re.MULTILINE)
    (group,) = [name for name, alerts in GROUPS.items() if alert in alerts]
    records = (
        "".join(re.findall(r"^      - record: .*\n        expr: .*\n", text, re.MULTILINE)) if group in RECORDS else ""
    )
    return f"groups:\n  - name: one\n    rules:\n{records}{rule}"


def test_every_alert_has_a_scenario() -> None:
    assert list(SCENARIOS) == [alert.name for alert in ALERTS]
    assert [name for name, scenario in SCENARIOS.items() if not scenario.quiet] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_fires_for_its_scenario_and_not_for_one_that_is_close(alert: Alert, tmp_path: Path) -> None:
    scenario = SCENARIOS[alert.name]
    early: list[tuple[int, list[dict[str, Any]]]] = [(alert.for_minutes - 1, [])] if alert.for_minutes else []
    cases = [
        _case(alert, series, [*early, (scenario.minutes, [_fired(alert, scenario, value)])])
        for series, value in [(scenario.fires, scenario.value), *scenario.also]
    ]
    cases += [_case(alert, series, [(scenario.minutes, [])]) for series in scenario.quiet]
    file = tmp_path / "scenarios.yaml"
    rules = tmp_path / "rules.yaml"
    rules.write_text(_alone(alert), encoding="utf-8")
    file.write_text(
        json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": cases}), encoding="utf-8"
    )

    code, output = ran("test", "rules", file)

    assert code == 0, output


def test_rules_are_valid() -> None:
    code, output = ran("check", "rules", FOLDER / "alerts.yaml")

    assert code == 0, output
    assert f"{RULES} rules found" in output


@pytest.mark.parametrize("name", ["prometheus.yaml", "compose.yaml"])
def test_configuration_is_valid_and_loads_the_rules(name: str) -> None:
    code, output = ran("check", "config", FOLDER / name)

    assert code == 0, output
    assert f"{RULES} rules found" in output


def test_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    """As rules that record them, with Grafana's variables replaced."""
    queries = [expr for _, row in ROWS for panel in row for expr, _ in panel.queries]
    rules = [
        {"record": f"query:{number}", "expr": expr.replace("$__rate_interval", "5m").replace("$pipeline", "shop")}
        for number, expr in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")

    code, output = ran("check", "rules", file)

    assert code == 0, output
    assert f"{len(queries)} rules found" in output
