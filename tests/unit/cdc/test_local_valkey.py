from __future__ import annotations

import pytest

from cdc.errors import LocalError
from cdc.local.valkey_server import render_conf


def test_settings_stand_in_the_file_as_they_are_given() -> None:
    assert render_conf({"port": "1", "save": "60 1000", "dir": '"/a b"'}) == 'port 1\nsave 60 1000\ndir "/a b"\n'


@pytest.mark.parametrize(("name", "value"), [("", "1"), ("a\nport", "1"), ("a", "1\nport 2")])
def test_setting_that_would_be_another_line_is_refused(name: str, value: str) -> None:
    with pytest.raises(LocalError, match="invalid setting of Valkey"):
        render_conf({name: value})
