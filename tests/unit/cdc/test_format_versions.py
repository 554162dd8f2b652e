"""The table of durable formats is true: each version is that of the code, and each format has golden records."""

from __future__ import annotations

import importlib
import json

import pytest

from cdc.model.format_versions import FORMATS, Format
from tests.tidy.tree import ROOT

CURRENT = "0.2.0"
_GOLDEN = ROOT / "tests" / "golden"


@pytest.mark.parametrize("one", [one for one in FORMATS if one.constant], ids=lambda one: one.name)
def test_declared_version_is_that_of_the_code(one: Format) -> None:
    module, _, name = one.constant.partition(":")

    assert getattr(importlib.import_module(module), name) == one.version


def test_migrations_are_as_many_as_declared() -> None:
    (outbox,) = (one for one in FORMATS if one.name == "tables of the outbox")

    assert len(list((ROOT / "migrations" / "versions").glob("0*.py"))) == outbox.version


def test_golden_records_are_declared_and_declared_records_are_golden() -> None:
    lines = (_GOLDEN / CURRENT / "written.jsonl").read_text().splitlines()
    written = {json.loads(line)["name"].partition("-0.")[0] for line in lines}

    assert written == {name for one in FORMATS for name in one.golden}


def test_names_of_formats_are_unique() -> None:
    assert len({one.name for one in FORMATS}) == len(FORMATS)
