from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cdc.local.process_identity import Identity
from cdc.local.stack_state import State, parse_state, render_state

names = st.text(min_size=1, max_size=12)
states = st.builds(
    State,
    process=st.none() | st.builds(Identity, st.integers(2, 1 << 22), st.text()),
    ports=st.dictionaries(names, st.integers(1, 65535), max_size=3),
    settings=st.dictionaries(names, st.text(), max_size=3),
    version=st.text(),
    started_s=st.floats(0, 1e10),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(states)
def test_a_state_is_read_back_as_it_was_written(state: State) -> None:
    assert parse_state(render_state(state)) == state


@given(states, st.integers(0, 300))
def test_a_half_written_file_is_never_started_and_never_another_state(state: State, length: int) -> None:
    text = render_state(state)

    assert parse_state(text[:length]) in (State(), state)


@given(st.dictionaries(st.sampled_from(["process", "ports", "settings", "version", "started_s"]), json_values))
def test_fields_of_any_other_kind_do_not_raise(raw: dict[str, object]) -> None:
    state = parse_state(json.dumps({"format": 1, **raw}))

    assert state.process is None or state.process.pid > 1


@given(st.text())
def test_any_text_is_a_state(text: str) -> None:
    assert isinstance(parse_state(text), State)


def test_a_state_of_another_format_is_not_read() -> None:
    text = render_state(State(Identity(77, "x"), {"kafka": 9092})).replace('"format": 1', '"format": 2')

    assert parse_state(text) == State()
