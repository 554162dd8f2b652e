"""Secrets come from files and the environment, reach the drivers, and are never printed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.config.secret import Secret


@given(st.text(st.characters(categories=["L", "N"]), min_size=6), st.sampled_from("@/:?'\\ =&"))
def test_password_of_a_url_is_masked_whatever_it_contains(word: str, odd: str) -> None:
    password = f"<{word}{odd}{word}>".replace(" ", "%20")

    assert Secret(f"postgresql://cdc:{password}@host:5432/shop").masked() == "postgresql://cdc:***@host:5432/shop"
