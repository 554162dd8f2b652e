"""Every contract has a subject in a schema registry, and no two share one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outbox.contract_registry import contract_of, subject_of
from outbox.event_contracts import ContractId

_NAMES = st.text(st.sampled_from("aZ09_-.%/ vé😀\n"), min_size=1, max_size=6) | st.text(
    st.characters(codec="utf-8"), min_size=1, max_size=8
)
_CONTRACTS = st.builds(ContractId, _NAMES, _NAMES, st.integers(1, 999_999_999))


@given(_CONTRACTS)
def test_contract_is_found_again_by_its_subject(of: ContractId) -> None:
    subject = subject_of(of)

    assert contract_of(subject) == of
    assert subject.isascii()
    assert not set(subject) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


@given(st.text(st.sampled_from("ab_.-2efvV19"), max_size=16).map(lambda text: f"events.{text}") | st.text(max_size=20))
def test_subject_is_of_one_contract_or_of_none(subject: str) -> None:
    of = contract_of(subject)

    assert of is None or subject_of(of) == subject
