"""Writes config.md, metrics.md and errors.md beside itself, from the code they describe.

    python docs/reference/generate.py

tests/tidy/test_reference.py fails while they differ from what this would write.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

import outbox.errors
from cdc import errors
from cdc.config.secret import Secret
from cdc.config.section import section_of
from cdc.config.settings import Cache, Config, Plugin, Search, Section, Warehouse
from cdc.errors import TailraceError
from cdc.model.run_state import State
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.runner_metrics import RunnerMetrics
from cdc.telemetry.supervised_sinks import SupervisedMetrics

FOLDER: Final = Path(__file__).resolve().parent
SINKS: Final = (Warehouse, Search, Cache)
_NOTICE: Final = "<!-- Written by docs/reference/generate.py from {source}; edit that and run it again. -->\n"


def pages() -> dict[str, str]:
    """File name -> text of every generated page."""
    return {"config.md": config_page(), "metrics.md": metrics_page(), "errors.md": errors_page()}


def config_page() -> str:
    """Every key of cdc.toml."""
    lines = [
        "# Configuration",
        "",
        _NOTICE.format(source="cdc/config/settings.py"),
        "`cdc.toml` is read once, at the start. Everything has a default but `name`, `source.dsn` and",
        "`kafka.bootstrap`. A key that is not listed here is an error that names it.",
        "",
        "An environment variable overrides one value of the file; lists are separated by commas. Passwords:",
        "`TAILRACE_SOURCE_PASSWORD` or `source.password_file` go into `source.dsn`; `kafka.options.<option>_file`",
        "reads an option from a file, `TAILRACE_KAFKA_OPTION_<OPTION>` from the environment (dots as underscores);",
        "`registry.options` likewise.",
        "No secret is ever printed or logged.",
        "",
    ]
    hints = get_type_hints(Config, include_extras=True)
    del hints["sinks"]
    top = {name: hint for name, hint in hints.items() if section_of(hint) is None}
    lines += ["## Top level", "", *_keys(Config, top, "")]
    for name, hint in hints.items():
        section = section_of(hint)
        if section is not None:
            lines += ["", f"## [{name}]", "", _first_line(section), ""]
            lines += _keys(section, get_type_hints(section, include_extras=True), name)
    for kind in SINKS:
        title = f"sinks.{kind.__struct_config__.tag}"
        lines += [
            "",
            f"## [{title}], by any name, with `kind = {_quoted(kind.__struct_config__.tag)}`",
            "",
            _first_line(kind),
            "",
        ]
        lines += _keys(kind, get_type_hints(kind, include_extras=True), "", settable=False)
    hints = get_type_hints(Plugin, include_extras=True)
    del hints["plugin"]  # `kind` in the file
    lines += ["", "## [sinks], by any name, with a `kind` of another package", "", _first_line(Plugin), ""]
    lines += _keys(Plugin, hints, "", settable=False)
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Every metric of /metrics."""
    head = ("Metric", "Type", "Labels", "Meaning")
    capture = Metrics()
    return "\n".join(
        [
            "# Metrics",
            "",
            _NOTICE.format(source="cdc/telemetry/metrics.py"),
            "In Prometheus' text format at `/metrics`. Labels are bounded: states and reasons, never keys.",
            "Every sample has the label `pipeline`, and those of a sink `sink`. The standard metrics of a process",
            "(`process_resident_memory_bytes`, `process_cpu_seconds_total`, `process_open_fds` and more) are there.",
            "",
            "A gauge is NaN while its value is unknown. A comparison with NaN is false in an alert, so alert on",
            "`cdc_source_check_age_seconds` as well, and on `absent(cdc_build_info)`.",
            "",
            "## Of capture",
            "",
            *_table(head, _metrics(capture)),
            "",
            "## Of the sinks that `cdc run --with-sinks` keeps",
            "",
            "On the `http.listen` of capture.",
            "",
            *_table(head, _metrics(SupervisedMetrics())),
            "",
            "## Of a sink of kind `warehouse`",
            "",
            "On the `listen` of its own section.",
            "",
            *_table(head, _metrics(LakeMetrics(capture))),
            "",
            "## Of a sink of kind `search` or `cache`",
            "",
            "On the `listen` of its own section, of each of its processes.",
            "",
            *_table(head, _metrics(RunnerMetrics(Metrics()))),
            "",
        ]
    )


def _metrics(declared: Metrics | LakeMetrics | RunnerMetrics | SupervisedMetrics) -> Iterator[tuple[str, ...]]:
    process = getattr(declared, "process", None)
    for metric in [*vars(declared).values(), *(vars(process).values() if process else ())]:
        labels = getattr(metric, "_labelnames", None)
        if labels is None:  # the registry itself
            continue
        (family,) = metric.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation


def errors_page() -> str:
    """Every error and every state."""
    rows = []
    for depth, kind in _tree(TailraceError, 0):
        name = "&nbsp;" * 4 * depth + f"`{kind.__name__}`"
        rows.append((name, kind.retry, kind.state or "", str(kind.exit_code), _first_line(kind)))
    states = [(f"`{state.value}`", "yes" if state.needs_operator else "") for state in State]
    return "\n".join(
        [
            "# Errors and states",
            "",
            _NOTICE.format(source="cdc/errors.py"),
            "Policy follows the class of an error, never its message. *Retry* `timed`: Tailrace retries by itself.",
            "`operator`: it stops and needs an operator. `never`: it is a bug in Tailrace. No message contains a row",
            "value or a secret.",
            "",
            *_table(("Error", "Retry", "State", "Exit code", "Meaning"), rows),
            "",
            "## States",
            "",
            "Exit codes: 0 ok, 1 failed, 2 usage, 3 needs an operator.",
            "",
            *_table(("State", "Needs an operator"), states),
            "",
            "## Errors of the outbox, in applications",
            "",
            "The outbox library has its own tree (`outbox.errors`), because applications do not import the service.",
            "Commands turn `MigrationRefused` into `SourceRefused`. They turn invalid contracts and names into",
            "`ConfigError`.",
            "",
            *_table(("Error", "Meaning"), _outbox_errors()),
            "",
        ]
    )


def _outbox_errors() -> list[tuple[str, str]]:
    rows = []
    for depth, kind in _below(outbox.errors.OutboxError, 0):
        rows.append(("&nbsp;" * 4 * depth + f"`{kind.__name__}`", _first_line(kind)))
    return rows


def _below(kind: type[Exception], depth: int) -> Iterator[tuple[int, type[Exception]]]:
    yield depth, kind
    for child in vars(outbox.errors).values():
        if inspect.isclass(child) and child.__base__ is kind:
            yield from _below(child, depth + 1)


def _tree(kind: type[TailraceError], depth: int) -> Iterator[tuple[int, type[TailraceError]]]:
    yield depth, kind
    for child in vars(errors).values():
        if inspect.isclass(child) and issubclass(child, TailraceError) and child.__base__ is kind:
            yield from _tree(child, depth + 1)


def _keys(section: type[Section], hints: dict[str, Any], prefix: str, *, settable: bool = True) -> list[str]:
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    rows = []
    for name, hint in hints.items():
        kind, meta = _unwrapped(hint)
        key = f"{prefix}.{name}" if prefix else name
        rows.append(
            (
                f"`{key}`",
                _type(kind),
                _default(fields[name], kind),
                _range(meta),
                "" if get_origin(kind) is dict or not settable else f"`TAILRACE_{key.upper().replace('.', '_')}`",
                meta.description or "",
            )
        )
    return list(_table(("Key", "Type", "Default", "Range", "Environment", "Meaning"), rows))


def _unwrapped(hint: Any) -> tuple[Any, Meta]:
    if get_origin(hint) is Annotated:
        kind, *metas = get_args(hint)
        return kind, next(meta for meta in metas if isinstance(meta, Meta))
    return hint, Meta()


def _type(kind: Any) -> str:
    """A type in the words of a TOML file: ``int``, ``"stop" | "omit"``, ``list of string``."""
    arguments = [argument for argument in get_args(kind) if argument not in (..., NoneType)]
    if get_origin(kind) is tuple:
        return f"list of {_type(arguments[0])}"
    if get_origin(kind) is dict:
        return f"table of {_type(arguments[1])}"
    if arguments:
        return " | ".join(_quoted(a) if isinstance(a, str) else _type(a) for a in arguments)
    return {"Secret": "string", "str": "string"}.get(kind.__name__, str(kind.__name__))


def _default(field: msgspec.structs.FieldInfo, kind: Any) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(_quoted(item) for item in value)}]`"
    if isinstance(value, dict):
        return "none"
    assert kind is not Secret
    return f"`{_quoted(value)}`"


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _range(meta: Meta) -> str:
    bounds = [("≥", meta.ge), (">", meta.gt), ("≤", meta.le), ("<", meta.lt)]
    parts = [f"{sign} {bound:,}".replace(",", " ") for sign, bound in bounds if bound is not None]
    return ", ".join(parts) + (f"`{meta.pattern}`" if meta.pattern else "")


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |"


def main() -> None:
    """Write every page."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {len(text.splitlines())} lines\n")


if __name__ == "__main__":
    main()
