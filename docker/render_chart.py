"""Renders the Helm chart with each file of values in tests/golden/chart, and checks what it refuses.

    python docker/render_chart.py

Needs Helm: $HELM, `helm` on the PATH, or the one in the cache (docs/contributing/release.md says how to build it). Each
rendering is written beside its values, with a hash of everything that it was made from: a test fails if that is out of
date, and validates the manifests.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

from cdc.artifacts.machine import Machine

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "docker" / "chart"
GOLDEN: Final = ROOT / "tests" / "golden" / "chart"
ALERTS: Final = ROOT / "docker" / "observability" / "alerts.yaml"
_NOTICE: Final = "# Written by `make chart`. Sources: {digest}\n"
_KAFKA: Final = '[source]\ndsn = "host=db"\n[kafka]\nbootstrap = "kafka:9092"\n'
_FIND: Final = '[sinks.find]\nkind = "search"\nurl = "http://find:9200"\n'
_LAKE: Final = '[sinks.lake]\nkind = "warehouse"\npath = "/lake"\nlisten = "0.0.0.0:1"\n'
REFUSED: Final[dict[str, dict[str, object]]] = {
    "config is empty": {},
    "config is not TOML": {"config": "name ="},
    "config has no `name`": {"config": _KAFKA},
    "sinks.find.listen is": {"config": f'name = "shop"\n{_KAFKA}{_FIND}'},
    "has no section [sinks.fnd]": {"config": f'name = "shop"\n{_KAFKA}', "sinks": {"fnd": {"replicas": 2}}},
    "a lake has one process": {"config": f'name = "shop"\n{_KAFKA}{_LAKE}', "sinks": {"lake": {"replicas": 2}}},
    "additional properties 'captre' not allowed": {"config": 'name = "shop"\n', "captre": {}},
}
"""A part of the message -> the values that it refuses."""


def digest(values: Path) -> str:
    """Return a hash of the chart and of a file of values, but not of the alerts, which a rendering leaves out."""
    found = hashlib.sha256()
    for file in sorted([*CHART.rglob("*"), values]):
        if file.is_file() and not file.is_symlink():
            found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return found.hexdigest()


def notice(values: Path) -> str:
    """Return the first line of the rendering of a file of values."""
    return _NOTICE.format(digest=digest(values))


def values_files() -> list[Path]:
    """Return the files of values that are rendered."""
    return sorted(GOLDEN.glob("*.values.yaml"))


def rendering(values: Path) -> Path:
    """Return the file with the rendering of a file of values."""
    return values.with_name(values.name.replace(".values", ""))


def _helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    cached = Machine.here().cache / "helm" / "bin" / "helm"
    program = os.environ.get("HELM") or shutil.which("helm") or (str(cached) if cached.exists() else "")
    if not program:
        sys.exit("no helm: set HELM, or build it as docs/contributing/release.md says")
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, **dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), home)}
        return subprocess.run([program, *arguments], env=environ, capture_output=True, text=True, check=False)


def _without_alerts(text: str) -> str:
    """Return a rendering without the alerts, after checking that it has those of the repository."""
    alerts = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    for found in yaml.safe_load_all(text):
        if found["kind"] == "PrometheusRule" and found["spec"] != alerts:
            sys.exit("the alerts of the chart differ from docker/observability/alerts.yaml")
    return re.sub(r"(kind: PrometheusRule\n.*?\nspec:).*?(?=\n---|\Z)", r"\1 {}", text, flags=re.DOTALL)


def main() -> None:
    """Lint, render and write; exit with a message if the chart does not do what it should."""
    for values in values_files():
        linted = _helm("lint", "--strict", CHART, "--values", values)
        if linted.returncode:
            sys.exit(f"helm lint with {values.name}:\n{linted.stdout}{linted.stderr}")
        done = _helm("template", "shop", CHART, "--namespace", "tailrace", "--values", values)
        if done.returncode:
            sys.exit(f"helm template with {values.name}:\n{done.stderr}")
        text = "\n".join(line.rstrip() for line in _without_alerts(done.stdout).splitlines())
        rendering(values).write_text(f"{notice(values)}{text}\n", encoding="utf-8")
        sys.stdout.write(f"wrote {rendering(values)}\n")
    for message, given in REFUSED.items():
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(given, file)
            file.flush()
            done = _helm("template", "shop", CHART, "--values", file.name)
        if not done.returncode or message not in done.stderr:
            sys.exit(f"expected a refusal with {message!r}, not {done.returncode}: {done.stderr}{done.stdout[:200]}")
        sys.stdout.write(f"refused: {message}\n")


if __name__ == "__main__":
    main()
