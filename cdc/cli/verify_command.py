"""`cdc verify`: compares a sink with the topics and the topics with the tables, row by row, and repairs differences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option, wait_option
from cdc.clock import SystemClock
from cdc.config.settings import Applied, Config
from cdc.config.sink_kinds import applied_of, sink_of
from cdc.errors import EXIT_FAILED, EXIT_OK, UsageError
from cdc.lsn import Lsn
from cdc.model import units

if TYPE_CHECKING:
    from cdc.verify.capture_wait import Notify
    from cdc.verify.findings import TableFindings
    from cdc.verify.key_states import Sample
    from cdc.verify.store_check import ProgressCallback

_NUMBERS: Final = ("compared", "missing", "extra", "stale", "different", "undecided", "expired", "blocked", "repaired")


@click.command("verify")
@click.argument("sink", required=False)
@click.option(
    "--table", "tables", multiple=True, help="Only tables that match this pattern; repeatable  [default: all]."
)
@click.option("--topics", "only_topics", is_flag=True, help="Compare only the topics with the source.")
@click.option("--no-source", is_flag=True, help="Compare only the sink with the topics.")
@click.option(
    "--sample",
    "share",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=1.0,
    help="Compare a random share of the keys, e.g. 0.01  [default: all keys].",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Seed of the share.")
@click.option("--repair", is_flag=True, help="Repair the keys that differ.")
@wait_option
@config_option
@json_option
def command(
    sink: str | None, tables: tuple[str, ...], only_topics: bool, no_source: bool, share: float, seed: int,
    repair: bool, wait_s: float, config_path: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Compare a sink with its topics, and the topics with the source.

    Capture and sinks may run meanwhile, and rows may change: such rows are compared again. A lake is compared with
    the topics only, as of its cut. Exit code 1 when rows differ, are undecided or blocked, or when capture does not
    catch up in time.
    """
    from cdc.verify.key_states import Sample

    config = configuration(config_path)
    if only_topics == (sink is not None):
        raise UsageError("give either a sink or --topics", command="cdc verify --help")
    if sink is not None and not isinstance(sink_of(config, sink), Applied):
        if share < 1 or repair:
            raise UsageError(
                "--sample and --repair do not apply to a lake", hint="rebuild a damaged lake in another folder"
            )
        return _lake(config, sink, tables, as_json=as_json)
    return _rows(
        config, sink, tables, Sample(share, seed), source=not no_source, repair=repair, wait_s=wait_s, as_json=as_json
    )  # fmt: skip


def _rows(
    config: Config, sink: str | None, tables: Sequence[str], sample: Sample, *, source: bool, repair: bool,
    wait_s: float, as_json: bool,
) -> int:  # fmt: skip
    """Compare topics before the sink: what is repaired in the topics reaches the sink through them."""
    from cdc.verify.capture_wait import await_kafka
    from cdc.verify.source_tables import refuse_compatibility
    from cdc.verify.store_check import verify_store
    from cdc.verify.topic_comparison import verify_source
    from sinks.compose import target_of
    from sinks.state.exclusive import claimed

    refuse_compatibility(config)
    clock = SystemClock()
    of_source: list[TableFindings] = []
    of_sink: list[TableFindings] = []
    with contextlib.ExitStack() as held, _progress(as_json=as_json) as (progress, say):
        await_kafka(config, wait_s=wait_s, say=say)
        if sink is not None and repair:
            held.enter_context(claimed(config, sink, "verify --repair", clock))
        if source:
            kept = [*tables] or (list(_tables_of(config, sink)) if sink is not None else [])
            of_source = verify_source(
                config, kept, clock=clock, sample=sample, repair=repair, on_progress=progress, wait_s=wait_s, say=say
            )
        if sink is not None:
            with contextlib.closing(target_of(config, sink, applied_of(config, sink))) as target:
                of_sink = verify_store(
                    config, sink, target, tables, clock=clock, sample=sample, repair=repair, on_progress=progress,
                    wait_s=wait_s, say=say,
                )  # fmt: skip
    ok = bool(of_source or of_sink) and all(found.ok for found in (*of_source, *of_sink))
    if as_json:
        output.show_json(
            {
                "ok": ok,
                "sink": sink,
                "sample": None if sample.share >= 1 else {"share": sample.share, "seed": sample.seed},
                "source_topics": [found.document() for found in of_source],
                "topics_sink": [found.document() for found in of_sink],
            }
        )
        return EXIT_OK if ok else EXIT_FAILED
    if sample.share < 1:
        output.note(f"only {sample.share:.2%} of the keys were compared (seed {sample.seed})")
    for what, findings in (("source and topics", of_source), (f"topics and {sink}", of_sink)):
        if findings:
            _show(what, findings)
    if ok:
        keys = sum(found.compared for found in (*of_source, *of_sink))
        output.done(f"{keys:,} keys compared: all match")
    return EXIT_OK if ok else EXIT_FAILED


def _tables_of(config: Config, sink: str) -> Sequence[str]:
    return config.sinks[sink].tables


@contextlib.contextmanager
def _progress(*, as_json: bool) -> Iterator[tuple[ProgressCallback, Notify]]:
    """Show progress as a spinner if stderr is a terminal; print lines about waiting in any case.

    With `as_json` and no terminal only the error is printed, which names what was waited for.
    """
    out = output.console(stderr=True)
    words = {"fold": "records read", "compare": "rows compared", "again": "keys compared again"}
    if not out.is_terminal:
        yield lambda _, __, ___: None, (lambda _: None) if as_json else output.note
        return
    with out.status(Text("connecting ...", style="dim")) as status:
        yield (
            lambda table, what, count: status.update(
                Text(f"{output.plain(table)}: {count:,} {words[what]} ...", style="dim")
            ),
            lambda text: out.print(Text(output.plain(text), style="dim")),
        )


def _show(what: str, findings: Sequence[TableFindings]) -> None:
    shown = output.table(what, *_NUMBERS, "", right=_NUMBERS)
    for found in findings:
        document = found.document()
        mark = Text("✓", style="bold green") if found.ok else Text("✗", style="bold red")
        shown.add_row(output.plain(found.table), *(f"{document[name]:,}" for name in _NUMBERS), mark)
    output.show_table(shown)
    for found in findings:
        if found.problem:
            output.note(f"{found.table}: not compared: {found.problem}")
        for kind, keys in found.examples.items():
            output.note(f"{found.table}: {kind} {', '.join(keys)}")


def _lake(config: Config, sink: str, tables: tuple[str, ...], *, as_json: bool) -> int:
    from cdc.cli.progress_bars import DownloadBars
    from cdc.run.app import verify_sink

    with DownloadBars() as bars, output.waiting("reading the topics"):
        manifest, reports = verify_sink(config, sink, tables, bars)
    ok = all(report.ok for report in reports)
    if as_json:
        output.show_json(
            {
                "ok": ok,
                "cut": manifest.cut,
                "lsn": str(Lsn(manifest.end_lsn)),
                "tables": [
                    {
                        "table": report.table,
                        "compared": report.compared,
                        "missing": report.missing,
                        "extra": report.extra,
                        "stale": report.stale,
                        "different": report.different,
                        "examples": {kind: list(keys) for kind, keys in report.examples.items()},
                    }
                    for report in reports
                ],
            }
        )
        return EXIT_OK if ok else EXIT_FAILED
    numbers = ("compared", "missing", "extra", "stale", "different")
    shown = output.table("table", *numbers, "", right=numbers)
    for report in reports:
        mark = Text("✓", style="bold green") if report.ok else Text("✗", style="bold red")
        counts = (report.compared, report.missing, report.extra, report.stale, report.different)
        shown.add_row(output.plain(report.table), *(f"{count:,}" for count in counts), mark)
    output.show_table(shown)
    for report in reports:
        for kind, keys in report.examples.items():
            output.note(f"{report.table}: {kind} {', '.join(map(str, keys))}")
    if ok:
        rows = units.count(sum(report.compared for report in reports), "row")
        checked = units.count(len(reports), "table")
        output.done(f"lake and topics are equal at {Lsn(manifest.end_lsn)}: {rows} of {checked}")
    return EXIT_OK if ok else EXIT_FAILED
