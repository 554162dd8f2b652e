"""Parsing of other programs' output: answers of the broker, logs, lines of `ps`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.local.kafka_fence import is_fenced
from cdc.local.kafka_probe import alive_brokers
from cdc.local.process_identity import parse_ps, parse_stat


@given(st.binary())
def test_any_answer_is_a_number_of_brokers(answer: bytes) -> None:
    assert alive_brokers(answer) >= 0


@given(st.lists(st.text()))
def test_any_log_says_fenced_or_not(lines: list[str]) -> None:
    is_fenced(lines)


@given(st.text())
def test_any_text_is_an_entry_or_none(text: str) -> None:
    parse_stat(text, "boot")
    parse_ps(text)
