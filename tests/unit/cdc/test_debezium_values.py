"""`encode.compatibility = "debezium"` gives the values that Debezium's own connector wrote, for every type it has.

`tests/golden/debezium.json` was captured from the connector by ``make debezium-values``; it names its version and date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from cdc.config.debezium_options import MODES
from cdc.encode.values import EncodeOptions, resolve
from cdc.model.type_facts import TypeFacts
from tests.fixtures.capture.debezium_comparison import LOST, MISSING, same_value

GOLDEN: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "debezium.json").read_text(encoding="utf-8")
)
TYPES: Final[dict[int, TypeFacts]] = {fact["oid"]: TypeFacts(**fact) for fact in GOLDEN["facts"]}
_CASES: Final = [(name, one) for name in GOLDEN["options"] for one in GOLDEN["types"]]


def _options(name: str) -> EncodeOptions:
    chosen = {MODES[option][0]: value for option, value in GOLDEN["options"][name].items()}
    return EncodeOptions(compatibility="debezium", debezium=tuple(sorted(chosen.items())))


@pytest.mark.parametrize(("name", "one"), _CASES, ids=[f"{name}-{one['type']}" for name, one in _CASES])
def test_value_is_the_one_that_debezium_wrote(name: str, one: dict[str, Any]) -> None:
    encode = resolve(one["oid"], TYPES, _options(name), one["modifier"]).encode

    for row in one["rows"]:
        theirs = row[name].get("value", row[name].get("stream"))
        if theirs == MISSING or one["type"] in LOST:
            continue  # Debezium loses the value: ours is the usual form
        text = row["text"].encode()
        ours = json.loads(text if encode is None else encode(text))
        assert same_value(ours, theirs), (one["type"], row["text"], ours, theirs)
