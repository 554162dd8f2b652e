"""`cdc notify test`: sends a test message to the receivers of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError


@click.group("notify")
def group() -> None:
    """Send a test message to the receivers of [notify]."""


@group.command("test")
@click.argument("name", required=False)
@config_option
@json_option
def test_command(name: str | None, config_path: Path | None, as_json: bool) -> int:
    """Send a test message to the receiver NAME (default: all).

    The command shows the answer. A receiver of kind heartbeat gets one of its requests.
    """
    from cdc.notify.notifier import Receiver, new_id
    from cdc.notify.post import NotDelivered
    from cdc.notify.trouble_set import Message

    config, clock = configuration(config_path), SystemClock()
    if not config.notify:
        raise UsageError("no receiver is configured", hint="add a table [notify.NAME], see docs/howto/notify.md")
    if name is not None and name not in config.notify:
        raise UsageError(
            f"no receiver {name!r} in the configuration", hint=f"configured: {', '.join(sorted(config.notify))}"
        )
    chosen = [name] if name is not None else sorted(config.notify)
    receivers = [Receiver(one, config.notify[one], config.name, clock) for one in chosen]
    results: list[dict[str, Any]] = []
    for receiver in receivers:
        status, error = None, None
        try:
            status = receiver.deliver(Message("test"), new_id())
        except NotDelivered as failure:
            error = failure.why
        results.append({"name": receiver.name, "kind": receiver.settings.kind, "status": status, "error": error})
    if as_json:
        output.show_json({"receivers": results})
    else:
        for one in results:
            if one["error"] is None:
                output.done(f"{one['name']}: the receiver accepted the message (HTTP {one['status']})")
            else:
                output.refused(f"{one['name']}: {one['error']}")
    return EXIT_OK if all(one["error"] is None for one in results) else EXIT_FAILED
