"""The cdc.toml of `cdc init`: every default that it shows is the real default."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import msgspec

from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.doctor.new_config import NewConfig, render
from tests.fixtures.capture.source_builders import facts

_COMMENTED = re.compile(r"# ?(\[[a-z.]+\](?: +#.*)?|[a-z_.]+ = .+)")
_EXAMPLES = {"source.password_file", "source.keyless", "toast.tables", "kafka.options"}
"""Settings that are empty by default and have an example in the file."""


def _shown(text: str) -> dict[str, Any]:
    """Return the settings of the file, including those in comments."""
    lines = [match[1] if (match := _COMMENTED.fullmatch(line)) else line for line in text.splitlines()]
    return tomllib.loads("\n".join(lines))


def test_every_default_in_the_generated_file_is_the_default() -> None:
    text = render(NewConfig("shop", Secret("postgresql://cdc@db/shop"), "k:1", False, facts()))
    config = parse(text, {})
    found = []

    for section, settings in _shown(text).items():
        if not isinstance(settings, dict):
            continue
        loaded = msgspec.structs.asdict(getattr(config, section))
        for key, value in settings.items():
            if f"{section}.{key}" in _EXAMPLES or (section, key) in {("source", "dsn"), ("kafka", "bootstrap")}:
                continue
            default = getattr(config, key) if key in {"slot", "publication"} else loaded[key]
            found.append(f"{section}.{key}")
            assert (list(default) if isinstance(default, tuple) else default) == value, f"{section}.{key}"

    assert {"source.on_truncate", "source.create", "toast.mode", "ddl.policy", "http.listen"} <= set(found)
