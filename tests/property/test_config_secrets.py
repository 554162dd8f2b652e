"""Secrets come from files and the environment, reach the drivers, and are never printed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq
from psycopg.conninfo import make_conninfo

from cdc.config.load import parse
from cdc.config.secret import SECRET_PARAMETERS, Secret
from cdc.doctor.new_config import without_password
from cdc.doctor.script import script


@given(st.text(st.characters(categories=["L", "N"]), min_size=6), st.sampled_from("@/:?'\\ =&"))
def test_password_of_a_url_is_masked_whatever_it_contains(word: str, odd: str) -> None:
    password = f"<{word}{odd}{word}>".replace(" ", "%20")

    assert Secret(f"postgresql://cdc:{password}@host:5432/shop").masked() == "postgresql://cdc:***@host:5432/shop"


_VALUES = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)


@given(
    st.dictionaries(st.sampled_from(SECRET_PARAMETERS), _VALUES.map(lambda text: f"canary{text}x"), min_size=1),
    st.sampled_from(["user=u", "host=h dbname=d", "host=127.0.0.1 port=5"]),
)
def test_no_form_of_a_connection_string_shows_a_secret_parameter(secrets: dict[str, str], rest: str) -> None:
    dsn = Secret(make_conninfo(rest, **secrets))
    made = parse(f'name = "shop"\n[source]\ndsn = {json.dumps(dsn.reveal())}\n[kafka]\nbootstrap = "k:1"\n', {})

    shown = (dsn.masked(), script(made, None), without_password(dsn))

    assert not any("canary" in text for text in shown), shown


def test_every_parameter_that_this_libpq_marks_as_a_password_is_known() -> None:
    marked = {option.keyword.decode() for option in pq.Conninfo.get_defaults() if option.dispchar == b"*"}

    assert marked <= set(SECRET_PARAMETERS)
