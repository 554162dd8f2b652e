"""Reports what the environment changes in the configuration: on stderr for a command, in the log for a process."""

from __future__ import annotations

from pathlib import Path

from cdc.cli import output
from cdc.config.config_file import ConfigFile
from cdc.config.environment import IDENTITY, PREFIX, Override, overrides, unknown_variables

_LEADS_TO = {"name": "another pipeline", "source.dsn": "another database", "kafka.bootstrap": "another Kafka cluster"}


def note_conflicts(file: ConfigFile) -> None:
    """Print a warning for every setting that identifies the pipeline, if the environment and the file differ."""
    if any(f"{PREFIX}{key.replace('.', '_')}".upper() in file.environ for key in IDENTITY):
        for one in overrides(file.raw, file.environ):
            if one.conflicts:
                output.note(f"warning: {conflict_text(one, file.path)}")


def log_environment(file: ConfigFile) -> None:
    """Log every setting that the environment sets, by name, and every variable that matches no setting."""
    from cdc.telemetry import log

    for one in overrides(file.raw, file.environ):
        if one.conflicts:
            log.get().warning(
                "identity_overridden", setting=one.key, variable=one.variable, message=conflict_text(one, file.path)
            )
        else:
            log.get().info("setting_from_environment", setting=one.key, variable=one.variable, in_file=one.in_file)
    for variable, near in unknown_variables(file.raw, file.environ):
        log.get().warning("variable_unknown", variable=variable, message=unknown_text(variable, near))


def conflict_text(one: Override, file: Path) -> str:
    """Return the sentence about a setting that leads elsewhere than the file says."""
    return f"{one.variable} overrides {one.key} of {file} and leads to {_LEADS_TO[one.key]}; unset it to use the file"


def unknown_text(variable: str, near: str) -> str:
    """Return the sentence about a variable that has no effect."""
    return f"{variable} matches no setting and has no effect" + (f"; did you mean {near}?" if near else "")
