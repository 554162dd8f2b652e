"""Renders the cdc.toml of `cdc init`. Pure: facts about the database in, commented TOML out.

The file can be used at once: tables without a key are excluded by name, with the reason beside them. Passwords are
never written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.config.secret import SECRET_PARAMETERS, Secret
from cdc.doctor.source_facts import SourceFacts
from cdc.doctor.table_checks import RESERVED_SCHEMAS
from cdc.doctor.toml_text import table_pattern, toml_string
from cdc.model import units
from cdc.patterns import pattern_for
from cdc.replication.table_shape import SourceTable

_SECRETS: Final = SECRET_PARAMETERS
_TABLES_SHOWN: Final = 100
_NAME_LENGTH_MAX: Final = 40  # the pattern of `Config.name`


@dataclass(frozen=True, slots=True)
class NewConfig:
    """The inputs of the file. `local`: a single broker, for development."""

    name: str
    dsn: Secret
    bootstrap: str
    local: bool
    facts: SourceFacts


def suggested_name(database: str) -> str:
    """Return a pipeline name for a database: lower-case letters, digits and ``_``, starting with a letter."""
    name = re.sub(r"[^a-z0-9_]+", "_", database.lower()).strip("_")[:_NAME_LENGTH_MAX].strip("_")
    return name if name[:1].isalpha() else f"db_{name}"[:_NAME_LENGTH_MAX].rstrip("_")


def without_password(dsn: Secret) -> str:
    """Return the connection string without secrets: as a URL where that is enough, else as ``key=value`` pairs."""
    given = {k: str(v) for k, v in conninfo_to_dict(dsn.reveal()).items() if v is not None and k not in _SECRETS}
    host = given.get("host", "")
    if not host or host.startswith("/") or "," in host + given.get("port", "") or "hostaddr" in given:
        return make_conninfo("", **given)
    rest = {key: value for key, value in given.items() if key not in {"host", "port", "user", "dbname"}}
    user = f"{quote(given['user'], safe='')}@" if "user" in given else ""
    place = f"[{host}]" if ":" in host else quote(host, safe="")
    port = f":{given['port']}" if "port" in given else ""
    database = f"/{quote(given['dbname'], safe='')}" if "dbname" in given else ""
    options = "&".join(f"{key}={quote(value, safe='')}" for key, value in rest.items())
    return f"postgresql://{user}{place}{port}{database}{'?' if options else ''}{options}"


def has_password(dsn: Secret) -> bool:
    """Return whether the connection string has a secret that the file omits."""
    given = conninfo_to_dict(dsn.reveal())
    return any(given.get(key) for key in _SECRETS)


def captured(facts: SourceFacts) -> list[SourceTable]:
    """Return the tables that the file selects."""
    return [table for table in facts.tables if not table.problem and table.namespace not in RESERVED_SCHEMAS]


def left_out(facts: SourceFacts) -> list[tuple[SourceTable, str]]:
    """Return the tables that the file does not select, with the reasons."""
    reserved = "Tailrace uses topics with this schema's name itself"
    return [
        (table, table.problem or reserved)
        for table in facts.tables
        if table.problem or table.namespace in RESERVED_SCHEMAS
    ]


def render(new: NewConfig) -> str:
    """Return the text of the file."""
    facts = new.facts
    version = facts.settings.get("server_version", "")
    return f"""\
# Written by `cdc init` from database {_comment(facts.database)} of PostgreSQL {version}.
# Check it with `cdc doctor`, then `cdc run`. Every key is in docs/reference/config.md.

# Prefix of topics, slot, publication and transactional id. Never change it once capture has run.
name = {toml_string(new.name)}

[source]
dsn = {toml_string(without_password(new.dsn))}
# The password is not stored here. Set TAILRACE_SOURCE_PASSWORD or PGPASSFILE (~/.pgpass), or name a file:
# password_file = "/run/secrets/source_password"

# Shell patterns for schema.table; ! excludes; the last match wins.
tables = [
{table_lines(facts)}
]
{_summary(facts)}
# Tables to capture without a key: their records have no key, and their topics are not compacted.
# keyless = [{", ".join(table_pattern(table) for table, _ in _keyless(facts)[:1])}]

# slot = "cdc_{new.name}"
# publication = "cdc_{new.name}"
# create = true         # false: create slot and publication yourself, see `cdc doctor --sql`
# on_truncate = "delete"  # delete every key from the topic; or "stop", or "ignore"

[kafka]
bootstrap = {toml_string(new.bootstrap)}
partitions = 4          # of new topics; a key never changes its partition afterwards
{_replication(new)}

# [kafka.options]       # any librdkafka option; secrets also as <option>_file or from the environment
# security.protocol = "SASL_SSL"
# sasl.mechanism = "SCRAM-SHA-512"
# sasl.username = "cdc"
# sasl.password_file = "/run/secrets/kafka_password"

# [toast]
# mode = "reselect"     # read large values that an update did not change from the table; or "omit"
# tables = {{"public.docs_*" = "omit"}}

# [ddl]
# policy = "resnapshot"   # after DDL that changes rows without row events: read the table again; or "warn", "stop"

# [http]
# listen = "127.0.0.1:8087"   # /livez /readyz /metrics /status
"""


def table_lines(facts: SourceFacts) -> str:
    """Return the items of the list `tables`, one per line, with the reasons for exclusions as comments."""
    schemas = sorted({table.namespace for table in captured(facts)}) or ["public"]
    lines = [f"    {toml_string(pattern_for(schema) + '.*')}," for schema in schemas]
    for table, reason in left_out(facts):
        # Capture leaves out tables that PostgreSQL cannot publish; the file must exclude the other ones.
        if table.namespace in schemas and not table.unpublishable:
            lines += [f"    # {_comment(reason)}", f"    {table_pattern(table, exclude=True)},"]
    return "\n".join(lines)


def _summary(facts: SourceFacts) -> str:
    """Return comments that list the selected tables, and what to do about the others."""
    lines = ["", f"# They select {units.count(len(captured(facts)), 'table')} now:"]
    lines += [
        f"#   {_comment(table.table)}  key ({', '.join(_comment(column) for column in table.key)})"
        for table in captured(facts)[:_TABLES_SHOWN]
    ]
    if len(captured(facts)) > _TABLES_SHOWN:
        lines.append(f"#   and {len(captured(facts)) - _TABLES_SHOWN} more")
    if _keyless(facts):
        lines += [
            "# The tables excluded above have no usable key. Add a primary key, or use a unique index over NOT NULL",
            "# columns as REPLICA IDENTITY, and delete the line; or delete the line and list the table in keyless.",
        ]
    others = [(table, reason) for table, reason in left_out(facts) if table.unpublishable]
    if others:
        lines.append("# Left out, because PostgreSQL cannot publish them:")
        lines += [f"#   {_comment(table.table)}: {_comment(reason)}" for table, reason in others[:_TABLES_SHOWN]]
    return "\n".join([*lines, ""])


def _keyless(facts: SourceFacts) -> list[tuple[SourceTable, str]]:
    return [(table, reason) for table, reason in left_out(facts) if not table.key and not table.unpublishable]


def _replication(new: NewConfig) -> str:
    if new.local:
        return "replication_factor = 1  # one local broker; use 3 on a real cluster\nallow_unreplicated = true"
    return "replication_factor = 3  # a lower factor needs allow_unreplicated = true"


def _comment(text: str) -> str:
    """Escape a text for a comment: on one line, quoted if it is not plain."""
    return text if re.fullmatch(r"[\w .,:;()/'-]*", text, re.ASCII) else toml_string(text)
