"""`cdc contracts`: checks, records and documents event contracts."""

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
from cdc.errors import EXIT_FAILED, EXIT_OK, ConfigError, UsageError

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
    help="Allowed changes: new readers read old events, old readers read new ones, or both.",
)
_UPCASTERS: Final = click.option(
    "--upcasters",
    "upcasters_name",
    metavar="MODULE:NAME",
    help="The application's outbox.upcast.Upcasters  [default: none].",
)
_REGISTRY: Final = click.option(
    "--registry", metavar="URL", envvar="TAILRACE_CONTRACTS_REGISTRY", show_envvar=True,
    help="Schema registry to use instead of the record in FOLDER.",
)  # fmt: skip


@click.group("contracts")
def group() -> None:
    """Check, record and document event contracts.

    A contract is a JSON Schema in a folder or registry, one for each event type and version.
    """


@group.command("check")
@_FOLDER
@_MODE
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True),
    help="Folder or record to compare with  [default: FOLDER/contracts.lock.json].",
)
@_REGISTRY
@_UPCASTERS
@json_option
def check_command(
    folder: Path, mode: Mode, against: Path | None, registry: str | None, upcasters_name: str | None, as_json: bool
) -> int:
    """Compare the contracts in FOLDER with the recorded ones.

    FOLDER: folder of contracts (default: contracts).

    A recorded contract must still exist and may change only as --mode allows. The same holds between a version and the
    next one, unless an upcaster connects them. Examples in contracts are validated, before and after upcasting.
    Exit code 1 when a contract breaks a rule.
    """
    count, found = _check(folder, mode, against or registry, upcasters_name)
    if as_json:
        output.show_json({"contracts": count, "mode": mode, "findings": [one._asdict() for one in found]})
    else:
        _print_findings(count, found)
    return EXIT_FAILED if found else EXIT_OK


@group.command("record")
@_FOLDER
@_MODE
@_REGISTRY
@_UPCASTERS
@click.option(
    "--accept-breaking", is_flag=True, help="Record breaking changes too, when no reader needs the old events."
)
def record_command(
    folder: Path, mode: Mode, registry: str | None, upcasters_name: str | None, accept_breaking: bool
) -> int:
    """Record the contracts in FOLDER for later checks.

    Writes FOLDER/contracts.lock.json, or into a registry, which also applies its own compatibility level. Fails
    when `cdc contracts check` fails.
    """
    from outbox.event_contracts import LOCK, lock_text, read_folder

    count, found = _check(folder, mode, registry, upcasters_name)
    if found and not accept_breaking:
        _print_findings(count, found)
        return EXIT_FAILED
    with _translated():
        if registry is not None:
            from outbox.contract_registry import ContractRegistry

            written = ContractRegistry(registry).write(read_folder(folder))
            output.done(f"wrote {len(written)} of {count} contracts to the registry; the others are unchanged")
            return EXIT_OK
        (folder / LOCK).write_text(lock_text(read_folder(folder)), encoding="utf-8")
    output.done(f"recorded {count} contracts in {folder / LOCK}")
    return EXIT_OK


@group.command("docs")
@_FOLDER
@_REGISTRY
@click.option("--title", default="Events", show_default=True, help="Title of the page.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to this file  [default: stdout]."
)
def docs_command(folder: Path, registry: str | None, title: str, out: Path | None) -> None:
    """Print all events as a Markdown page: fields, types, examples."""
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
        against = against or folder / LOCK
        if isinstance(against, str):
            ours = {of.aggregate_type for of in now.schemas}
            recorded = {of: schema for of, schema in _released(against).items() if of.aggregate_type in ours}
        elif against.is_dir():
            recorded = read_folder(against)
        elif against.is_file():
            recorded = read_lock(against)
        else:
            recorded = {}
            output.note(f"no contract is recorded yet; run `cdc contracts record {folder}`")
        return len(now), check(now, recorded, mode=mode, upcasters=_upcasters(upcasters_name))


def _print_findings(count: int, found: list[Finding]) -> None:
    for one in found:
        output.refused(f"{one.event}{f' at {one.path}' if one.path else ''}: {one.what}")
    if found:
        output.note("add a new version of the contract, with an upcaster from the previous one")
    else:
        output.done(f"{count} contracts, no breaking change")


def _upcasters(name: str | None) -> Upcasters | None:
    """Import the `Upcasters` at ``module:name``; modules of the working directory are found too."""
    from outbox.upcast import Upcasters

    if name is None:
        return None
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(importlib.import_module(module), attribute or "upcasters")
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"cannot import --upcasters {name}: {type(error).__name__}",
            hint="expected MODULE:NAME, e.g. shop.events:upcasters",
        ) from error
    finally:
        sys.path.pop(0)
    if not isinstance(found, Upcasters):
        raise UsageError(f"--upcasters {name} is not an outbox.upcast.Upcasters")
    return found


@contextmanager
def _translated() -> Iterator[None]:
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
            "contracts need the package 'jsonschema-rs', which is not installed",
            hint="install the extra",
            command="pip install 'tailrace[capture,outbox]'",
        ) from error
