"""Renders the files of a local OpenSearch node: settings, logging and descriptors of its modules. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

LOG4J: Final = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

_MODULES: Final = {
    "transport-netty4": ("org.opensearch.transport.Netty4ModulePlugin", ""),
    "percolator": ("org.opensearch.percolator.PercolatorModulePlugin", ""),
    "reindex": ("org.opensearch.index.reindex.ReindexModulePlugin", ""),
    "lang-painless": ("org.opensearch.painless.PainlessModulePlugin", ""),
    "analysis-common": ("org.opensearch.analysis.common.CommonAnalysisModulePlugin", "lang-painless"),
}
_DESCRIPTOR: Final = """name={name}
description={name}
version={version}
opensearch.version={version}
java.version=21
classname={main}
extended.plugins={extends}
has.native.controller=false
"""


def render_settings(*, data: str, port: int, transport_port: int, own: Mapping[str, str]) -> str:
    """Return the text of ``opensearch.yml``: one node on loopback with its data in `data`; `own` overrides settings."""
    settings = {
        "cluster.name": "tailrace-local",
        "node.name": "node",
        "network.host": "127.0.0.1",
        "http.port": str(port),
        "transport.port": str(transport_port),
        "discovery.type": "single-node",
        "path.data": data,
        "path.logs": f"{data}/logs",
        # A developer's disk is often nearly full.
        "cluster.routing.allocation.disk.threshold_enabled": "false",
        "node.store.allow_mmap": "false",
        **own,
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


def descriptor(module: str, version: str) -> str:
    """Return ``plugin-descriptor.properties`` of a module: only the distribution contains it, not the jars."""
    main, extends = _MODULES[module]
    return _DESCRIPTOR.format(name=module, version=version, main=main, extends=extends)
