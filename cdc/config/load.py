"""Builds the Config from cdc.toml and the environment.

The environment overrides the file, and the file overrides the defaults. ``TAILRACE_<SECTION>_<KEY>`` sets one value;
commas separate the items of a list. The password of ``TAILRACE_SOURCE_PASSWORD`` is put
into the DSN; that of ``source.password_file`` or ``source.password_command`` is read for each connection.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, get_origin, get_type_hints

import msgspec

from cdc.config import outbox_check, outbox_debezium, pipelines
from cdc.config.credential import CommandSecret, Dsn, FileSecret, unreadable
from cdc.config.debezium_options import as_modes, check_compatibility, translated
from cdc.config.environment import PASSWORD, PREFIX, STORE_URLS
from cdc.config.lake_url import HINT, problem_of
from cdc.config.notify_settings import from_environment
from cdc.config.secret import Secret
from cdc.config.section import section_of
from cdc.config.settings import Config, Kafka, Warehouse
from cdc.config.sink_plugins import with_plugin
from cdc.config.source_settings import Source
from cdc.config.wrong_setting import explained
from cdc.errors import ConfigError, CredentialUnavailable

_WITH_OPTIONS: Final = ("kafka", "registry")
_FILE_SUFFIX: Final = "_file"
_COMMAND_SUFFIX: Final = "_command"
_TOKEN_FILE: Final = "token_file"  # noqa: S105 - object stores have options with this name, and their value is a path
_COMPACTION_LAG_S: Final = 86_400  # `cdc.publish.topic_rules.COMPACTION_LAG_MS`
_PORT_MAX: Final = 65535
_OF_OAUTH: Final = {"sasl.mechanism": "oauthbearer", "sasl.mechanisms": "oauthbearer", "security.protocol": "sasl_"}
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
SINK_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED_OPTIONS: Final = frozenset(
    {"bootstrap.servers", "transactional.id", "enable.idempotence", "acks", "isolation.level"}
)


def load(path: Path, environ: Mapping[str, str], pipeline: str = "") -> Config:
    """Read `path` and the environment. Raises ConfigError that names the key, the file and the accepted form.

    `pipeline` selects one of `[pipelines.*]`. Raises UsageError if the file has several and none is selected.
    """
    return parse(read(path), environ, where=str(path), pipeline=pipeline)


def load_all(path: Path, environ: Mapping[str, str]) -> dict[str, Config]:
    """Read every pipeline of a file with `[pipelines.*]`, sorted by name; empty for a file without.

    Raises ConfigError if one is not valid, or if two of them cannot run side by side.
    """
    text, where = read(path), str(path)
    names = pipelines.names_of(_toml(text, where), where)
    if len(names) > 1:
        pipelines.check_variables(environ, names)
    found = {name: parse(text, environ, where=where, pipeline=name) for name in names}
    wrong = pipelines.conflict(found, where)
    if wrong is not None:
        raise wrong
    return found


def read(path: Path) -> str:
    """Return the text of a configuration file. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"configuration file {path} not found",
            hint="create one from your database with cdc init, or pass another path with -c",
            command="cdc init --dsn postgresql://user@host/database --kafka host:9092",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def parse(text: str, environ: Mapping[str, str], *, where: str = "cdc.toml", pipeline: str = "") -> Config:
    """As `load`, from the text of a file."""
    raw, environ, where = _selected(_toml(text, where), environ, where, pipeline)
    if isinstance(raw.get("encode"), dict):
        chosen = environ.get(f"{PREFIX}ENCODE_COMPATIBILITY", raw["encode"].get("compatibility"))
        translate = as_modes if chosen == "debezium" else translated
        raw["encode"] = translate(raw["encode"], where)
    if isinstance(raw.get("outbox"), dict):
        raw["outbox"] = outbox_debezium.translated(raw["outbox"], where)
    _overlay(raw, environ)
    from_environment(raw, environ, where)
    for section in _WITH_OPTIONS:
        table = raw.get(section)
        if isinstance(table, dict) and isinstance(table.get("options"), dict):
            table["options"] = _options(table["options"], f"{section}.options")
    for sink, table in _table(raw, "sinks").items():
        if isinstance(table, dict) and "kind" not in table:
            raise ConfigError(f"{where}: sinks.{sink}.kind is missing; it has no default", hint='kind = "warehouse"')
        if isinstance(table, dict):
            url = environ.get(STORE_URLS.get(str(table["kind"]), ""))
            if url is not None:
                table.setdefault("url", url)
            _sink_options(table, sink, environ)
            raw["sinks"][sink] = with_plugin(table, f"sinks.{sink}")
    try:
        config = msgspec.convert(raw, Config, dec_hook=_decode_special, strict=True)
    except msgspec.ValidationError as error:
        text, hint = explained(str(error), raw)
        raise ConfigError(f"{where}: {text}", hint=hint) from None
    _check(config, where)
    return _with_token(_with_password(outbox_check.checked(config, where), environ))


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not valid TOML: {error}") from error


def _selected(
    raw: dict[str, Any], environ: Mapping[str, str], where: str, pipeline: str
) -> tuple[dict[str, Any], Mapping[str, str], str]:
    """Return tables, environment and place of one pipeline; all unchanged for a file without `[pipelines]`."""
    names = pipelines.names_of(raw, where)
    if not names and not pipeline:
        return raw, environ, where
    name = pipeline or pipelines.only(names, where)
    table = pipelines.selected(raw, name, where)
    pipelines.check_own_variables(environ, name)
    return table, pipelines.scoped(environ, name, names), f"{where} [{pipelines.TABLE}.{name}]"


@cache
def _keys_of(kind: type) -> dict[str, Any]:
    """Return key -> type. Cached, because Python evaluates the annotations' text: half the time of a load."""
    return get_type_hints(kind)


def _overlay(raw: dict[str, Any], environ: Mapping[str, str]) -> None:
    hints = _keys_of(Config)
    if f"{PREFIX}NAME" in environ:
        raw["name"] = environ[f"{PREFIX}NAME"]
    for section, hint in hints.items():
        kind = section_of(hint)
        if kind is None:
            continue
        for field, wanted in _keys_of(kind).items():
            if section_of(wanted) is not None:
                continue  # a table
            value = environ.get(f"{PREFIX}{section}_{field}".upper())
            if value is not None:
                _table(raw, section)[field] = _from_text(value, wanted, f"{section}.{field}")
    for variable, value in environ.items():
        for section in _WITH_OPTIONS:
            prefix = f"{PREFIX}{section}_OPTION_".upper()
            if variable.startswith(prefix):
                option = variable.removeprefix(prefix).lower().replace("_", ".")
                _table(_table(raw, section), "options")[option] = value


def _table(raw: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the table with this key; add an empty one if the file has none."""
    table = raw.setdefault(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{key} must be a table, written as [{key}]")
    return table


def _from_text(text: str, wanted: Any, key: str) -> object:
    if get_origin(wanted) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if wanted is bool:
        if text.lower() not in {"true", "false", "1", "0"}:
            raise ConfigError(f"{key} from the environment is {text!r}; expected true or false")
        return text.lower() in {"true", "1"}
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            raise ConfigError(f"{key} from the environment is {text!r}; expected a number") from None
    return text


def _options(options: dict[str, Any], where: str) -> dict[str, str | Secret]:
    """Flatten ``security.protocol = "SSL"``, which TOML reads as nested tables.

    An option that names a file or a command becomes a secret that is read when it is used; files are read here, too.
    """
    flat: dict[str, str | Secret] = {}

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        elif isinstance(value, bool):
            flat[prefix] = "true" if value else "false"
        elif isinstance(value, (str, int, float)):
            flat[prefix] = str(value)
        elif isinstance(value, list) and prefix.lower().endswith(_COMMAND_SUFFIX):
            key = f"{where}.{prefix}"
            flat[prefix[: -len(_COMMAND_SUFFIX)]] = CommandSecret(_command(value, key), key)
        else:
            raise ConfigError(f"{where}.{prefix} must be a string, a number, true or false")

    walk("", options)
    named = [key for key in flat if key.lower().endswith(_FILE_SUFFIX) and not key.lower().endswith(_TOKEN_FILE)]
    for key in named:
        flat[key[: -len(_FILE_SUFFIX)]] = _readable(FileSecret(str(flat.pop(key)), f"{where}.{key}"))
    for key in flat:
        if key in _RESERVED_OPTIONS:
            raise ConfigError(
                f"{where}.{key} cannot be set: Tailrace sets it, because exactly-once delivery depends on it",
                hint="remove it" + ("; set kafka.bootstrap instead" if key == "bootstrap.servers" else ""),
            )
        if where == "registry.options" and key == "url":
            raise ConfigError("registry.options.url cannot be set", hint="set registry.url instead")
    return flat


def _sink_options(table: dict[str, Any], sink: str, environ: Mapping[str, str]) -> None:
    """Like `_options`, for the store of a sink: TAILRACE_SINK_<SINK>_OPTION_<OPTION>, words joined by `_`.

    Options of a warehouse's object store are in `storage`: TAILRACE_SINK_<SINK>_STORAGE_<OPTION>. Names of Spark
    settings contain capital letters and dots, so environment variables cannot name them.
    """
    warehouse = table.get("kind") == "warehouse"
    for key, word in (("storage", "STORAGE"), ("spark", "")) if warehouse else (("options", "OPTION"),):
        prefix = f"{PREFIX}SINK_{sink}_{word}_".upper()
        given = {name.removeprefix(prefix).lower(): value for name, value in environ.items() if name.startswith(prefix)}
        there = table.get(key, {})
        if given and word and isinstance(there, dict):
            table[key] = there = {name: value for name, value in there.items() if name.lower() not in given} | given
        if isinstance(there, dict) and there:
            table[key] = _options(there, f"sinks.{sink}.{key}")


def _readable(secret: FileSecret) -> FileSecret:
    """Return the secret if its file can be read now. Raises ConfigError."""
    try:
        secret.reveal()
    except CredentialUnavailable as error:
        raise ConfigError(error.message) from None
    return secret


def _command(given: Sequence[object], key: str) -> list[str]:
    """Return a program and its arguments. Raises ConfigError for anything else."""
    words = [word for word in given if isinstance(word, str) and "\0" not in word]
    if not words or len(words) != len(given) or not words[0].strip():
        raise ConfigError(
            f"{key} must be a list of strings: a program and its arguments",
            hint='for example ["/usr/bin/cat", "/run/x"]',
        )
    return words


def _decode_special(kind: type, value: object) -> object:
    if kind is not Secret:
        raise NotImplementedError(kind)
    if isinstance(value, Secret):  # it was made from a file or command
        return value
    if not isinstance(value, str):
        raise TypeError("Expected `str`")  # msgspec converts it to a ValidationError that names the key
    return Secret(value)


def _check(config: Config, where: str) -> None:
    for key, value in (("source.slot", config.slot), ("source.publication", config.publication)):
        if key == "source.slot" and _SLOT_NAME.fullmatch(value) is None:
            raise ConfigError(
                f"{where}: {key} is {value!r}; expected 1 to 63 lower-case letters, digits and underscores"
            )
        if len(value.encode()) > 63 or not value or "\0" in value:
            raise ConfigError(f"{where}: {key} is {value!r}; expected 1 to 63 bytes, which is PostgreSQL's limit")
    for pattern in (*config.source.tables, *config.source.keyless):
        if "." not in pattern:
            raise ConfigError(
                f"{where}: pattern {pattern!r} in source.tables or source.keyless has no schema",
                hint=f"write {'!' if pattern.startswith('!') else ''}public.{pattern.lstrip('!')}",
            )
    by_table = (("toast", config.toast.tables), ("ddl", config.ddl.tables), ("snapshot", config.snapshot.tables))
    for key, overrides in by_table:
        for pattern in overrides:
            if "." not in pattern or pattern.startswith("!"):
                raise ConfigError(
                    f"{where}: invalid pattern {pattern!r} in {key}.tables; expected schema.table without !",
                    hint='for example "public.docs_*"; the last match wins',
                )
    for table, columns in config.source.keys.items():
        if "." not in table or not columns or len(set(columns)) != len(columns):
            raise ConfigError(
                f"{where}: invalid entry {table!r} = {list(columns)} in source.keys",
                hint='expected schema.table and at least one column, each once, as in "public.orders" = ["code"]',
            )
    if config.source.on_wal_pressure == "drop_slot" and not config.source.wal_drop_bytes:
        raise ConfigError(
            f'{where}: source.on_wal_pressure is "drop_slot", and source.wal_drop_bytes is not set',
            hint="set it to the bytes of WAL that the server can hold; beyond that, the slot is dropped",
        )
    if config.capture.heartbeat_query and not config.capture.heartbeat_interval_s:
        raise ConfigError(
            f"{where}: capture.heartbeat_query needs capture.heartbeat_interval_s", hint="set it, for example to 10"
        )
    for sink in config.sinks:
        if SINK_NAME.fullmatch(sink) is None:
            raise ConfigError(
                f"{where}: invalid sink name {sink!r}; expected 1 to 40 lower-case letters, digits and underscores"
            )
        settings = config.sinks[sink]
        if isinstance(settings, Warehouse):
            _check_place(where, sink, settings)
    check_compatibility(config, where)
    _check_format(config, where)
    _check_oauth(config.kafka, where)
    lag_s = config.kafka.compaction_lag_max_s
    if 0 < lag_s < _COMPACTION_LAG_S:
        raise ConfigError(
            f"{where}: kafka.compaction_lag_max_s is {lag_s}; expected 0, or at least {_COMPACTION_LAG_S}",
            hint="topics keep every record for a day (min.compaction.lag.ms), and Kafka rejects a shorter maximum",
        )
    match = re.fullmatch(r"(\[.+\]|[^:\[\]]+):(\d{1,5})", config.http.listen)
    if config.http.listen and (match is None or int(match[2]) > _PORT_MAX):
        raise ConfigError(f"{where}: http.listen is {config.http.listen!r}; expected host:port")


def _check_oauth(kafka: Kafka, where: str) -> None:
    if not kafka.oauth_command:
        return
    _command(kafka.oauth_command, "kafka.oauth_command")
    for name, fits in _OF_OAUTH.items():
        given = kafka.options.get(name)
        if given is not None and not given.reveal().lower().startswith(fits):
            raise ConfigError(
                f"{where}: kafka.oauth_command gives a token for SASL/OAUTHBEARER, but kafka.options.{name} is another",
                hint=f"remove kafka.options.{name}" if "sasl" in name else "set it to SASL_SSL",
            )
    for name in kafka.options:
        if name.startswith("sasl.oauthbearer."):
            raise ConfigError(
                f"{where}: kafka.oauth_command and kafka.options.{name} are both set",
                hint="remove the one that is not used; librdkafka gets its token in one way only",
            )


def _check_format(config: Config, where: str) -> None:
    """Check the settings against the format: only Debezium's JSON marks incomplete rows and is read by sinks."""
    form = f'{where}: encode.format = "{config.encode.format}"'
    if config.encode.format == "json":
        return
    for key, value, instead in (
        ("toast.mode", config.toast.mode, "reselect"),
        *((f'toast.tables."{pattern}"', mode, "reselect") for pattern, mode in config.toast.tables.items()),
        ("capture.oversize", config.capture.oversize, "stop"),
    ):
        if value == "omit":
            raise ConfigError(
                f'{form} needs complete rows, but {key} = "omit" leaves columns out of them',
                hint=f'set {key} = "{instead}", or encode.format = "json", whose records list omitted columns',
            )
    if config.encode.format == "avro":
        _check_registry(config, form)
    if config.sinks:
        raise ConfigError(
            f"{form} cannot be read by sinks: sinks.{min(config.sinks)} needs Debezium's envelope in JSON",
            hint='remove the sinks, or set encode.format = "json"; a second pipeline with another `name` can capture '
            "the same tables in another format",
        )


def _check_registry(config: Config, form: str) -> None:
    for url in config.registry.url.split(","):
        if re.fullmatch(r"https?://[^/@\s]+(/\S*)?", url.strip()) is None:
            raise ConfigError(
                f"{form} needs a schema registry, but registry.url is not an http:// or https:// address"
                if "@" not in url
                else "registry.url contains a password",
                hint='as http://localhost:8081; set user and password in registry.options."basic.auth.user.info"',
            )


def _check_place(where: str, name: str, sink: Warehouse) -> None:
    if sink.objective is not None and sink.objective.freshness_s <= sink.interval_s:
        raise ConfigError(
            f"{where}: sinks.{name}.objective.freshness_s is {sink.objective.freshness_s:g}, but a cut begins only "
            f"every {sink.interval_s:g} s",
            hint=f"lower sinks.{name}.interval_s, or allow for the interval and the time of a cut",
        )
    if "://" not in sink.path:
        if sink.storage:
            raise ConfigError(
                f"{where}: sinks.{name}.storage has options of an object store, but path is a local folder",
                hint="remove them, or set path to the address of the store, for example s3://bucket/lake",
            )
        return
    problem = problem_of(sink.path)
    if problem:
        raise ConfigError(f"{where}: sinks.{name}.path: {problem}", hint=HINT)


def _with_token(config: Config) -> Config:
    """Read `http.token_file`. A token in the configuration or in TAILRACE_HTTP_TOKEN takes precedence."""
    if config.http.token_file is None or config.http.token is not None:
        return config
    try:
        lines = Path(config.http.token_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"http.token_file: {unreadable(error)}") from None
    if not lines or not lines[0].strip():
        raise ConfigError(f"http.token_file: the first line of {config.http.token_file} is empty")
    http = msgspec.structs.replace(config.http, token=Secret(lines[0].strip()))
    return msgspec.structs.replace(config, http=http)


def _with_password(config: Config, environ: Mapping[str, str]) -> Config:
    """Put the password of the environment into the DSN, or let each connection read that of the file or command."""
    source, given = config.source, environ.get(PASSWORD)
    if source.password_file and source.password_command:
        raise ConfigError(
            "source.password_file and source.password_command are both set", hint="remove the one that is not used"
        )
    if not (given or source.password_file or source.password_command):
        return config
    import psycopg.conninfo

    try:
        text = psycopg.conninfo.make_conninfo(source.dsn.reveal(), **({"password": given} if given else {}))
    except psycopg.ProgrammingError:
        raise ConfigError(
            "source.dsn is not a valid libpq connection string", hint="expected postgresql://user@host:5432/database"
        ) from None
    dsn = Secret(text)
    if not given:
        dsn = Dsn(source.dsn.reveal(), _password(source))
    return msgspec.structs.replace(config, source=msgspec.structs.replace(source, dsn=dsn))


def _password(source: Source) -> Secret:
    if source.password_command:
        key = "source.password_command"
        return CommandSecret(_command(source.password_command, key), key)
    return _readable(FileSecret(source.password_file or "", "source.password_file", first_line=True))
