"""`cdc reload`: lets running capture, or the process of a sink, read its configuration again."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.cli.config_command import NO_DAEMON
from cdc.config.sink_kinds import sink_of
from cdc.errors import ConfigError, SourceUnreachable, TailraceError, UsageError

if TYPE_CHECKING:
    from cdc.config.settings import Config, Http

_SIGNAL = "or run kill -HUP PID on the machine of the process, which needs no token"


@click.command("reload")
@config_option
@click.option("--sink", metavar="NAME", help="Reload the process of `cdc sink run NAME` instead of capture.")
@json_option
def command(config_path: Path | None, sink: str | None, as_json: bool) -> None:
    """Let running capture read its file and its environment again, and apply what can change while it runs.

    Says what it applied, and what needs a restart. If the daemon's file is not valid, nothing changes. Asks the daemon
    over HTTP with the token (http.token); SIGHUP does the same without one. docs/reference/config.md says which
    settings can change. `cdc config diff` shows the differences first.

    With --sink, asks the process of a sink at sinks.NAME.listen. It takes over http.token and http.hosts.
    """
    from cdc.inspect.pipeline_state import post_action

    config = configuration(config_path)
    process = "the daemon" if sink is None else f"the process of sink {sink!r}"
    http = config.http if sink is None else _http_of(config, sink)
    with output.waiting(f"asking {process}"):
        try:
            code, found = post_action(http, config.name if sink is None else f"{config.name}.{sink}", "config.reload")
        except SourceUnreachable as error:
            hint = NO_DAEMON if sink is None else f"run this where sinks.{sink}.listen leads to its process"
            back = "cdc status" if sink is None else f"cdc sink status {sink}"
            raise SourceUnreachable(error.message, hint=f"{hint}, {_SIGNAL}", command=back) from None
    if code != HTTPStatus.OK:
        raise _refusal(code, found, config, process)
    facts = found["facts"]
    if as_json:
        output.show_json(facts | {"recorded": found["recorded"]})
        return
    if found.get("warning"):
        output.note(f"warning: {found['warning']}")
    _show(facts["applied"], facts["restart"], process, "cdc run" if sink is None else f"cdc sink run {sink}")


def _http_of(config: Config, sink: str) -> Http:
    """Return how to reach the process of a sink. Raises UsageError."""
    from cdc.inspect.endpoint_probe import reachable

    listen = sink_of(config, sink).listen
    if not listen:
        raise UsageError(
            f"the process of sink {sink!r} serves no HTTP: sinks.{sink}.listen is not set",
            hint=f"set it and restart the sink, {_SIGNAL}",
        )
    if reachable(listen) is None:
        hint = f"set one and restart the sink, {_SIGNAL}"
        raise UsageError(f"sinks.{sink}.listen has no port to connect to", hint=hint)
    return structs.replace(config.http, listen=listen)


def _show(applied: list[str], restart: list[str], process: str, started_by: str) -> None:
    if not applied and not restart:
        output.done(f"reloaded: nothing differs from what {process} uses")
        return
    if applied:
        output.done(f"applied: {', '.join(applied)}")
    if restart:
        output.note(f"not applied, needs a restart of `{started_by}`: {', '.join(restart)}")


def _refusal(code: int, found: dict[str, Any], config: Config, process: str) -> TailraceError:
    said = str(found.get("error", f"it answered {code}"))
    if code == HTTPStatus.FORBIDDEN:
        return UsageError(f"{process} performs no actions over HTTP: it has no http.token", hint=f"set one, {_SIGNAL}")
    if code == HTTPStatus.UNAUTHORIZED:
        hint = f"{process} still has its former token; TAILRACE_HTTP_TOKEN gives it to this command"
        mine = "does not match http.token here" if config.http.token is not None else "is needed, and none is set here"
        return UsageError(f"the token of {process} {mine}", hint=f"{hint}, {_SIGNAL}")
    return ConfigError(
        f"{process} has not reloaded its configuration: {said}",
        hint=str(found.get("hint", "")) or f"{process} goes on with the settings that it has",
        command="cdc config check",
    )
