"""Runs all checks of `cdc doctor`. A server that cannot be reached is a finding too, and the other checks still run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cdc.config.settings import Config
from cdc.doctor.action_checks import RIGHTS, check_actions
from cdc.doctor.broker_checks import check_broker, wanted_topics
from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.gather import APPLICATION_NAME, gather
from cdc.doctor.outbox_checks import check_outbox
from cdc.doctor.sink_checks import examine_sinks
from cdc.doctor.sink_rights import missing_rights
from cdc.doctor.source_checks import check_source
from cdc.doctor.source_facts import SourceFacts
from cdc.doctor.start_checks import with_verdict
from cdc.doctor.table_checks import check_tables, check_topic_fit
from cdc.doctor.transport_checks import check_transport
from cdc.errors import ConfigError, TailraceError
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import TopicFacts
from cdc.kafka.schema_registry import ConfluentRegistry
from cdc.model.left_out import LeftOut
from cdc.model.topic_names import actions_topic
from cdc.startup.judgement import Verdict
from cdc.startup.start_facts import describe_internal, forecast_start

BROKER_TIMEOUT_S = 10.0


def examine(config: Config) -> tuple[list[Finding], Verdict]:
    """Return all findings in the order of their groups, and how a start would end.

    Raises: ConfigError only, for a setting that cannot be used.
    """
    facts, found = examine_source(config)
    verdict, _, left_out, log = forecast_start(config, application_name=APPLICATION_NAME)
    found += check_topic_fit(left_out or ())
    known = {**log.topics, **log.internal} if log is not None else {}
    broker = examine_broker(config, facts, left_out or (), known)
    answers = all(one.check != "broker" or one.level is Level.OK for one in broker)
    sinks = examine_sinks(config, BROKER_TIMEOUT_S if answers else None)
    capture = with_verdict([*found, *broker, *examine_registry(config)], verdict)
    order = list(Group)
    found = [*capture, *sinks, *check_transport(config, os.environ)]
    return sorted(found, key=lambda finding: order.index(finding.group)), verdict


def examine_source(config: Config) -> tuple[SourceFacts | None, list[Finding]]:
    """Return the source's facts (None if it cannot be read) and the findings about it."""
    try:
        facts = gather(config)
    except ConfigError:
        raise
    except TailraceError as error:
        return None, [_of(error, Group.SOURCE, "source")]
    return facts, [*check_source(facts, config), *check_tables(facts, config), *check_outbox(facts, config)]


def examine_broker(
    config: Config,
    facts: SourceFacts | None,
    left_out: Sequence[LeftOut] = (),
    known: Mapping[str, TopicFacts | None] | None = None,
) -> list[Finding]:
    """Return the findings about the broker; without `facts` of the source only its control topics are checked.

    A start leaves out tables without a usable topic, so their topics are no errors. `known` topics are not read again:
    the settings of 10,000 topics take seconds.
    """
    lacking = {one.table for one in left_out if one.reason == "no_topic"}
    tables = facts.tables if facts is not None else ()
    wants = wanted_topics(config, [table for table in tables if table.table not in lacking])
    try:
        admin = TopicAdmin(config.kafka, client_id="cdc-doctor")
        cluster = admin.broker_facts(timeout_s=BROKER_TIMEOUT_S)
        topics = dict(known or describe_internal(admin))
        unread = [want.spec.topic for want in wants if want.spec.topic not in topics]
        topics |= admin.describe(unread, timeout_s=BROKER_TIMEOUT_S)
        of_actions = actions_topic(config.name)
        actions = admin.describe([of_actions], timeout_s=BROKER_TIMEOUT_S)[of_actions]
        lacks = missing_rights(config, of_actions, RIGHTS, admin) if actions is not None else []
    except ConfigError:
        raise
    except TailraceError as error:
        return [_of(error, Group.BROKER, "broker")]
    return [*check_broker(cluster, wants, topics, config), *check_actions(config, actions, lacks)]


def examine_registry(config: Config) -> list[Finding]:
    """Check that the schema registry answers; only with Avro."""
    if config.encode.format != "avro":
        return []
    registry = ConfluentRegistry(config.registry)
    try:
        level = registry.level()
    except TailraceError as error:
        return [_of(error, Group.REGISTRY, "registry")]
    finally:
        registry.close()
    text = f"the schema registry answers; its default compatibility is {level}"
    return [Finding(group=Group.REGISTRY, level=Level.OK, check="registry", message=text)]


def _of(error: TailraceError, group: Group, check: str) -> Finding:
    hint = f"; {error.hint}" if error.hint else ""
    return Finding(group=group, level=Level.ERROR, check=check, message=f"{error.message}{hint}", command=error.command)
