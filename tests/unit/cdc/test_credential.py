"""Passwords and tokens that are read when they are used: rotated without a restart, and never shown."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.config.credential import OUTPUT_BYTES_MAX, CommandSecret, FileSecret, in_time, with_text
from cdc.config.load import parse
from cdc.config.settings import Config
from cdc.config.shown import settings_shown
from cdc.config.sink_kinds import applied_of
from cdc.doctor.transport_checks import check_transport
from cdc.errors import ConfigError, CredentialUnavailable, SourceUnreachable
from cdc.replication.connect import connect, conninfo
from cdc.why.error_codes import code_of
from cdc.why.evidence import Failure
from tests.fixtures.servers.waiting import until

_FILE: Final = """
name = "shop"
[source]
dsn = "postgresql://cdc:in_the_dsn@db.example.com/shop"
{source}
[kafka]
bootstrap = "kafka.example.com:9092"
[sinks.fast]
kind = "cache"
url = "redis://cache"
{sink}
"""


def _config(source: str = "", sink: str = "", **environ: str) -> Config:
    return parse(_FILE.format(source=source, sink=sink), environ)


def _password(config: Config) -> str:
    return str(conninfo_to_dict(conninfo(config.source.dsn))["password"])


def _python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", program, *arguments]


def test_password_file_is_read_again_for_every_connection(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\nsecond line\n")
    config = _config(f'password_file = "{file}"')

    before = _password(config)
    file.write_text("rotated")

    assert (before, _password(config)) == ("first", "rotated")


def test_password_command_is_run_for_every_connection_without_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "token; echo no"
    file.write_text("first\n")
    config = _config(f'password_command = ["cat", "{file}"]')

    before = _password(config)
    file.write_text("rotated")

    assert (before, _password(config)) == ("first", "rotated")


def test_password_of_the_environment_wins(tmp_path: Path) -> None:
    given = f'password_command = ["cat", "{tmp_path}/none"]'

    assert _password(_config(given, TAILRACE_SOURCE_PASSWORD="given")) == "given"


def test_password_stays_with_a_connection_string_that_is_changed(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    dsn = _config(f'password_file = "{tmp_path}/password"').source.dsn

    changed = conninfo_to_dict(conninfo(with_text(dsn, "host=elsewhere")))

    assert (changed["host"], changed["password"]) == ("elsewhere", "hunter2")


def test_file_and_command_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")

    with pytest.raises(ConfigError, match=r"password_file and source\.password_command are both set"):
        _config(f'password_file = "{tmp_path}/password"\npassword_command = ["cat"]')


@pytest.mark.parametrize("wrong", ['"cat file"', "[]", '["cat", 1]', '[" "]'])
def test_command_of_an_option_that_is_not_a_list_of_words_is_refused(wrong: str) -> None:
    if wrong == '"cat file"':  # a text is the value of an option of that name, which the store refuses by name
        assert "password_command" in applied_of(_config(sink=f"options.password_command = {wrong}"), "fast").options
        return
    with pytest.raises(ConfigError, match=r"sinks\.fast\.options\.password_command must be a list"):
        _config(sink=f"options.password_command = {wrong}")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('s3cret'); print('s3cret', file=sys.stderr); sys.exit(3)", "failed with exit code 3"),
        ("import os, signal; print('s3cret'); os.kill(os.getpid(), signal.SIGTERM)", "failed with exit code -15"),
        ("print()", "printed nothing"),
        ("print('s3cret\\ns3cret')", "printed 2 lines; expected one"),
        ("import sys; sys.stdout.buffer.write(b's3cret\\xff')", "not UTF-8"),
        ("print('s3cret' * 1000000)", f"printed more than {OUTPUT_BYTES_MAX} bytes"),
    ],
)
def test_failed_command_is_an_error_that_does_not_show_its_output(
    program: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CredentialUnavailable) as caught:
        CommandSecret(_python(program), "source.password_command").reveal()

    error = caught.value
    assert said in error.message
    assert error.message.startswith("source.password_command: ")
    assert error.retry == "timed"
    assert "s3cret" not in f"{error.message}{error.hint}{error.facts}{capfd.readouterr()}"


def test_command_that_hangs_is_ended_with_everything_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "child.wait()\n"
    )
    # It also gets as long as it takes to start both on a busy machine.
    for timeout_s in (1.0, 5.0, 30.0):
        with pytest.raises(CredentialUnavailable, match="timed out after"):
            CommandSecret(_python(program, str(pids)), "source.password_command", timeout_s=timeout_s).reveal()
        if pids.exists():
            break

    leader, child = map(int, pids.read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(leader, 0)
    until(lambda: not _runs(child), "the end of what the command started")


def test_time_limit_of_another_caller_ends_the_command_sooner() -> None:
    config = _config("password_command = " + json.dumps(_python("import time; time.sleep(600)")))

    with pytest.raises(SourceUnreachable, match=r"timed out after 0\.2 s"):
        connect(in_time(config.source.dsn, 0.2))


def test_missing_program_and_file_are_failed_connections_that_are_retried(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("x")
    by_command = _config('password_command = ["/nowhere/token", "--for=cdc"]')
    by_file = _config(f'password_file = "{tmp_path}/password"')
    (tmp_path / "password").unlink()

    found = []
    for config in (by_command, by_file):
        with pytest.raises(SourceUnreachable) as caught:
            connect(config.source.dsn)
        found.append(caught.value)

    assert [code_of(Failure.of(one)) for one in found] == ["credential-unavailable"] * 2
    assert "cannot connect to PostgreSQL: source.password_command: /nowhere/token cannot be run: No such file" in str(
        found[0]
    )
    assert "--for=cdc" not in f"{found[0]}{found[0].hint}{found[0].command}", "an argument may hold a secret"
    assert "source.password_file: No such file" in str(found[1])


def test_option_of_a_store_is_read_again_from_file_and_command(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    one = applied_of(_config(sink=f'options.password_file = "{file}"'), "fast").options["password"]
    two = applied_of(_config(sink=f'options.password_command = ["cat", "{file}"]'), "fast").options["password"]

    before = [secret.reveal() for secret in (one, two)]
    file.write_text("rotated\n")

    assert (before, [secret.reveal() for secret in (one, two)]) == (["first"] * 2, ["rotated"] * 2)


def test_no_check_of_settings_runs_a_command_and_none_shows_a_secret(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = f'["touch", "{ran}", "hunter2"]'
    config = _config(f"password_command = {command}", f"options.password_command = {command}")

    shown = settings_shown(config, {}, {})
    check_transport(config, {})
    text = f"{config!r}{config.source.dsn.masked()}{config.sinks['fast']}"

    assert not ran.exists()
    assert "in_the_dsn" not in f"{shown}{text}"
    assert {"key": "source.password_command", "value": '["touch","***"]', "origin": "default"} in shown
    assert "hunter2" not in str(shown)
    assert {"key": "sinks.fast.options.password", "value": "***", "origin": "default"} in shown


def test_secrets_are_equal_when_their_origin_is() -> None:
    assert FileSecret("/a", "k") == FileSecret("/a", "k")
    assert FileSecret("/a", "k") != FileSecret("/b", "k")
    assert FileSecret("/a", "k") != CommandSecret(["/a"], "k")
    command = 'password_command = ["cat", "{}"]'
    assert _config(command.format("a")) == _config(command.format("a"))
    assert _config(command.format("a")) != _config(command.format("b"))


def _runs(pid: int) -> bool:
    """Whether a process exists that has not ended; another process may collect it later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
