from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.contract import Verdict
from sinks.search.bulk_answers import IndexFailure, parse_bulk


def answer(*items: tuple[str, int, str | None, str]) -> str:
    return json.dumps(
        {
            "items": [
                {action: {"status": status, **({"error": {"type": kind, "reason": reason}} if kind else {})}}
                for action, status, kind, reason in items
            ]
        }
    )


@pytest.mark.parametrize(
    ("action", "status", "kind", "verdict"),
    [
        ("index", 201, None, Verdict.DONE),
        ("delete", 404, None, Verdict.DONE),
        ("index", 409, "version_conflict_engine_exception", Verdict.OVERTAKEN),
        ("index", 429, "rejected_execution_exception", Verdict.LATER),
        ("index", 429, "cluster_block_exception", Verdict.LATER),
        ("index", 503, "unavailable_shards_exception", Verdict.LATER),
        ("index", 500, "anything", Verdict.LATER),
        ("index", 400, "mapper_parsing_exception", Verdict.REFUSED),
        ("index", 403, "cluster_block_exception", IndexFailure.BLOCKED),
        ("index", 403, "security_exception", IndexFailure.FORBIDDEN),
        ("index", 404, "index_not_found_exception", IndexFailure.GONE),
        ("delete", 404, "index_not_found_exception", IndexFailure.GONE),
        ("index", 400, "index_closed_exception", IndexFailure.CLOSED),
    ],
)
def test_each_document_has_the_verdict_of_its_own_answer(
    action: str, status: int, kind: str | None, verdict: Verdict | IndexFailure
) -> None:
    (found,) = parse_bulk(answer((action, status, kind, "")), 1) or []

    assert (found if isinstance(found, IndexFailure) else found.verdict) == verdict


def test_a_refusal_names_the_column_and_no_value() -> None:
    reason = "failed to parse field [price.secret] of type [long] in document with id '1'. Preview of value: 'secret'"

    (found,) = parse_bulk(answer(("index", 400, "mapper_parsing_exception", reason)), 1) or []

    assert not isinstance(found, IndexFailure)
    assert found.reason == "column price"


def test_answer_to_another_number_of_documents_is_none() -> None:
    assert parse_bulk(answer(("index", 201, None, "")), 2) is None
    assert parse_bulk(answer(("index", 201, None, ""))[:-3], 1) is None


@given(st.text(), st.integers(0, 3))
def test_any_text_is_an_answer_or_none(text: str, count: int) -> None:
    parse_bulk(text, count)
