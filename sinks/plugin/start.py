"""Builds the target of a sink whose kind another package provides."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cdc.config.sink_plugins import package, plugin
from cdc.errors import SinkUnfit, TailraceError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from cdc.config.settings import Config, Plugin
    from sinks.contract import Target, TargetFactory


def target(config: Config, name: str, settings: Plugin) -> Target:
    """Return the target of the sink `name`. Raises SinkUnfit when the package cannot be loaded or its factory fails."""
    entry = plugin(settings.plugin)
    if entry is None:
        raise SinkUnfit(
            f"sink {name!r}: no installed package provides the kind {settings.plugin!r}",
            hint="install the package that provides it",
            sink=name,
        )
    options = {option: secret.reveal() for option, secret in settings.options.items()}
    try:
        factory = cast("TargetFactory", entry.load())  # an entry point of the group is a factory by contract
        return factory(config.name, name, options)
    except TailraceError:
        raise
    except Exception as error:  # code of another package may raise anything
        raise _failed(entry, name, error) from error


def _failed(entry: EntryPoint, name: str, error: Exception) -> SinkUnfit:
    """Only the class of the error: its text may contain a secret of the options."""
    what = "cannot be imported" if isinstance(error, ImportError | AttributeError) else "rejects its options"
    return SinkUnfit(
        f"sink {name!r}: {entry.value} of {package(entry)} {what}: {type(error).__name__}",
        hint=f"check [sinks.{name}.options] and the installation of the package",
        sink=name,
    )
