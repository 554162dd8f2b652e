"""`cdc audit`: compares the topics with the cut index."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cdc.cli import output
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.errors import EXIT_OK, TailraceError, TopicMismatch, UsageError
from cdc.lsn import Lsn
from cdc.model import units

if TYPE_CHECKING:
    from cdc.audit.audit_report import AuditReport
    from cdc.kafka.log_reader import LogReader

_SHOWN_MAX: Final = 20


@click.command("audit")
@click.option(
    "--topic", "topics", multiple=True, help="Audit only topics that match this pattern; repeatable  [default: all]."
)
@click.option(
    "--from-lsn",
    "from_text",
    help="Audit only commits at this LSN or later, in the newest epoch  [default: all].",
)
@click.option("--since-last", is_flag=True, help="Continue after the last audit, and record how far this one came.")
@config_option
@json_option
def command(
    topics: tuple[str, ...], from_text: str | None, since_last: bool, config_path: Path | None, as_json: bool
) -> int:
    """Compare the topics with the counts and hashes in the cut index.

    Finds partial transactions, and records that were lost, added, duplicated or altered after capture wrote them.
    Capture may run at the same time. Exit code 3 when anything differs.
    """
    from cdc.audit.audit_report import damaged

    if since_last and (from_text or topics):
        raise UsageError("--since-last cannot be combined with --from-lsn or --topic", hint="leave those out")
    config, clock = configuration(config_path), SystemClock()
    began_s = clock.monotonic_s()
    with output.waiting(f"reading the topics from Kafka at {config.kafka.bootstrap}"):
        report = _audit(config, topics, from_text, since_last=since_last)
    seconds = clock.monotonic_s() - began_s
    if as_json:
        output.show_json({"name": config.name, **report.document, "seconds": round(seconds, 3)})
    else:
        _show(report, seconds)
    if report.findings:
        raise damaged(report.findings[0], report.finding_count, config.name)
    return EXIT_OK


def _audit(config: Config, topics: tuple[str, ...], from_text: str | None, *, since_last: bool) -> AuditReport:
    from cdc.audit.audit_start import write_audit_record
    from cdc.audit.auditor import AuditLimits, Auditor
    from cdc.audit.horizon import CompactionHorizon
    from cdc.kafka.admin import TopicAdmin
    from cdc.kafka.log_reader import LogReader

    clock = SystemClock()
    with LogReader(config.kafka, client_id="tailrace-audit") as reader:
        horizon = CompactionHorizon(reader, TopicAdmin(config.kafka), clock)
        auditor = Auditor(reader, horizon, config.name, clock, AuditLimits(patterns=topics or ("*",)))
        try:
            auditor.begin(_beginning(reader, config.name, from_text, since_last=since_last))
        except TopicMismatch as error:
            raise _no_cuts(config) from error
        auditor.catch_up()
        auditor.check_tail(wait=True)
        _refuse_empty(config, auditor.report, topics)
    if since_last and not auditor.report.finding_count:
        write_audit_record(config.kafka, config.name, auditor)
    return auditor.report


def _beginning(reader: LogReader, name: str, from_text: str | None, *, since_last: bool) -> int | None:
    from cdc.audit.audit_start import resume_offset
    from cdc.cutindex.lookup import index_offset_before

    if since_last:
        return resume_offset(reader, name)
    if from_text is None:
        return None
    try:
        return index_offset_before(reader, name, Lsn.parse(from_text))
    except ValueError as error:
        raise UsageError(f"invalid LSN {from_text!r}", hint="expected e.g. 0/1B014F8") from error


def _no_cuts(config: Config) -> TailraceError:
    from cdc.model.topic_names import cuts_topic

    topic = cuts_topic(config.name)
    return TopicMismatch(
        f"topic {topic!r} has no cuts to compare with",
        hint="start capture first, or check `name` and kafka.bootstrap",
        command="cdc run",
        topic=topic,
    )


def _refuse_empty(config: Config, report: AuditReport, topics: tuple[str, ...]) -> None:
    if report.began is None and report.reached is None:
        raise _no_cuts(config)
    if topics and not report.partitions and not report.hidden and not report.findings:
        raise UsageError(
            f"no topic with records in these cuts matches {', '.join(topics)}",
            hint=f"topic names look like {config.name}.public.orders",
        )


def _show(report: AuditReport, seconds: float) -> None:
    for finding in report.findings[:_SHOWN_MAX]:
        output.refused(f"{finding.kind.value}: {finding.text}")
    if report.finding_count > _SHOWN_MAX:
        output.refused(f"and {report.finding_count - _SHOWN_MAX} more; --json shows up to 1,000")
    for text in report.hidden_texts:
        output.note(text)
    begin = "the beginning of the log" if report.began is None else str(report.began.end_lsn)
    end = report.reached.end_lsn if report.reached is not None else begin
    partitions = units.count(len(report.partitions), "partition")
    counts = f"{units.count(report.records, 'record')} ({units.size(report.bytes)}) in {partitions}"
    scope = f"{units.count(report.cuts, 'cut')}, {counts}, from {begin} to {end}, in {seconds:.1f} s"
    if report.finding_count:
        output.note(f"compared {scope}")
    else:
        output.done(f"audit passed, every comparable record matches: {scope}")
