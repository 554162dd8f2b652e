"""The cdc.toml that fits a database: pure, what was found in, commented TOML out.

What it writes can run at once: tables without a key are excluded by name, with the reason beside them. Passwords
are never written.
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
from cdc.patterns import pattern_for
from cdc.replication.table_shape import SourceTable

_SECRETS: Final = SECRET_PARAMETERS
_TABLES_SHOWN: Final = 100
_NAME_LENGTH_MAX: Final = 40  # the pattern of `Config.name`


@dataclass(frozen=True, slots=True)
class NewConfig:
    """What the file is made of. `local`: a broker of one, for development."""

    name: str
    dsn: Secret
    bootstrap: str
    local: bool
    facts: SourceFacts


def suggested_name(database: str) -> str:
    """A pipeline's name from a database's: lower-case letters, digits and ``_``, beginning with a letter."""
    name = re.sub(r"[^a-z0-9_]+", "_", database.lower()).strip("_")[:_NAME_LENGTH_MAX].strip("_")
    return name if name[:1].isalpha() else f"db_{name}"[:_NAME_LENGTH_MAX].rstrip("_")


def without_password(dsn: Secret) -> str:
    """The connection string without what is secret: a URL where that says it all, else ``key=value`` pairs."""
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
    """Whether the connection string holds a secret that the file will not have."""
    given = conninfo_to_dict(dsn.reveal())
    return any(given.get(key) for key in _SECRETS)


def captured(facts: SourceFacts) -> list[SourceTable]:
    """The tables the file selects."""
    return [table for table in facts.tables if not table.problem and table.namespace not in RESERVED_SCHEMAS]


def left_out(facts: SourceFacts) -> list[tuple[SourceTable, str]]:
    """The tables it does not, and why."""
    reserved = "topics of this schema's name are Tailrace's own"
    return [
        (table, table.problem or reserved)
        for table in facts.tables
        if table.problem or table.namespace in RESERVED_SCHEMAS
    ]


def render(new: NewConfig) -> str:
    """The file."""
    facts = new.facts
    version = facts.settings.get("server_version", "")
    return f"""\
# Written by `cdc init` from database {_comment(facts.database)} of PostgreSQL {version}.
# Check it with `cdc doctor`, then `cdc run`. Every key is in docs/reference/config.md.

# Prefix of topics, slot, publication and transactional id. Never change it once capture has run.
name = {toml_string(new.name)}

[source]
dsn = {toml_string(without_password(new.dsn))}
# The password is not kept here. Give it by TAILRACE_SOURCE_PASSWORD, PGPASSFILE (~/.pgpass), or a file:
# password_file = "/run/secrets/source_password"

# Shell patterns of schema.table; ! excludes, the last match wins.
tables = [
{_tables(facts)}
]
{_summary(facts)}
# Tables without a key that are captured all the same: records without a key, a topic that is not compacted.
# keyless = [{", ".join(table_pattern(table) for table, _ in _keyless(facts)[:1])}]

# slot = "cdc_{new.name}"
# publication = "cdc_{new.name}"
# create = true         # false: slot and publication are made by hand, see `cdc doctor --sql`
# on_truncate = "delete"  # every key that the topic has; or "stop" before it, or "ignore" it

[kafka]
bootstrap = {toml_string(new.bootstrap)}
partitions = 4          # of topics we create; a key never moves afterwards
{_replication(new)}

# [kafka.options]       # any librdkafka option; secrets also as <option>_file or from the environment
# security.protocol = "SASL_SSL"
# sasl.mechanism = "SCRAM-SHA-512"
# sasl.username = "cdc"
# sasl.password_file = "/run/secrets/kafka_password"

# [toast]
# mode = "reselect"     # large values an update did not change: read again; or "omit"
# tables = {{"public.docs_*" = "omit"}}

# [ddl]
# policy = "resnapshot"   # of DDL that changes rows without an event: read the table again; or "warn", or "stop"

# [http]
# listen = "127.0.0.1:8087"   # /livez /readyz /metrics /status
"""


def _tables(facts: SourceFacts) -> str:
    schemas = sorted({table.namespace for table in captured(facts)}) or ["public"]
    lines = [f"    {toml_string(pattern_for(schema) + '.*')}," for schema in schemas]
    for table, reason in left_out(facts):
        # What PostgreSQL cannot publish is left out by itself; the rest must be excluded, or nothing starts.
        if table.namespace in schemas and not table.unpublishable:
            lines += [f"    # {_comment(reason)}", f"    {table_pattern(table, exclude=True)},"]
    return "\n".join(lines)


def _summary(facts: SourceFacts) -> str:
    """What the patterns select now, and what to do about the rest; comments."""
    lines = ["", f"# They select {len(captured(facts))} tables now:"]
    lines += [
        f"#   {_comment(table.table)}  key ({', '.join(_comment(column) for column in table.key)})"
        for table in captured(facts)[:_TABLES_SHOWN]
    ]
    if len(captured(facts)) > _TABLES_SHOWN:
        lines.append(f"#   and {len(captured(facts)) - _TABLES_SHOWN} more")
    if _keyless(facts):
        lines += [
            "# Those excluded above have no usable key. Give each a primary key, or a unique index over NOT NULL",
            "# columns as REPLICA IDENTITY, and take out its line; or take out its line and list it in keyless.",
        ]
    others = [(table, reason) for table, reason in left_out(facts) if table.unpublishable]
    if others:
        lines.append("# PostgreSQL cannot publish these, so they are left out:")
        lines += [f"#   {_comment(table.table)}: {_comment(reason)}" for table, reason in others[:_TABLES_SHOWN]]
    return "\n".join([*lines, ""])


def _keyless(facts: SourceFacts) -> list[tuple[SourceTable, str]]:
    return [(table, reason) for table, reason in left_out(facts) if not table.key and not table.unpublishable]


def _replication(new: NewConfig) -> str:
    if new.local:
        return "replication_factor = 1  # one local broker; a real cluster wants 3\nallow_unreplicated = true"
    return "replication_factor = 3  # below that, `cdc doctor` wants allow_unreplicated = true"


def _comment(text: str) -> str:
    """Text inside a comment: on one line, quoted where it is not plain."""
    return text if re.fullmatch(r"[\w .,:;()/'-]*", text, re.ASCII) else toml_string(text)
