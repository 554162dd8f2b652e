"""Logs: events with fields, one line each, nothing secret in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from cdc.config.secret import Secret
from cdc.errors import SourceGap
from cdc.lsn import Lsn
from cdc.telemetry import log


@pytest.fixture
def restored() -> Iterator[None]:
    """Restore the global logging configuration."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("restored")
def test_json_lines_have_event_level_time_and_fields() -> None:
    stream = io.StringIO()
    log.configure(json=True, stream=stream)

    log.get().info("slot_created", slot="cdc_shop", lsn=str(Lsn(110)))

    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found.pop("timestamp").endswith("Z")
    assert found == {"event": "slot_created", "level": "info", "slot": "cdc_shop", "lsn": "0/6E"}


@pytest.mark.usefixtures("restored")
def test_debug_lines_come_only_when_asked_for() -> None:
    quiet, verbose = io.StringIO(), io.StringIO()

    log.configure(json=True, stream=quiet)
    log.get().debug("batch", rows=1)
    log.configure(json=True, verbose=True, stream=verbose)
    log.get().debug("batch", rows=1)

    assert quiet.getvalue() == ""
    assert json.loads(verbose.getvalue())["rows"] == 1


@pytest.mark.usefixtures("restored")
def test_lines_of_libraries_come_in_the_same_form() -> None:
    stream = io.StringIO()
    log.configure(json=True, stream=stream)

    logging.getLogger("kafka").warning("broker %s is down", 1)

    found = json.loads(stream.getvalue())
    assert (found["event"], found["level"]) == ("broker 1 is down", "warning")


@pytest.mark.usefixtures("restored")
def test_people_get_columns_without_colours_in_a_file() -> None:
    stream = io.StringIO()
    log.configure(json=False, stream=stream)

    log.get().warning("capture_waiting", reason="broker")

    line = stream.getvalue()
    assert "capture_waiting" in line
    assert "reason=broker" in line
    assert "\x1b" not in line


@pytest.mark.usefixtures("restored")
def test_secret_that_is_logged_by_mistake_stays_secret() -> None:
    for as_json in (True, False):
        stream = io.StringIO()
        log.configure(json=as_json, stream=stream)

        log.get().info("connected", dsn=Secret("postgresql://cdc:hunter2@h/shop"))

        assert "hunter2" not in stream.getvalue()


def test_error_is_logged_with_its_class_and_facts_and_what_to_do() -> None:
    error = SourceGap("lost", known_to=Lsn(100), hint="copy again", command="cdc doctor", slot="cdc_shop")

    assert log.error_fields(error) == {
        "error": "SourceGap",
        "message": "lost",
        "known_to": "0/64",
        "slot": "cdc_shop",
        "hint": "copy again",
        "command": "cdc doctor",
    }


@pytest.mark.usefixtures("restored")
def test_log_that_cannot_be_written_stops_no_thread() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    log.configure(json=True, stream=Full())

    log.get().error("capture_stopped")
    logging.getLogger("librdkafka").error("as librdkafka says it")
