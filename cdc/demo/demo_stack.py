"""The stack of the demo: its servers, and its cdc.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from cdc.errors import LocalError
from cdc.local.owned_stack import OwnedStack, Owner
from cdc.local.ports import choose_ports
from cdc.local.stack import Stack
from cdc.shop.config_text import LAKE, STORES, VIEW_STORES, sink_section

NAME: Final = "demo"
"""`name` in cdc.toml: the prefix of topics, slot and publication."""

OWNER: Final = Owner("demo", "demo", "python -m cdc.demo --stack demo-2")

_CONFIG: Final = """\
name = "{name}"                          # topics: {name}.<schema>.<table>

[source]
dsn = "{dsn}"
tables = ["public.pgbench_*", "shop.*"]
keyless = ["public.pgbench_history"]   # no key: its topic is not compacted

[kafka]
bootstrap = "{bootstrap}"
replication_factor = 1                 # one broker, on this machine:
allow_unreplicated = true              # leave both out in production

[http]
listen = "127.0.0.1:{port}"             # /status /metrics /readyz
"""
_SPARK: Final = """
[sinks.lake.spark]                     # it runs for two minutes: compile quickly rather than well
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def start_servers(stack: Stack) -> None:
    """Start the servers with `cdc local up`, which shows its downloads."""
    servers = [server.name for server in stack.servers]
    command = ["cdc", "local", "up", *servers, "--stack", stack.name]
    if subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, check=False).returncode:
        raise LocalError("cannot start the servers", hint="the lines above show why", command=" ".join(command))


def write_config(owned: OwnedStack, views: Path | None) -> str:
    """Write cdc.toml for the running servers, with sinks if there is a folder of views. Returns its text."""
    port = choose_ports(["http"], wanted={}, remembered={})["http"]
    stack = owned.stack
    text = _CONFIG.format(name=NAME, dsn=stack.postgres.printable_dsn, bootstrap=stack.kafka.bootstrap, port=port)
    if views is not None:
        for sink in (*STORES, *VIEW_STORES, LAKE):
            text += sink_section(
                sink, search=stack.opensearch.url, cache=stack.valkey.url, path=owned.lake, views=views
            )
        text += _SPARK
    owned.config.write_text(text, encoding="utf-8")
    return text
