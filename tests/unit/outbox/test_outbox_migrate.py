"""Which migrations are due, and their SQL, without a database."""

from __future__ import annotations

from datetime import date

import pytest

from outbox.revisions import Revision, Settings, due, folder, revisions, script
from outbox.table_names import Names
from outbox.table_partitions import create_day, day_of, days_ahead, default_name, partition_name


def a_revision(number: int, phase: str) -> Revision:
    return Revision(f"{number:04}", phase, "what", ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phases", "phase", "count"),
    [
        (["pre", "pre"], None, 2),
        (["pre", "post", "pre"], None, 3),
        (["pre", "post", "pre"], "pre", 1),
        (["post", "pre"], "pre", 0),
        (["pre", "pre"], "pre", 2),
        (["pre", "post", "pre"], "post", 3),
        ([], "pre", 0),
    ],
)
def test_before_a_deployment_everything_up_to_the_first_post_migration_is_due(
    phases: list[str], phase: str | None, count: int
) -> None:
    pending = [a_revision(number, of) for number, of in enumerate(phases, 1)]

    assert due(pending, phase) == pending[:count]  # type: ignore[arg-type]


def test_every_migration_says_in_its_name_when_it_runs() -> None:
    for one in revisions():
        assert one.phase in {"pre", "post"}
        assert list((folder() / "versions").glob(f"{one.id}_{one.phase}_*.py")), one.id
        assert one.title.endswith((".", ":"))


def test_what_a_migration_drops_is_named_by_the_models() -> None:
    fields = set(Names.__dataclass_fields__)

    assert {key for one in revisions() for key in one.drops} <= fields


def test_script_has_every_table_and_the_publication() -> None:
    text = script(Settings(Names(schema="Event box"), partitioned=True, publication="p"))

    for name in Names().tables:
        assert f'"Event box".{name} ' in text
    assert 'alter publication "p" add table "Event box"."outbox", "Event box"."heartbeat"' in text
    assert text.index("set lock_timeout") < text.index("CREATE TABLE")


def test_partitions_are_named_by_their_day() -> None:
    day = date(2026, 11, 23)

    assert partition_name("outbox", day) == "outbox_p20261123"
    assert day_of("outbox", partition_name("outbox", day)) == day
    assert day_of("outbox", default_name("outbox")) is None
    assert day_of("outbox", "outbox_p20261340") is None
    assert day_of("out", "outbox_p20261123") is None
    assert "from ('2026-12-31 00:00:00+00') to ('2027-01-01 00:00:00+00')" in create_day("s", "t", date(2026, 12, 31))
    assert days_ahead(day, 2) == [date(2026, 11, 23), date(2026, 11, 24), date(2026, 11, 25)]
