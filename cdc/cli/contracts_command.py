"""`cdc contracts`: event contracts against what is recorded, and a page of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cdc.cli import output
from cdc.cli.command_options import json_option

if TYPE_CHECKING:
    from outbox.compatibility import Mode
    from outbox.contract_check import Finding
    from outbox.event_contracts import ContractId
    from outbox.json_schema import Schema
    from outbox.upcast import Upcasters

_FOLDER: Final = click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path("contracts"), required=False
)
_MODE: Final = click.option(
    "--mode",
    type=click.Choice(["backward", "forward", "full"]),
    default="backward",
    show_default=True,
    help="New readers read old events, old readers read new ones, or both.",
)
_UPCASTERS: Final = click.option(
    "--upcasters", "upcasters_name", metavar="MODULE:NAME", help="The application's outbox.upcast.Upcasters."
)
_REGISTRY: Final = click.option(
    "--registry", metavar="URL", envvar="TAILRACE_CONTRACTS_REGISTRY", show_envvar=True,
    help="A schema registry in place of the record in the folder.",
)  # fmt: skip


@click.group("contracts")
def group() -> None:
    """Event contracts: JSON Schemas in a folder or registry, one for each type and version."""


@group.command("check")
@_FOLDER
@_MODE
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True),
    help="A folder or record to compare with  [default: FOLDER/contracts.lock.json].",
)
@_REGISTRY
@_UPCASTERS
@json_option
def check_command(
    folder: Path, mode: Mode, against: Path | None, registry: str | None, upcasters_name: str | None, as_json: bool
) -> int:
    """Refuse contracts in FOLDER that break what is recorded, or an older version. Exit code 1 when some do.

    What is recorded must still be there, and may change only as --mode allows; so does each version after the one
    before, unless an upcaster leads to it. Examples in contracts are tried, and what upcasters make of them.
    """
    from cdc.errors import EXIT_FAILED, EXIT_OK

    count, found = _check(folder, mode, against or registry, upcasters_name)
    if as_json:
        output.show_json({"contracts": count, "mode": mode, "findings": [one._asdict() for one in found]})
    else:
        _say(count, found)
    return EXIT_FAILED if found else EXIT_OK


@group.command("record")
@_FOLDER
@_MODE
@_REGISTRY
@_UPCASTERS
@click.option("--accept-breaking", is_flag=True, help="Record what breaks, too: nobody reads the old events any more.")
def record_command(
    folder: Path, mode: Mode, registry: str | None, upcasters_name: str | None, accept_breaking: bool
) -> int:
    """Write FOLDER/contracts.lock.json, or into a registry: what later checks compare with.

    Refused while `check` refuses. A registry holds changes against its own compatibility level, too.
    """
    from cdc.errors import EXIT_FAILED, EXIT_OK
    from outbox.event_contracts import LOCK, lock_text, read_folder

    count, found = _check(folder, mode, registry, upcasters_name)
    if found and not accept_breaking:
        _say(count, found)
        return EXIT_FAILED
    with _translated():
        if registry is not None:
            from outbox.contract_registry import ContractRegistry

            written = ContractRegistry(registry).write(read_folder(folder))
            output.done(f"released {len(written)} of {count} contracts; the others are there as they are")
            return EXIT_OK
        (folder / LOCK).write_text(lock_text(read_folder(folder)), encoding="utf-8")
    output.done(f"recorded {count} contracts in {folder / LOCK}")
    return EXIT_OK


@group.command("docs")
@_FOLDER
@_REGISTRY
@click.option("--title", default="Events", show_default=True, help="Of the page.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the page into a file.")
def docs_command(folder: Path, registry: str | None, title: str, out: Path | None) -> None:
    """Print a page of all events in Markdown: fields, types, examples."""
    with _translated():
        from outbox.contract_page import page
        from outbox.event_contracts import Contracts

        text = page(Contracts(_released(registry)) if registry is not None else Contracts.load(folder), title)
    if out is None:
        output.show_script(text)
    else:
        out.write_text(text, encoding="utf-8")
        output.done(f"wrote {out}")


def _released(registry: str) -> dict[ContractId, Schema]:
    from outbox.contract_registry import ContractRegistry

    return ContractRegistry(registry).read()


def _check(
    folder: Path, mode: Mode, against: Path | str | None, upcasters_name: str | None
) -> tuple[int, list[Finding]]:
    with _translated():
        from outbox.contract_check import check
        from outbox.event_contracts import LOCK, Contracts, read_folder, read_lock

        now = Contracts.load(folder)
        place = against or folder / LOCK
        if isinstance(place, str):
            ours = {of.aggregate_type for of in now.schemas}
            recorded = {of: schema for of, schema in _released(place).items() if of.aggregate_type in ours}
        elif place.is_dir():
            recorded = read_folder(place)
        elif place.is_file():
            recorded = read_lock(place)
        else:
            recorded = {}
            output.note(f"nothing is recorded yet; `cdc contracts record {folder}` does it")
        return len(now), check(now, recorded, mode=mode, upcasters=_upcasters(upcasters_name))


def _say(count: int, found: list[Finding]) -> None:
    for one in found:
        output.refused(f"{one.event}{f' at {one.path}' if one.path else ''}: {one.what}")
    if found:
        output.note("make a new version of the contract, with an upcaster from the one before")
    else:
        output.done(f"{count} contracts, none breaks what was promised")


def _upcasters(name: str | None) -> Upcasters | None:
    """What ``module:name`` is; modules of the working directory are found, as with ``python -m``."""
    from cdc.errors import UsageError
    from outbox.upcast import Upcasters

    if name is None:
        return None
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(importlib.import_module(module), attribute or "upcasters")
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--upcasters {name}: {type(error).__name__}", hint="as shop.events:upcasters") from error
    finally:
        sys.path.pop(0)
    if not isinstance(found, Upcasters):
        raise UsageError(f"--upcasters {name} is no outbox.upcast.Upcasters")
    return found


@contextmanager
def _translated() -> Iterator[None]:
    from cdc.errors import ConfigError
    from outbox.errors import OutboxError

    try:
        yield
    except OutboxError as error:
        raise ConfigError(error.message, hint=error.hint) from error
    except OSError as error:
        raise ConfigError(f"{error.strerror}: {error.filename}") from error
    except ModuleNotFoundError as error:
        if error.name != "jsonschema_rs":
            raise
        raise ConfigError(
            "the package 'jsonschema-rs' is not installed; contracts need it",
            hint="it is an extra",
            command="pip install 'tailrace[capture,outbox]'",
        ) from error
